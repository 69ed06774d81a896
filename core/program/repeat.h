// SPDX-License-Identifier: Apache-2.0
// Plans with repeats: their size, and the pass `unroll`, which writes the repeats out.
//
// Finds    the numbers of each step in each round: its own, with the growth of the step added, modulo the number of
//          ranks or of chunks.
// Assumes  a valid plan (program/plan.h).
// Changes  the form: the result has one step for each step of each round, and no repeat. It sends and receives the
//          same. Its strands have the same steps, and each step waits for the steps that it waited for.
#pragma once

#include "program/plan.h"

namespace tutti::program {

/// The plan with its repeats written out: one step for each step of each round. A plan without repeats stays as it is.
/// Fails (kUnsupported) if the steps then name more different peers than a plan can.
Result<Plan> unroll(Plan plan);

/// The same for the first `count` steps of the written-out plan, or for all if it has fewer. The plan has no strands.
Result<Plan> unroll_first(const Plan& plan, uint64_t count);

/// Number of steps that a loop of the plan runs.
uint64_t unrolled_steps(const Plan& plan);

/// A step of a plan with repeats, and its round.
struct RolledStep {
  uint32_t step = 0;
  uint32_t round = 0;
};
/// The place of step `index` of unroll(plan) in the plan.
RolledStep rolled_step(const Plan& plan, uint32_t index);

/// One step in one round: the numbers of the step with its growth added. `peers` has the peers that the step receives
/// from, and then those that it sends to; the step's ranges are those of `peers`.
struct StepInRound {
  tutti_plan_step step;
  std::vector<tutti_plan_peer> peers;
};
StepInRound in_round(const Plan& plan, RolledStep place);

/// Memory of the plan's lists and of its head.
uint64_t size_bytes(const Plan& plan);

}  // namespace tutti::program
