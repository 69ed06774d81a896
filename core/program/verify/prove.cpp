// SPDX-License-Identifier: Apache-2.0
#include "program/verify/prove.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "program/passes/order_strands.h"
#include "program/repeat.h"
#include "program/verify/images.h"
#include "program/verify/order.h"
#include "program/verify/races.h"
#include "program/verify/waits.h"

namespace tutti::program {
namespace {

Verdict undecided(std::string why) {
  return {{Code::kUnsupported, std::move(why)}, false, {}};
}

std::string too_many(uint64_t limit, std::string_view what) {
  return fmt::format("an exact proof handles up to {} {} of all ranks, and there are more", limit, what);
}

/// The proof by rotation.
class ByRotation {
 public:
  ByRotation(uint32_t rank_count, const PlanSource& source, const VerifyOptions& options, const ProofLimits& limits)
      : rank_count_(rank_count), source_(source), options_(options), limits_(limits) {}

  Verdict run(std::optional<StepPlace>* place) {
    const auto rotation = common_rotation(rank_count_, source_, limits_);
    if (rotation.status().code() == Code::kUnsupported) return undecided(std::string(rotation.status().text()));
    if (!rotation.ok()) return {rotation.status(), true, {}};
    rotation_ = *rotation;
    Result<Plan> zero = source_(0);
    if (!zero.ok()) return {zero.status(), true, {}};
    if (const Status head = check_head(*zero); !head.ok()) return {head, true, {}};
    Extent extent;
    extent.add(*zero);
    if (std::max(extent.messages, extent.steps) > limits_.messages_of_rank) {
      return undecided(
          fmt::format("a proof by rotation handles up to {} sends, receives and steps of a rank, and there "
                      "are more",
                      limits_.messages_of_rank));
    }
    Result<Plan> plan = unroll(*std::move(zero));
    if (!plan.ok()) return undecided(std::string(plan.status().text()));
    return plan->strands.empty() ? follow(*plan, {}, place) : follow_strands(*plan, place);
  }

 private:
  Status check_head(const Plan& zero) const {
    const auto wrong = [](std::string text) { return Status(Code::kInvalidArgument, std::move(text)); };
    if (zero.rank != 0) return wrong(fmt::format("plan 0: rank is {}, expected 0", zero.rank));
    if (zero.rank_count != rank_count_) {
      return wrong(fmt::format("plan 0: rank_count is {}, expected {}", zero.rank_count, rank_count_));
    }
    return validate(zero.view()).with_context("rank 0");
  }

  Verdict follow_strands(const Plan& zero, std::optional<StepPlace>* place) const {
    const Status raceless = check_races({&zero, 1}, options_.in_place, place);
    if (!raceless.ok()) return {raceless, true, {}};
    const auto order = order_strands_of_rotation(zero, place);
    if (!order.ok()) return {order.status(), true, {}};
    const auto listed = in_order(zero, *order);
    if (!listed.ok()) return undecided(std::string(listed.status().text()));
    return follow(listed->plan, {&listed->numbers, 1}, place);
  }

  Verdict follow(const Plan& zero, StepNumbers numbers, std::optional<StepPlace>* place) const {
    const auto failed = [&](const Status& status, const Run& run) {
      if (place != nullptr) *place = run.failed_at();
      return Verdict{status, true, {}};
    };
    const std::span plans(&zero, 1);
    const Connections connections = Connections::of_rotation(zero);
    Contents contents(plans, connections, options_.in_place, rotation_);
    contents.number_by(numbers);
    Status status = contents.finish();
    if (status.ok()) status = contents.check_outputs();
    if (contents.is_undecided()) return undecided(std::string(status.text()));
    if (!status.ok()) return failed(status, contents);
    Waits waits(plans, connections, options_.slots, Waits::kLoops);
    waits.number_by(numbers);
    status = waits.finish().with_context(fmt::format("with {} slot(s)", options_.slots));
    if (!status.ok()) return failed(status, waits);
    return {{}, true, "by rotation"};
  }

