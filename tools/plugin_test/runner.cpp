// SPDX-License-Identifier: Apache-2.0
#include "tools/plugin_test/runner.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <csignal>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>

#include "tools/launch.h"
#include "tools/plugin_test/calls.h"
#include "tools/plugin_test/child_trial.h"
#include "tools/plugin_test/process.h"
#include "tools/plugin_test/shared_memory.h"

namespace tutti::tools::plugin_test {
namespace {

constexpr double kEntryLimit = 2;   // seconds, of [progress] entries, connect and accept
constexpr double kSetupLimit = 10;  // of the other entries

bool is_setup(Entry entry) {
  constexpr std::array kSetup = {Entry::kOpen,       Entry::kCreate, Entry::kDestroy,         Entry::kDeviceCount,
                                 Entry::kProperties, Entry::kListen, Entry::kCloseConnection, Entry::kCloseListener};
  return std::find(kSetup.begin(), kSetup.end(), entry) != kSetup.end();
}

/// One rule at one place.
class Run : public ChildTrial {
 public:
  Run(const Request& request, const Rule& rule, Where where, const Namespaces* namespaces)
      : request_(request), rule_(rule), where_(where), namespaces_(namespaces) {}

 private:
  struct Report {
    uint32_t role = 0;
    std::string result, rule, text;
  };
  Status start() override;
  std::vector<std::string> arguments(const std::string& side) const;
  void read_results() override;
  bool has_ended() override;
  std::optional<RuleResult> hangs(double seconds) const override;
  RuleResult verdict() const override;
  std::optional<RuleResult> crash() const;
  RuleResult result(Verdict verdict, std::string_view violated, std::string text) const;
  Entry entry_of(size_t role) const { return static_cast<Entry>(shared_state_->sides[role].entry.load()); }

  const Request& request_;
  const Rule& rule_;
  Where where_;
  const Namespaces* namespaces_;
  SharedMemory<SharedState> shared_state_;
  std::vector<Process> processes_;
  std::string unread_;
  std::vector<Report> reports_;
};

std::vector<std::string> Run::arguments(const std::string& side) const {
  std::vector<std::string> words;
  if (where_ == Where::kTwoNamespaces) words = namespaces_->prefix(side == "0" ? 0 : 1);
  for (const std::string& word :
       {own_program(), std::string("plugin"), std::string("test"), request_.file, std::string("--side"), side,
        std::string("--side-where"), fmt::to_string(static_cast<uint32_t>(where_)), std::string("--rule"),
        std::string(rule_.number), std::string("--seed"), fmt::to_string(request_.seed), std::string("--device"),
        fmt::to_string(request_.device)}) {
    words.push_back(word);
  }
  if (request_.is_long) words.push_back("--long");
  append_configuration(request_, words);
  return words;
}

Status Run::start() {
  TUTTI_ASSIGN(shared_state_, SharedMemory<SharedState>::make());
  TUTTI_ASSIGN(Pipe reports, make_pipe());
  results_ = std::move(reports.reader);
  int line[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, line) != 0) return base::system_error("cannot make a line");
  const base::Fd first(line[0]), second(line[1]);
  const auto launch = [&](const std::string& side, int end) -> Status {
    TUTTI_ASSIGN(
        Process process,
        Process::start(arguments(side),
                       {{end, kLineFd}, {reports.writer.get(), kResultsFd}, {shared_state_.fd(), kSharedStateFd}},
                       !request_.is_verbose));
    processes_.push_back(std::move(process));
    return {};
  };
  if (where_ == Where::kOneProcess) return launch("both", first.get());
  TUTTI_TRY(launch("0", first.get()));
  return launch("1", second.get());
}

void Run::read_results() {
  read_available(results_, unread_);
  while (const auto text = take_line(unread_)) {
    const auto line = nlohmann::json::parse(*text);
    reports_.push_back({line["role"], line["result"], line["rule"], line["text"]});
  }
}

RuleResult Run::result(Verdict verdict, std::string_view violated, std::string text) const {
  const bool before_the_rule = std::ranges::any_of(
      shared_state_->sides, [](const Watched& side) { return side.since_ns != 0 && !side.is_set_up; });
  return {&rule_,
          where_,
          verdict,
          violated.empty() ? nullptr : find_rule(violated),
          std::move(text),
          0,
          verdict == Verdict::kFailed && before_the_rule};
}

std::optional<RuleResult> Run::hangs(double seconds) const {
  for (size_t role = 0; role < shared_state_->sides.size(); ++role) {
    const Entry entry = entry_of(role);
    const double since = static_cast<double>(now_ns() - shared_state_->sides[role].since_ns.load()) * 1e-9;
    if (entry == Entry::kNone || since < (is_setup(entry) ? kSetupLimit : kEntryLimit)) continue;
    return result(Verdict::kFailed, kReturns,
                  fmt::format("{} side: entry '{}' has not returned for {:.0f} s", role == 0 ? "first" : "second",
                              to_string(entry), since));
  }
  if (seconds < rule_.seconds) return std::nullopt;
  return result(
      Verdict::kFailed, rule_.number,
      fmt::format("no end within {:.0f} s: the first side waits for '{}', the second side for '{}'", rule_.seconds,
                  shared_state_->sides[0].waits_for.data(), shared_state_->sides[1].waits_for.data()));
}

std::optional<RuleResult> Run::crash() const {
  for (size_t i = 0; i < processes_.size(); ++i) {
    const int status = processes_[i].status();
    const bool dies = rule_.name == "killed-peer" && i == 1;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) continue;
    if (dies && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) continue;
    std::string where;
    for (size_t role = 0; role < shared_state_->sides.size(); ++role) {
      if (processes_.size() == 2 && role != i) continue;
      if (entry_of(role) != Entry::kNone) where += fmt::format(" in entry '{}'", to_string(entry_of(role)));
    }
    return result(Verdict::kFailed, kCrashes, fmt::format("the process ended {}{}", how_ended(status), where));
  }
  return std::nullopt;
}

