// SPDX-License-Identifier: Apache-2.0
// The pass `order_strands`: the strands of plans as one list of steps, for devices that run one strand.
//
// Finds    the earliest time of each step if the strands of all ranks run beside each other. A step takes one unit of
//          time, and so do a message, a slot that becomes free, and a wait. The pass takes 1, 2, 4, ... slots for each
//          connection, until no strand waits for ever.
// Assumes  valid plans of all ranks without repeats. If the plans are images of each other under a rotation, the plan
//          of rank 0 is enough: all ranks advance in step.
// Changes  the order of the steps: by time, and at equal times by strand. Strands and waits are gone. A gather or
//          scatter step becomes two steps, one that sends and one that receives, where another strand has a step
//          between the two.
//
// The list does not deadlock. A step is later than each step that it depends on: the step before it in its strand, the
// steps that it waits for, the sender of each of its messages, and the receiver that frees its slot. So all ranks can
// run all steps in the order of times, and the lists have this order. A rank only waits and never chooses. Each
// connection has one strand at either end. So a step that can run stays able to run, whatever other strands do. All
// runs of the same plans then end alike: if one run ends, no run deadlocks.
//
// Hence strands that run beside each other do not deadlock if the lists do not: a run of the lists is also a run of the
// strands. The reverse holds for as many slots as the pass takes, if no message goes in parts. The parts of long
// messages may let exchanges of the lists wait for each other, where strands do not (program/verify/run.h). Proofs
// refuse such plans. A loop leaves no message behind, so what holds for one loop holds for loops one after the other,
// and strands that begin a loop early only wait less.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "program/plan.h"
#include "program/verify/verify.h"

namespace tutti::program {

/// The order of the steps of one plan.
struct StrandOrder {
  /// A step, or the half of a gather or scatter step that sends or that receives.
  struct Part {
    uint32_t step;
    bool sends;
    bool receives;
    uint32_t time;  ///< at which the part can run
  };
  std::vector<Part> parts;
};

/// The order for the plans of all ranks, by rank. Fails (kFailedPrecondition) if the strands deadlock, with any number
/// of slots; `place` is then set to the first step that waits.
Result<std::vector<StrandOrder>> order_strands(std::span<const Plan> plans, std::optional<StepPlace>* place = nullptr);
/// The order for each rank, where all ranks run the plan of rank 0, moved by their rank.
Result<StrandOrder> order_strands_of_rotation(const Plan& zero, std::optional<StepPlace>* place = nullptr);

/// A plan without strands.
struct OneStrand {
  Plan plan;
  std::vector<uint32_t> numbers;  ///< by step: its number in the plan with strands
};
/// Fails (kUnsupported) where copy() does.
Result<OneStrand> in_order(const Plan& plan, const StrandOrder& order);

/// The plans of all ranks without strands.
struct OneStrandSet {
  std::vector<Plan> plans;
  std::vector<std::vector<uint32_t>> numbers;  ///< by rank and step: its number in the plan with strands
};
Result<OneStrandSet> in_one_strand(std::span<const Plan> plans, std::optional<StepPlace>* place = nullptr);

/// Whether a plan of the set has strands.
bool any_strands(std::span<const Plan> plans);

}  // namespace tutti::program