  uint32_t rank_count_;
  const PlanSource& source_;
  const VerifyOptions& options_;
  const ProofLimits& limits_;
  std::optional<Rotation> rotation_;
};

Verdict prove_exactly(uint32_t rank_count, const PlanSource& source, const VerifyOptions& options,
                      std::optional<StepPlace>* place) {
  const auto plans = unrolled(rank_count, source);
  if (plans.status().code() == Code::kUnsupported) return undecided(std::string(plans.status().text()));
  if (!plans.ok()) return {plans.status(), true, {}};
  bool is_undecided = false;
  Status status = verify(*plans, options, place, &is_undecided);
  return {std::move(status), !is_undecided, "exactly"};
}

/// The proof by rotation where ranks have other numbers than their positions along a ring.
Verdict prove_along_ring(uint32_t rank_count, const PlanSource& source, const VerifyOptions& options,
                         const ProofLimits& limits) {
  const auto positions = positions_on_cycle(rank_count, source);
  if (!positions.ok()) return undecided(std::string(positions.status().text()));
  const PlanSource along = along_ring(source, *positions);
  Verdict verdict = ByRotation(rank_count, along, options, limits).run(nullptr);
  if (verdict.status.code() == Code::kUnsupported) verdict.decided = false;
  if (!verdict.status.ok()) {
    verdict.status = verdict.status.with_context("with ranks numbered along the ring from rank 0");
  } else {
    verdict.how = "by rotation along a ring";
  }
  return verdict;
}

}  // namespace

Result<std::vector<Plan>> unrolled(uint32_t rank_count, const PlanSource& source) {
  std::vector<Plan> plans;
  plans.reserve(rank_count);
  for (uint32_t rank = 0; rank < rank_count; ++rank) {
    TUTTI_ASSIGN(Plan plan, source(rank));
    TUTTI_ASSIGN(plans.emplace_back(), unroll(std::move(plan)));
  }
  return plans;
}

Result<std::string> why_not_exact(uint32_t rank_count, const PlanSource& source, const ProofLimits& limits) {
  Extent extent;
  for (uint32_t rank = 0; rank < rank_count; ++rank) {
    TUTTI_ASSIGN(const Plan plan, source(rank));
    extent.add(plan);
    if (std::string why = extent.why_not_exact(limits); !why.empty()) return why;
  }
  return std::string();
}

PlanSource source_of(std::span<const Plan> plans) {
  return [plans](uint32_t rank) -> Result<Plan> { return plans[rank]; };
}

void Extent::add(const Plan& plan) {
  entries += plan.steps.size() + plan.peers.size() + plan.waits.size() * plan.strands.size();
  chunks += uint64_t{plan.output_chunks()} + plan.scratch_chunks;
  size_t repeat = 0;
  for (size_t s = 0; s < plan.steps.size(); ++s) {
    const tutti_plan_step& step = plan.steps[s];
    while (repeat < plan.repeats.size() &&
           s >= size_t{plan.repeats[repeat].first_step} + plan.repeats[repeat].step_count) {
      ++repeat;
    }
    const bool repeats = repeat < plan.repeats.size() && s >= plan.repeats[repeat].first_step;
    const uint64_t rounds = repeats ? plan.repeats[repeat].rounds : 1;
    steps += rounds * plan.range(step).count;
    messages += rounds * plan.range(step).count * (uint64_t{step.recv_count} + step.send_count);
  }
}

std::string Extent::why_not_exact(const ProofLimits& limits) const {
  if (messages > limits.messages) return too_many(limits.messages, "sends and receives");
  if (steps > limits.messages) return too_many(limits.messages, "steps");
  return chunks > limits.chunks ? too_many(limits.chunks, "chunks") : std::string();
}

Verdict prove(uint32_t rank_count, const PlanSource& source, const VerifyOptions& options, const ProofLimits& limits,
              std::optional<StepPlace>* place) {
  const Status possible = check_options(options, source, rank_count);
  if (!possible.ok()) return {possible, true, {}};
  const auto too_large = why_not_exact(rank_count, source, limits);
  if (!too_large.ok()) return {too_large.status(), true, {}};
  if (rank_count <= kExactRanks && too_large->empty()) return prove_exactly(rank_count, source, options, place);
  Verdict rotated = ByRotation(rank_count, source, options, limits).run(place);
  if (rotated.decided) return rotated;
  Verdict along = prove_along_ring(rank_count, source, options, limits);
  // Where an exact proof is possible, its counter-example has the numbers of the ranks.
  if (along.decided && (along.status.ok() || !too_large->empty())) return along;
  if (!too_large->empty()) return undecided(fmt::format("{}; {}", *too_large, rotated.status.text()));
  return prove_exactly(rank_count, source, options, place);
}

namespace {

/// Each text once, at its first place.
void keep_first(std::vector<CounterExample>& all) {
  std::set<std::string> known;
  std::erase_if(all, [&](const CounterExample& fault) { return !known.insert(fault.text).second; });
}

/// The counter-examples of a run of plans without strands.
Status add_faults(std::span<const Plan> plans, StepNumbers numbers, const VerifyOptions& options,
                  std::vector<CounterExample>& all) {
  const Connections connections(plans);
  Contents contents(plans, connections, options.in_place);
  contents.number_by(numbers);
  contents.note_in(&all);
  const Status finished = contents.finish();
  if (!finished.ok()) {
    all.push_back({contents.failed_at(), std::string(finished.text())});
    // These are the likely causes of all other counter-examples.
    const std::vector<CounterExample> found = unmatched(plans, connections, numbers);
    all.insert(all.begin(), found.begin(), found.end());
    return contents.all_ended() ? contents.check_outputs() : Status();
  }
  TUTTI_TRY(contents.check_outputs());
  Waits waits(plans, connections, options.slots, Waits::kLoops);
  waits.number_by(numbers);
  const Status waited = waits.finish().with_context(fmt::format("with {} slot(s)", options.slots));
  if (!waited.ok()) all.push_back({waits.failed_at(), std::string(waited.text())});
  return {};
}

}  // namespace

Result<std::vector<CounterExample>> counter_examples(std::span<const Plan> plans, const VerifyOptions& options,
                                                     const ProofLimits& limits) {
  const PlanSource source = source_of(plans);
  const auto rank_count = static_cast<uint32_t>(plans.size());
  TUTTI_TRY(check_options(options, source, rank_count));
  TUTTI_ASSIGN(const std::string too_large, why_not_exact(rank_count, source, limits));
  if (!too_large.empty()) return Status(Code::kUnsupported, too_large);
  TUTTI_ASSIGN(const std::vector<Plan> written_out, unrolled(rank_count, source));
  TUTTI_TRY(check_set(written_out));
  std::vector<CounterExample> all;
  if (!any_strands(written_out)) {
    TUTTI_TRY(add_faults(written_out, {}, options, all));
    keep_first(all);
    return all;
  }
  for (const Plan& plan : written_out) {
    const std::vector<CounterExample> found = races(plan, options.in_place);
    all.insert(all.end(), found.begin(), found.end());
  }
  std::optional<StepPlace> place;
  const auto listed = in_one_strand(written_out, &place);
  if (listed.ok()) {
    TUTTI_TRY(add_faults(listed->plans, listed->numbers, options, all));
  } else {
    all.push_back({place, std::string(listed.status().text())});
  }
  keep_first(all);
  return all;
}

}  // namespace tutti::program
