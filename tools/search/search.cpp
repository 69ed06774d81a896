// SPDX-License-Identifier: Apache-2.0
// `tutti search`: the choices of a cluster of machines that a file describes, without any of its devices.
#include <fmt/format.h>
#include <sys/resource.h>
#include <CLI/CLI.hpp>

#include <memory>

#include "communicator/dry.h"
#include "program/file/file.h"
#include "tools/cluster.h"
#include "tools/commands.h"
#include "tools/names.h"
#include "tools/search/report.h"

namespace tutti::tools {
namespace {

using communicator::DryCommunicator;

constexpr const char* kFooter = R"(
Runs search, connect and the selector for N machines of that kind in this process; ranks are GPUs in PCI order.

Examples:
  tutti search --topology configs/topologies/hgx-h200.yaml
  tutti search --topology configs/topologies/hgx-h200.yaml --nodes 2048
  tutti search --topology dgx.xml --nodes 4 --plan plan.yaml --set algorithm=tree
  tutti search --topology partial.xml --gpu 0000:10:1c.0,0000:10:1d.0   # a file that gives places only)";

/// Steps of all plans written to one file, at most: a larger file is not useful.
constexpr uint64_t kMaxWrittenSteps = 4'000'000;

struct Work {
  Cluster cluster;
  std::string plan_file;
  int64_t rank = -1;
  uint32_t channel = 0;
  size_t plan_bytes = size_t{64} << 20;
  bool all_channels = false;
};

/// The plans that an all-reduce of --plan-size would run: all ranks', or one's.
Status write_plan(const Work& work, const DryCommunicator& cluster) {
  tuner::Question question;
  question.count = std::max<size_t>(work.plan_bytes / size_of(question.type), 1);
  TUTTI_ASSIGN(const tuner::Decision decision, cluster.selector().choose(question));
  const tuner::Algorithm& algorithm = cluster.algorithms()[decision.algorithm];
  if (work.channel >= algorithm.channels) {
    return {Code::kInvalidArgument, fmt::format("{} has {} channels here; there is no channel {}", algorithm.name,
                                                algorithm.channels, work.channel)};
  }
  if (work.rank >= cluster.rank_count()) {
    return {Code::kInvalidArgument,
            fmt::format("there are {} ranks; there is no rank {}", cluster.rank_count(), work.rank)};
  }
  program::PlanFile file{algorithm.name, algorithm.variants[decision.variant].name, {}};
  const uint32_t first = work.rank < 0 ? 0 : static_cast<uint32_t>(work.rank);
  const uint32_t last = work.rank < 0 ? cluster.rank_count() - 1 : first;
  uint64_t steps = 0;
  for (uint32_t rank = first; rank <= last; ++rank) {
    TUTTI_ASSIGN(program::Plan plan, cluster.plan(decision, question.collective, rank, work.channel));
    steps += plan.steps.size();
    if (steps > kMaxWrittenSteps) {
      return {Code::kInvalidArgument, fmt::format("the plans of all {} ranks have more than {} steps; write one rank's "
                                                  "with --rank, or choose another algorithm with --set algorithm=tree",
                                                  cluster.rank_count(), kMaxWrittenSteps)};
    }
    file.plans.push_back(std::move(plan));
  }
  TUTTI_TRY(program::write_file(file, work.plan_file));
  fmt::print("\nwrote {}: {}{}{}, channel {}, {} rank{}, {} steps\n", work.plan_file, file.algorithm,
             file.variant.empty() ? "" : "/", file.variant, work.channel, file.plans.size(),
             file.plans.size() == 1 ? "" : "s", steps);
  return {};
}

Status run(const Work& work) {
  TUTTI_ASSIGN(const std::unique_ptr<DryCommunicator> cluster, work.cluster.create());
  print_cluster(work.cluster.topology, *cluster);
  for (size_t i = 0; i < cluster->algorithms().size(); ++i) {
    if (cluster->channels()[i].graph.is_searched()) TUTTI_TRY(print_channels(*cluster, i, work.all_channels));
  }
  TUTTI_TRY(print_predictions(*cluster));
  print_limits(*cluster, Collective::kAllReduce);
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  fmt::print("\npeak memory of this process: {} MiB\n", usage.ru_maxrss / 1024);
  return work.plan_file.empty() ? Status() : write_plan(work, *cluster);
}

}  // namespace

void add_search(CLI::App& tutti, int& exit_code) {
  CLI::App* command = tutti.add_subcommand("search", "Channels, loads and predictions of a cluster, from a file");
  command->footer(kFooter);
  const auto work = std::make_shared<Work>();
  work->cluster.add_options(*command);
  command->add_flag("--channels", work->all_channels, "Print every channel, not only different ones");
  command
      ->add_option("--plan", work->plan_file, "Write the plan of an all-reduce: JSON if it ends with .json, else YAML")
      ->option_text("FILE");
  command->add_option("--plan-size", work->plan_bytes, "--plan: bytes of that all-reduce (default 64M)")
      ->transform(kSize)
      ->option_text("SIZE");
  command->add_option("--rank", work->rank, "--plan: only this rank's")->check(tools::kFromZero)->option_text("RANK");
  command->add_option("--channel", work->channel, "--plan: which channel's (default 0)")->option_text("N");
  command->callback([work, &exit_code] {
    const Status status = run(*work);
    exit_code = status.ok() ? kSuccess : fail(status);
  });
}

}  // namespace tutti::tools