RuleResult Run::verdict() const {
  if (auto crashed = crash()) return *crashed;
  const auto find = [&](std::string_view wanted) {
    return std::find_if(reports_.begin(), reports_.end(), [&](const Report& one) { return one.result == wanted; });
  };
  if (const auto failed = find("failed"); failed != reports_.end()) {
    return result(Verdict::kFailed, failed->rule, failed->text);
  }
  if (const auto skipped = find("skipped"); skipped != reports_.end()) {
    return result(Verdict::kSkipped, "", skipped->text);
  }
  const auto passed =
      std::count_if(reports_.begin(), reports_.end(), [](const Report& one) { return one.result == "passed"; });
  if (passed == (rule_.name == "killed-peer" ? 1 : 2)) return result(Verdict::kPassed, "", "");
  return result(Verdict::kFailed, kCrashes, "the process ended without a result");
}

bool Run::has_ended() {
  bool ended = true;
  for (Process& process : processes_) ended = process.has_ended() && ended;
  return ended;
}

struct Task {
  const Rule* rule;
  Where where;
};

std::vector<Task> tasks_of(const Request& request) {
  constexpr std::array<std::string_view, kWhereCount> kNames = {"process", "processes", "namespaces"};
  std::vector<Task> tasks;
  for (uint32_t where = 0; where < kWhereCount; ++where) {
    const auto& wanted = request.where;
    if (!wanted.empty() && std::find(wanted.begin(), wanted.end(), kNames[where]) == wanted.end()) continue;
    for_each_rule([&](const Rule& rule) {
      if (rule.run != nullptr && request.wants(rule)) tasks.push_back({&rule, static_cast<Where>(where)});
    });
  }
  return tasks;
}

}  // namespace

std::string_view to_string(Verdict verdict) {
  constexpr std::array<std::string_view, 3> kNames = {"passed", "failed", "skipped"};
  return kNames[static_cast<size_t>(verdict)];
}

Result<std::vector<RuleResult>> run_rules(const Request& request, const Progress& progress) {
  const std::vector<Task> tasks = tasks_of(request);
  std::vector<RuleResult> results;
  std::unique_ptr<Namespaces> namespaces;
  std::string why_no_namespaces;
  for (size_t i = 0; i < tasks.size(); ++i) {
    const Rule* const rule = tasks[i].rule;
    const Where where = tasks[i].where;
    progress(i, tasks.size(), *rule, where);
    const auto skip = [&](std::string reason) {
      results.push_back({rule, where, Verdict::kSkipped, nullptr, std::move(reason), 0});
    };
    const auto failed_early = [&](const RuleResult& result) { return result.where == where && result.before_the_rule; };
    if (const auto early = std::ranges::find_if(results, failed_early); early != results.end()) {
      skip(fmt::format("the plugin has failed before the rule began, as in {}", early->rule->number));
      continue;
    }
    if (rule->needs_processes && where == Where::kOneProcess) {
      skip("the rule stops or ends a process");
      continue;
    }
    if (where == Where::kTwoNamespaces && namespaces == nullptr && why_no_namespaces.empty()) {
      auto made = Namespaces::make();
      if (made.ok())
        namespaces = *std::move(made);
      else
        why_no_namespaces = made.status().text();
    }
    if (where == Where::kTwoNamespaces && namespaces == nullptr) {
      skip(why_no_namespaces);
      continue;
    }
    TUTTI_ASSIGN(RuleResult result, Run(request, *rule, where, namespaces.get()).run());
    results.push_back(std::move(result));
  }
  return results;
}

}  // namespace tutti::tools::plugin_test
