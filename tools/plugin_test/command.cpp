// SPDX-License-Identifier: Apache-2.0
#include "tools/plugin_test/command.h"

#include <fmt/format.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <chrono>
#include <memory>
#include <random>

#include "tools/commands.h"
#include "tools/plugin_test/opening.h"
#include "tools/plugin_test/report.h"
#include "tools/plugin_test/request.h"
#include "tools/plugin_test/runner.h"
#include "tools/plugin_test/trial_runner.h"
#include "tools/session.h"

namespace tutti::tools::plugin_test {

bool Request::wants(const Rule& rule) const {
  const auto names = [&](const std::string& name) { return name == rule.name || name == rule.number; };
  return rules.empty() || std::any_of(rules.begin(), rules.end(), names);
}

namespace {

constexpr const char* kFooter = R"(
Each rule of the contract (tutti/plugin/*.h) runs in processes of its own. The rules of networks run in one process, in
two processes, and in two network namespaces if the user is root. A failure names the violated rule and gives a
counter-example. Exit codes: 0 no rule failed; 1 a rule failed; 2 the command line makes no sense, or the file is not a
plugin.)";

/// Progress. On a terminal it is one line, which is overwritten. In a file, it is a line every ten seconds.
class ProgressLine {
 public:
  void show(size_t index, size_t total, const Rule& rule, Where where) {
    const std::string line =
        fmt::format("[{}/{}] {} {}, {}", index + 1, total, rule.number, rule.name, to_string(where));
    const Clock::time_point now = Clock::now();
    if (is_terminal_) {
      fmt::print(stderr, "\r\033[K{}", line);
    } else if (now - shown_ >= kInterval) {
      fmt::print(stderr, "{}\n", line);
      shown_ = now;
    }
    std::fflush(stderr);
  }
  void end() const {
    if (is_terminal_) fmt::print(stderr, "\r\033[K");
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::seconds kInterval{10};

  const bool is_terminal_ = isatty(STDERR_FILENO) != 0;
  Clock::time_point shown_ = Clock::now();
};

int usage(const std::string& text) {
  fmt::print(stderr, "tutti: {}\n", text);
  return kUsage;
}

Result<int> test(const Request& request, const PluginFile& file) {
  const plugin::Note& note = file.note;
  const Subject subject{file.path.string(), note.name, note.version, std::string(to_string(note.kind)), request.seed};
  const bool has_sides = note.kind == plugin::Kind::kNetwork;
  print_subject(subject);
  ProgressLine line;
  const auto show = [&](size_t index, size_t total, const Rule& rule, Where where) {
    line.show(index, total, rule, where);
  };
  TUTTI_ASSIGN(const std::vector<RuleResult> results,
               has_sides ? run_rules(request, show) : run_trials(request, note.kind, show));
  line.end();
  print_results(results);
  if (!request.json.empty()) TUTTI_TRY(write_json(request.json, subject, results));
  if (!request.junit.empty()) TUTTI_TRY(write_junit(request.junit, subject, results));
  const bool failed = std::any_of(results.begin(), results.end(),
                                  [](const RuleResult& result) { return result.verdict == Verdict::kFailed; });
  return failed ? kFailure : kSuccess;
}

int run(Request& request) {
  if (!request.side.empty()) {
    const auto code = run_side(request);
    return code.ok() ? *code : fail(code.status());
  }
  if (request.lists) return print_rules(), kSuccess;
  if (request.file.empty()) return usage("plugin test needs the FILE of a plugin, or --list");
  const auto opening = try_opening(request);
  if (!opening.ok()) return fail(opening.status());
  if (!opening->loaded.ok()) return fail(opening->loaded), kUsage;
  if (!opening->file) return fail(opening->opened);
  const plugin::Kind kind = opening->file->note.kind;
  for (const std::string& name : request.rules) {
    const Rule* const rule = find_rule(kind, name);
    if (rule == nullptr) {
      return usage(fmt::format("there is no rule '{}' of {}s; see 'tutti plugin test --list'", name, to_string(kind)));
    }
    if (rule->run == nullptr && test_of(*rule) == nullptr) {
      return usage(fmt::format("rule '{}' has no test of its own: all tests look for it; leave out --rule", name));
    }
  }
  if (kind != plugin::Kind::kNetwork && !request.where.empty()) {
    return usage(fmt::format("--where chooses the places of a network; the plugin is of kind {}", to_string(kind)));
  }
  if (!opening->opened.ok()) return fail(opening->opened);
  if (request.seed == 0) request.seed = std::random_device()();
  const auto code = test(request, *opening->file);
  return code.ok() ? *code : fail(code.status());
}

}  // namespace

void add_verb(CLI::App& command, int& exit_code) {
  const auto request = std::make_shared<Request>();
  CLI::App* verb = command.add_subcommand("test", "Test a plugin against its contract");
  verb->add_option("file", request->file, "File of the plugin, or the name of a plugin on the search path");
  verb->add_option("--rule", request->rules, "Run only this rule, by name or number; may be repeated");
  verb->add_option("--where", request->where,
                   "Of networks: process, processes, namespaces (default: all that work here)")
      ->delimiter(',')
      ->check(CLI::IsMember({"process", "processes", "namespaces"}));
  verb->add_option("--json", request->json, "Write the results to this file as JSON");
  verb->add_option("--junit", request->junit, "Write the results to this file as JUnit XML");
  verb->add_option("--seed", request->seed, "Seed of all random numbers (default: a new seed, which is printed)");
  verb->add_option("--device", request->device, "Of networks: number of the device in the plugin's list (default 0)");
  verb->add_flag("--list", request->lists, "Print all rules");
  verb->add_flag("--long", request->is_long, "Of networks: send a message of 1 GiB");
  verb->add_flag("--verbose", request->is_verbose, "Show what the plugin logs");
  add_settings(*verb, request->config_file, request->settings);
  verb->add_option("--side", request->side)->group("");
  verb->add_option("--side-where", request->side_where)->group("");
  verb->footer(kFooter);
  verb->callback([request, &exit_code] { exit_code = run(*request); });
}

}  // namespace tutti::tools::plugin_test
