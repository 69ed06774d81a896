// SPDX-License-Identifier: Apache-2.0
#include "program/verify/verify.h"

#include <fmt/format.h>

#include <algorithm>

#include "program/passes/order_strands.h"
#include "program/repeat.h"
#include "program/verify/contents.h"
#include "program/verify/races.h"
#include "program/verify/waits.h"

namespace tutti::program {

Status check_set(std::span<const Plan> plans) {
  if (plans.empty()) return {Code::kInvalidArgument, "there is no plan to verify"};
  const Plan& first = plans[0];
  for (uint32_t rank = 0; rank < plans.size(); ++rank) {
    const Plan& plan = plans[rank];
    const auto differ = [&](const char* field, uint64_t value, uint64_t expected) {
      if (value == expected) return Status();
      return Status(Code::kInvalidArgument,
                    fmt::format("plan {}: {} is {}, expected {}", rank, field, value, expected));
    };
    TUTTI_TRY(differ("rank_count", plan.rank_count, plans.size()));
    TUTTI_TRY(differ("rank", plan.rank, rank));
    TUTTI_TRY(differ("collective", static_cast<uint32_t>(plan.collective), static_cast<uint32_t>(first.collective)));
    TUTTI_TRY(differ("root", plan.root, first.root));
    TUTTI_TRY(differ("channel", plan.channel, first.channel));
    TUTTI_TRY(differ("chunks", plan.chunks, first.chunks));
    TUTTI_TRY(differ("message_chunks", plan.message_chunks, first.message_chunks));
    TUTTI_TRY(validate(plan.view()).with_context(fmt::format("rank {}", rank)));
  }
  return {};
}

Status check_options(const VerifyOptions& options, const PlanSource& source, uint32_t rank_count) {
  if (rank_count == 0) return {Code::kInvalidArgument, "there is no plan to verify"};
  if (options.slots == 0) return {Code::kInvalidArgument, "slots: a connection has at least one"};
  if (!options.in_place) return {};
  TUTTI_ASSIGN(const Plan first, source(0));
  if (first.collective != Collective::kAllToAll) return {};
  return {Code::kUnsupported, "all_to_all does not run in place: pass different input and output buffers"};
}

Status check_races(std::span<const Plan> plans, bool in_place, std::optional<StepPlace>* place) {
  for (const Plan& plan : plans) {
    const std::vector<CounterExample> found = races(plan, in_place);
    if (found.empty()) continue;
    if (place != nullptr) *place = found.front().place;
    return {Code::kFailedPrecondition, found.front().text};
  }
  return {};
}

Status verify(std::span<const Plan> all_ranks, const VerifyOptions& options, std::optional<StepPlace>* place,
              bool* is_undecided) {
  const auto placed = [&](Status verdict, const Run& run) {
    if (!verdict.ok() && place != nullptr) *place = run.failed_at();
    return verdict;
  };
  const auto rolled = [](const Plan& plan) { return !plan.repeats.empty(); };
  std::vector<Plan> written_out;
  if (std::any_of(all_ranks.begin(), all_ranks.end(), rolled)) {
    for (const Plan& plan : all_ranks) {
      TUTTI_ASSIGN(written_out.emplace_back(), unroll(plan));
    }
    all_ranks = written_out;
  }
  TUTTI_TRY(check_set(all_ranks));
  TUTTI_TRY(check_options(options, source_of(all_ranks), static_cast<uint32_t>(all_ranks.size())));
  OneStrandSet listed;
  if (any_strands(all_ranks)) {
    TUTTI_TRY(check_races(all_ranks, options.in_place, place));
    TUTTI_ASSIGN(listed, in_one_strand(all_ranks, place));
    all_ranks = listed.plans;
  }
  const Connections connections(all_ranks);
  Contents contents(all_ranks, connections, options.in_place);
  contents.number_by(listed.numbers);
  const Status finished = contents.finish();
  if (is_undecided != nullptr) *is_undecided = contents.is_undecided();
  TUTTI_TRY(placed(finished, contents));
  TUTTI_TRY(placed(contents.check_outputs(), contents));
  Waits waits(all_ranks, connections, options.slots, Waits::kLoops);
  waits.number_by(listed.numbers);
  return placed(waits.finish(), waits).with_context(fmt::format("with {} slot(s)", options.slots));
}

}  // namespace tutti::program
