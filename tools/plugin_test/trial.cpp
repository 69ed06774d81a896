// SPDX-License-Identifier: Apache-2.0
#include "tools/plugin_test/trial.h"

#include <fmt/format.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <mutex>

#include "base/fd.h"
#include "base/file.h"
#include "tools/plugin_test/calls.h"
#include "tools/plugin_test/shared_memory.h"

namespace tutti::tools::plugin_test {
namespace {

constexpr size_t kLongestText = 1500;

std::string numbered(plugin::Kind kind, int number) {
  return fmt::format("{}{}", prefix(kind), number);
}

}  // namespace

Trial::Trial(Options options) : options_(std::move(options)), random_(options_.request->seed) {}

void Trial::report(std::string_view result, std::string_view rule, const std::string& text) {
  std::string out;
  for (const std::string_view part :
       {result, rule, std::string_view(text).substr(0, kLongestText), std::string_view(answers_)}) {
    out += part;
    out += kEndOfPart;
  }
  const base::Fd results(dup(options_.results));
  // If the watching process is gone, no process reads the report.
  [[maybe_unused]] const Status written = base::write_all(results, out, "the results");
}

void Trial::violate(std::string_view rule, const std::string& text) {
  static std::mutex once;  // never unlocked: the process ends
  once.lock();
  report("failed", rule, text);
  _exit(0);
}

void Trial::skip(const std::string& reason) {
  report("skipped", options_.rule->number, reason);
  _exit(0);
}

void Trial::pass() {
  report("passed", options_.rule->number, "");
}

void Trial::violate_failure(std::string_view rule, const std::string& what, const Status& failure) {
  const std::string_view text = failure.text();
  if (text.empty() || text.ends_with(": ") || text.find("PLG-14") != std::string_view::npos) {
    violate(reasons_rule(plugin().kind()),
            fmt::format("{} returns '{}' without a text", what, to_string(failure.code())));
  }
  violate(rule, fmt::format("{} fails: {}", what, failure.to_string()));
}

void Trial::violate_by_exception(std::string_view entry, std::string_view text) {
  violate(throws_rule(plugin().kind()), fmt::format("entry '{}' throws: {}", entry, text));
}

void Trial::answer(const std::string& line) {
  answers_ += line;
  answers_ += '\n';
}

void SharedTrialState::enter(std::string_view name) {
  entry = {};
  std::copy_n(name.begin(), std::min(name.size(), entry.size() - 1), entry.begin());
  since_ns.store(now_ns(), std::memory_order_release);
}

Trial::Visible::Visible(SharedTrialState& shared_state, std::string_view entry) : shared_state_(shared_state) {
  shared_state.enter(entry);
}

std::string_view prefix(plugin::Kind kind) {
  constexpr std::array<std::string_view, 5> kPrefixes = {"", "ALG-", "PRO-", "NET-", "TUN-"};
  return kPrefixes[static_cast<size_t>(kind)];
}

const Rule* find_rule(plugin::Kind kind, std::string_view name) {
  const Rule* found = nullptr;
  for_each_rule([&](const Rule& rule) {
    if (rule.number.starts_with(prefix(kind)) && (rule.name == name || rule.number == name)) found = &rule;
  });
  return found;
}

TrialTest test_of(const Rule& rule) {
  TrialTest found = nullptr;
  for_each_trial_rule([&](const TrialRule& one) {
    if (one.rule.number == rule.number) found = one.test;
  });
  return found;
}

std::string returns_rule(plugin::Kind kind) {
  return numbered(kind, 1);
}
std::string throws_rule(plugin::Kind kind) {
  return numbered(kind, 2);
}
std::string reasons_rule(plugin::Kind kind) {
  return numbered(kind, 3);
}
std::string crashes_rule(plugin::Kind kind) {
  return numbered(kind, 4);
}

Result<int> run_trial(const Request& request) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  TUTTI_ASSIGN(const auto shared_state, SharedMemory<SharedTrialState>::at(kSharedStateFd));
  Trial::Options options;
  options.rule = find_rule(request.rules.front());
  options.request = &request;
  options.shared_state = &*shared_state;
  options.results = kResultsFd;
  TUTTI_ASSIGN(options.plugin, open_plugin(request));
  Trial trial(std::move(options));
  test_of (*find_rule(request.rules.front()))(trial);
  trial.pass();
  return 0;
}

}  // namespace tutti::tools::plugin_test
