// SPDX-License-Identifier: Apache-2.0
#include "tuner/plan_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "log/log.h"
#include "program/in_one_strand.h"
#include "program/lower_strands.h"
#include "program/passes/split_messages.h"
#include "program/repeat.h"
#include "tuner/selector.h"

namespace tutti::tuner {
namespace {

Result<std::vector<program::Plan>> first_plan(const Algorithm& algorithm, const tutti_plan_request& request) {
  std::vector<program::Plan> plans;
  TUTTI_ASSIGN(plans.emplace_back(), program::collect(*algorithm.ops, algorithm.instance.get(), request));
  return plans;
}

/// Why the back end runs the strands of these plans as lists.
Result<std::string> why_lists(const BackEnd& back_end, const std::vector<program::Plan>& rolled) {
  std::vector<program::Plan> plans;
  for (const program::Plan& plan : rolled) {
    TUTTI_ASSIGN(plans.emplace_back(), program::unroll(plan));
  }
  return back_end.why_lists(plans);
}

/// The plans of all ranks as lists. Notes in the answer how the back end runs their strands.
Result<std::vector<program::Plan>> all_plans(const Algorithm& algorithm, const tutti_plan_request& request,
                                             const Choices& choices, PlanCheck::Answer& answer) {
  TUTTI_ASSIGN(const std::vector<program::Plan> rolled,
               program::collect_all_rolled(*algorithm.ops, algorithm.instance.get(), request, choices.ranks));
  TUTTI_ASSIGN(std::vector<program::Plan> lists, program::all_in_one_strand(choices.ranks, program::source_of(rolled)));
  if (!program::any_strands(rolled)) return lists;
  answer.most_strands = std::max(answer.most_strands, program::most_strands(rolled));
  if (!answer.why_lists.empty()) return lists;
  TUTTI_ASSIGN(answer.why_lists, why_lists(*choices.back_end, rolled));
  return lists;
}

/// All roots, if kMostPlans permits a plan for each root and rank. Else roots at even distances with both ends.
std::vector<uint32_t> roots_to_check(uint32_t ranks) {
  constexpr uint32_t kMostPlans = 64 * 64;  // of a channel
  const uint32_t count = std::clamp(kMostPlans / ranks, std::min(ranks, 2u), ranks);
  std::vector<uint32_t> roots(count, 0);
  for (uint32_t i = 1; i < count; ++i) {
    roots[i] = static_cast<uint32_t>(uint64_t{i} * (ranks - 1) / (count - 1));
  }
  return roots;
}

}  // namespace

PlanCheck::Answer PlanCheck::answer(uint32_t algorithm, uint32_t variant, Collective collective) {
  const std::lock_guard lock(mutex_);
  const auto [answer, is_new] = answers_.try_emplace({algorithm, variant, collective});
  if (!is_new) return answer->second;
  answer->second = ask(algorithm, variant, collective);
  if (!answer->second.why_not.empty()) {
    const Algorithm& asked = choices_.algorithms[algorithm];
    log::info("{}{}{} does not run {}: {}", asked.name, asked.variants[variant].name.empty() ? "" : "/",
              asked.variants[variant].name, to_string(collective), answer->second.why_not);
  }
  return answer->second;
}

/// The decision about a call does not depend on its root, so the plans of several roots are looked at.
PlanCheck::Answer PlanCheck::ask(uint32_t algorithm, uint32_t variant, Collective collective) const {
  const bool has_roots = choices_.back_end != nullptr && program::has_root(collective);
  Answer answer;
  for (const uint32_t root : has_roots ? roots_to_check(choices_.ranks) : std::vector<uint32_t>{0}) {
    if (answer.why_not.empty()) ask_for_root(algorithm, variant, collective, root, answer);
  }
  if (!answer.why_not.empty()) answer.why_not_small.clear();
  return answer;
}

/// An algorithm declines for all ranks and channels (tutti/plugin/algorithm.h), so one plan tells. The limits of a back
/// end may be exceeded by a single rank, as a tree's inner ranks have more steps than its leaves.
void PlanCheck::ask_for_root(uint32_t algorithm, uint32_t variant, Collective collective, uint32_t root,
                             Answer& answer) const {
  const Algorithm& asked = choices_.algorithms[algorithm];
  const BackEnd* const back_end = choices_.back_end;
  for (uint32_t channel = 0; channel < (back_end != nullptr ? asked.channels : 1); ++channel) {
    const tutti_plan_request request{
        sizeof(tutti_plan_request), static_cast<uint32_t>(collective), 0, channel, root, variant};
    const auto plans = back_end != nullptr ? all_plans(asked, request, choices_, answer) : first_plan(asked, request);
    if (plans.status().code() == Code::kUnsupported) {
      answer.why_not = fmt::format("its plan cannot be made: {}", plans.status().text());
      return;
    }
    if (!plans.ok()) return;  // a broken plugin: the call that uses it fails with the reason
    if (back_end == nullptr) continue;
    for (const program::Plan& plan : *plans) {
      answer.why_not = back_end->runs(plan).text();
      if (!answer.why_not.empty()) return;
      if (answer.why_not_small.empty()) answer.why_not_small = back_end->runs_small(plan).text();
    }
    const Status together = back_end->runs_together(*plans);
    if (together.code() != Code::kUnsupported) continue;  // fine, or wrong: the proof gives the reason
    answer.why_not = together.text();
    return;
  }
}

}  // namespace tutti::tuner
