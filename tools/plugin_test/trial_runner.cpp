// SPDX-License-Identifier: Apache-2.0
#include "tools/plugin_test/trial_runner.h"

#include <fmt/format.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstring>
#include <optional>
#include <sstream>

#include "base/fd.h"
#include "tools/plugin_test/calls.h"
#include "tools/plugin_test/child_trial.h"
#include "tools/plugin_test/process.h"
#include "tools/plugin_test/shared_memory.h"
#include "tools/plugin_test/trial.h"

namespace tutti::tools::plugin_test {
namespace {

constexpr double kEntryLimit = 10;  // seconds; plans of many ranks on a busy machine take a part of one

/// One process that runs a rule.
class Attempt : public ChildTrial {
 public:
  Attempt(const Request& request, plugin::Kind kind, const Rule& rule) : request_(request), kind_(kind), rule_(rule) {}

  std::string answers() const { return part(3); }

 private:
  Status start() override;
  void read_results() override { read_available(results_, output_); }
  bool has_ended() override { return process_.has_ended(); }
  std::optional<RuleResult> hangs(double seconds) const override;
  std::string part(size_t index) const;
  RuleResult verdict() const override;
  RuleResult result(Verdict verdict, std::string_view violated, std::string text) const {
    const Rule* const broken = violated.empty() ? nullptr : find_rule(violated);
    return {&rule_, Where::kOneProcess, verdict, broken, std::move(text), 0};
  }

  const Request& request_;
  plugin::Kind kind_;
  const Rule& rule_;
  SharedMemory<SharedTrialState> shared_state_;
  Process process_;
  std::string output_;
};

/// Part `index` of the report.
std::string Attempt::part(size_t index) const {
  size_t begin = 0;
  for (; index > 0 && begin != std::string::npos; --index) {
    const size_t end = output_.find(kEndOfPart, begin);
    begin = end == std::string::npos ? end : end + 1;
  }
  if (begin == std::string::npos) return {};
  return output_.substr(begin, output_.find(kEndOfPart, begin) - begin);
}

Status Attempt::start() {
  TUTTI_ASSIGN(shared_state_, SharedMemory<SharedTrialState>::make());
  TUTTI_ASSIGN(Pipe reports, make_pipe());
  results_ = std::move(reports.reader);
  std::vector<std::string> words = {"/proc/self/exe", "plugin",
                                    "test",           request_.file,
                                    "--side",         std::string(kTrialSide),
                                    "--rule",         std::string(rule_.number),
                                    "--seed",         fmt::to_string(request_.seed)};
  append_configuration(request_, words);
  TUTTI_ASSIGN(process_,
               Process::start(words, {{reports.writer.get(), kResultsFd}, {shared_state_.fd(), kSharedStateFd}},
                              !request_.is_verbose));
  return {};
}

std::optional<RuleResult> Attempt::hangs(double seconds) const {
  const int64_t since_ns = shared_state_->since_ns.load(std::memory_order_acquire);
  const double since = static_cast<double>(now_ns() - since_ns) * 1e-9;
  if (since_ns != 0 && since > kEntryLimit) {
    return result(Verdict::kFailed, returns_rule(kind_),
                  fmt::format("entry '{}' has not returned for {:.0f} s", shared_state_->entry.data(), since));
  }
  if (seconds < rule_.seconds) return std::nullopt;
  return result(Verdict::kFailed, rule_.number, fmt::format("no end within {:.0f} s", rule_.seconds));
}

RuleResult Attempt::verdict() const {
  const int status = process_.status();
  const std::string inside = shared_state_->since_ns.load(std::memory_order_acquire) == 0
                                 ? std::string()
                                 : fmt::format(" in entry '{}'", shared_state_->entry.data());
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    return result(Verdict::kFailed, crashes_rule(kind_),
                  fmt::format("the process ended {}{}", how_ended(status), inside));
  }
  if (output_.empty()) {
    return result(Verdict::kFailed, crashes_rule(kind_), fmt::format("the process ended without a result{}", inside));
  }
  const std::string outcome = part(0), rule = part(1), text = part(2);
  if (outcome == "failed") return result(Verdict::kFailed, rule, text);
  return result(outcome == "skipped" ? Verdict::kSkipped : Verdict::kPassed, "", text);
}

/// The first answer in which two processes differ; empty: there is none.
std::string difference(const std::string& first, const std::string& second) {
  std::istringstream one(first), other(second);
  std::string left, right;
  for (;;) {
    const bool has_left = static_cast<bool>(std::getline(one, left));
    const bool has_right = static_cast<bool>(std::getline(other, right));
    if (!has_left && !has_right) return {};
    if (!has_left) left = "nothing";
    if (!has_right) right = "nothing";
    if (left != right) return fmt::format("a process answers '{}', and a second process '{}'", left, right);
  }
}

Result<RuleResult> run_rule(const Request& request, plugin::Kind kind, const Rule& rule) {
  Attempt first(request, kind, rule);
  TUTTI_ASSIGN(RuleResult outcome, first.run());
  if (!rule.needs_processes || outcome.verdict != Verdict::kPassed) return outcome;
  Attempt second(request, kind, rule);
  TUTTI_ASSIGN(RuleResult other, second.run());
  other.where = Where::kTwoProcesses;
  other.seconds += outcome.seconds;
  if (other.verdict != Verdict::kPassed) return other;
  other.text = difference(first.answers(), second.answers());
  if (other.text.empty()) return other;
  other.verdict = Verdict::kFailed;
  other.violated = &rule;
  return other;
}

}  // namespace

Result<std::vector<RuleResult>> run_trials(const Request& request, plugin::Kind kind, const Progress& progress) {
  std::vector<const Rule*> rules;
  for_each_rule([&](const Rule& rule) {
    if (test_of(rule) == nullptr || !rule.number.starts_with(prefix(kind))) return;
    if (request.wants(rule)) rules.push_back(&rule);
  });
  std::vector<RuleResult> results;
  for (size_t i = 0; i < rules.size(); ++i) {
    progress(i, rules.size(), *rules[i], rules[i]->needs_processes ? Where::kTwoProcesses : Where::kOneProcess);
    TUTTI_ASSIGN(RuleResult result, run_rule(request, kind, *rules[i]));
    results.push_back(std::move(result));
  }
  return results;
}

}  // namespace tutti::tools::plugin_test
