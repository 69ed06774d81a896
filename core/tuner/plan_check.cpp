// SPDX-License-Identifier: Apache-2.0
#include "tuner/plan_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "log/log.h"
#include "program/cache.h"
#include "program/in_one_strand.h"
#include "program/lower_strands.h"
#include "program/passes/split_messages.h"
#include "program/repeat.h"
#include "program/verify/prove.h"
#include "program/verify/rotation.h"
#include "tuner/selector.h"

namespace tutti::tuner {
namespace {

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
  const Algorithm& asked = choices_.algorithms[algorithm];
  const tutti_plan_request request{
      sizeof(tutti_plan_request), static_cast<uint32_t>(collective), /*rank=*/0, /*channel=*/0, /*root=*/0, variant};
  Answer answer;
  const auto zero = program::collect_rolled(*asked.ops, asked.instance.get(), request);
  Status made = zero.status();
  if (zero.ok() && choices_.back_end == nullptr && !zero->repeats.empty()) made = program::unroll(*zero).status();
  if (made.code() == Code::kUnsupported) answer.why_not = fmt::format("its plan cannot be made: {}", made.text());
  if (!made.ok()) return answer;  // a broken plugin: the call that uses it fails with the reason
  answer.chunks = zero->chunks;
  answer.message_chunks = zero->message_chunks;
  answer.why_not = why_not_proved(asked, request, *zero);
  if (choices_.back_end == nullptr) return answer;
  const bool has_roots = program::has_root(collective);
  for (const uint32_t root : has_roots ? roots_to_check(choices_.ranks) : std::vector<uint32_t>{0}) {
    if (answer.why_not.empty()) ask_for_root(algorithm, variant, collective, root, answer);
  }
  if (!answer.why_not.empty()) answer.why_not_small.clear();
  return answer;
}

/// Estimates the size of the plans from the plan of rank 0. If they may be large, looks at three ranks, and then for a
/// proof. Each plan takes time at the start of a job.
std::string PlanCheck::why_not_proved(const Algorithm& algorithm, const tutti_plan_request& request,
                                      const program::Plan& zero) const {
  const uint32_t ranks = choices_.ranks;
  if (!choices_.proves_plans || ranks <= program::kExactRanks) return {};
  const auto fits = [ranks](program::Extent extent, double share) {
    for (uint64_t* const size : {&extent.messages, &extent.steps, &extent.chunks}) {
      *size = static_cast<uint64_t>(static_cast<double>(*size) * ranks * share);
    }
    return extent.why_not_exact({}).empty();
  };
  program::Extent of_zero;
  of_zero.add(zero);
  constexpr double kMargin = 1.5;  // for ranks with more steps than rank 0
  if (fits(of_zero, kMargin)) return {};
  const program::PlanSource source = [&](uint32_t rank) {
    tutti_plan_request of_rank = request;
    of_rank.rank = rank;
    return program::collect_rolled(*algorithm.ops, algorithm.instance.get(), of_rank);
  };
  const auto one = source(1);
  const auto last = source(ranks - 1);
  if (!one.ok() || !last.ok()) return {};  // the call fails with the reason
  program::Extent of_three = of_zero;
  of_three.add(*one);
  of_three.add(*last);
  if (fits(of_three, 1.0 / 3)) return {};
  const auto rotation = program::find_rotation(zero, *one);
  if (rotation && program::differs_from_image(*rotation, zero, *last).empty()) return {};
  const program::Verdict verdict = program::prove(ranks, source, {.slots = 2});
  if (verdict.decided) return {};
  return fmt::format("its plan cannot be proved on {} ranks (check.plans): {}", ranks, verdict.status.text());
}

/// An algorithm declines for all ranks and channels (tutti/plugin/algorithm.h), so one plan tells. The limits of a back
/// end may be exceeded by a single rank, as a tree's inner ranks have more steps than its leaves.
void PlanCheck::ask_for_root(uint32_t algorithm, uint32_t variant, Collective collective, uint32_t root,
                             Answer& answer) const {
  const Algorithm& asked = choices_.algorithms[algorithm];
  const BackEnd* const back_end = choices_.back_end;
  program::Fingerprint before;  // of the plans of the channel before, but for the number of the channel
  for (uint32_t channel = 0; channel < asked.channels; ++channel) {
    const tutti_plan_request request{
        sizeof(tutti_plan_request), static_cast<uint32_t>(collective), 0, channel, root, variant};
    const auto plans = all_plans(asked, request, choices_, answer);
    if (plans.status().code() == Code::kUnsupported) {
      answer.why_not = fmt::format("its plan cannot be made: {}", plans.status().text());
      return;
    }
    if (!plans.ok()) return;  // a broken plugin: the call that uses it fails with the reason
    for (const program::Plan& plan : *plans) {
      answer.why_not = back_end->runs(plan).text();
      if (!answer.why_not.empty()) return;
      if (answer.why_not_small.empty()) answer.why_not_small = back_end->runs_small(plan).text();
    }
    const program::Fingerprint print = program::fingerprint(*plans);
    if (channel > 0 && print == before) continue;
    before = print;
    const Status together = back_end->runs_together(*plans);
    if (together.code() != Code::kUnsupported) continue;  // fine, or wrong: the proof gives the reason
    answer.why_not = together.text();
    return;
  }
}

}  // namespace tutti::tuner
