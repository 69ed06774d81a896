// SPDX-License-Identifier: Apache-2.0
// matrix_test: every collective over every combination of choices that can run it, against a reference.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <string_view>

#include "integration/matrix/gpu.h"
#include "integration/matrix/runner.h"
#include "integration/matrix/scenarios.h"
#include "integration/matrix/team.h"

namespace tutti::matrix {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kSkipped = 77;  // as CTest's SKIP_RETURN_CODE

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// All cases, rank count by rank count.
Tally run_matrix(const Selection& selection) {
  const std::vector<Case> all = cases(selection);
  Tally total;
  for (auto begin = all.begin(); begin != all.end();) {
    const int rank_count = begin->problem.rank_count;
    const auto end =
        std::find_if(begin, all.end(), [&](const Case& one) { return one.problem.rank_count != rank_count; });
    const auto start = Clock::now();
    auto tally = run_cases({begin, end});
    if (!tally.ok()) {
      fmt::print(stderr, "FAILED {} ranks: {}\n", rank_count, tally.status().to_string());
      tally = Tally{.failed = static_cast<size_t>(end - begin)};
    }
    fmt::print("{} ranks: {} passed, {} failed, {} not offered, {:.1f} s\n", rank_count, tally->passed, tally->failed,
               tally->not_offered, seconds_since(start));
    std::fflush(stdout);
    total += *tally;
    begin = end;
  }
  return total;
}

Tally run_scenarios(const Selection& selection) {
  std::vector<Setting> settings = {{"ring", "simple", Reach::kOneHost},
                                   {"direct/one-shot", "ll", Reach::kOneHost},
                                   {"ring", "ll", Reach::kHosts},
                                   {"direct/two-shot", "simple", Reach::kOwnHosts}};
  const auto start = Clock::now();
  Tally total;
  const auto is_local = [](const Setting& setting) { return setting.reach == Reach::kOneHost; };
  const auto rank_counts = selection.rank_counts.empty() ? std::vector{1, 3, 4} : selection.rank_counts;
  for (Setting& setting : settings) setting.host_count = selection.host_count;
  for (const Scenario& scenario : scenarios()) {
    // A split makes a listener on the host of its first rank. One thread of this process makes all listeners, and lives
    // in one namespace.
    if (selection.network && std::string_view(scenario.name) == "split") continue;
    for (const Setting& setting : settings) {
      if (selection.network && is_local(setting)) continue;
      for (const int rank_count : rank_counts) {
        const std::string name = fmt::format("{}, {}, {} ranks", scenario.name, to_string(setting), rank_count);
        if (name.find(selection.filter) == std::string::npos) continue;
        const Status status = run_scenario(scenario, setting, rank_count, selection.seed);
        ++(status.ok() ? total.passed : total.failed);
        if (!status.ok()) fmt::print(stderr, "FAILED {}: {}\n", name, status.to_string());
      }
    }
  }
  fmt::print("scenarios: {} passed, {} failed, {:.1f} s\n", total.passed, total.failed, seconds_since(start));
  return total;
}

int run(int argc, char** argv) {
  CLI::App app("Checks every collective over every combination of what can run it.", "matrix_test");
  Selection selection;
  std::vector<std::string> namespaces;
  bool list = false;
  app.add_flag("--full", selection.full, "Every combination; else a set in which every pair of values occurs");
  app.add_option("--seed", selection.seed, "Of the inputs and of the choice of pairs (default 1)");
  app.add_option("--ranks", selection.rank_counts, "Rank counts (default 1,2,3,4,5,8)")->delimiter(',');
  app.add_option("--max-count", selection.max_count, "No more elements than these");
  app.add_option("--filter", selection.filter, "Only cases with this text: 'all_reduce float16', 'ring/ll'");
  app.add_flag("--gpus", selection.gpus, "On GPUs: rank r on GPU r modulo their number");
  CLI::Option* const hosts =
      app.add_option("--hosts", selection.host_count,
                     "Hosts that ranks pretend to have, in equal parts (default 2); no case runs within one host alone")
          ->check(CLI::Range(2, 64));
  app.add_option(
         "--namespaces", namespaces,
         "Files of network namespaces: the hosts of the ranks, with the same number of ranks each; no case runs "
         "within one host alone")
      ->delimiter(',')
      ->check(CLI::ExistingFile)
      ->excludes(hosts);
  app.add_flag("--list", list, "Print the cases and run none");
  CLI11_PARSE(app, argc, argv);
  selection.network = !namespaces.empty() || hosts->count() > 0;
  if (!namespaces.empty()) selection.host_count = std::max(2, static_cast<int>(namespaces.size()));
  set_namespaces(std::move(namespaces));
  if (list) {
    for (const Case& one : cases(selection)) fmt::print("{}\n", to_string(one));
    return 0;
  }
  if (selection.gpus && gpu_count() == 0) {
    fmt::print("skipped: there is no GPU, or this build has no CUDA\n");
    return kSkipped;
  }
  fmt::print("seed {}\n", selection.seed);
  enter_namespace(0, 1);  // where rank 0 lives, which all ranks must reach
  Tally total = run_matrix(selection);
  if (!selection.gpus) total += run_scenarios(selection);
  fmt::print("{} passed, {} failed, {} not offered\n", total.passed, total.failed, total.not_offered);
  return total.failed == 0 && total.passed > 0 ? 0 : 1;
}

}  // namespace
}  // namespace tutti::matrix

int main(int argc, char** argv) {
  return tutti::matrix::run(argc, argv);
}
