// SPDX-License-Identifier: Apache-2.0
// The pass `fit_slots`: an order of steps in which no connection holds more messages than it has slots.
//
// Finds    the places at which ranks wait for each other for ever, because all of them have more messages to send than
//          connections have slots.
// Assumes  the plans of all ranks of one channel, proved with any number of slots. They have neither repeats nor
//          strands nor messages of several chunks, and no step that gathers or scatters both sends and receives
//          (split_messages).
// Changes  the order of steps, at these places alone. The pass runs all plans in order. If no rank can go on, each rank
//          that waits for a slot takes the next step that does not have to wait. The step may be before others if they
//          touch no chunk that one of them writes, and if the order of messages on each connection stays. So plans
//          whose messages fit stay as they are. The list of steps that results is the order of a run: it does not
//          deadlock, because the outcome of a run does not depend on which rank advances first.
#pragma once

#include <vector>

#include "program/plan.h"

namespace tutti::program {

/// Messages of one chunk that every connection between GPUs has room for.
inline constexpr uint32_t kLeastSlots = 2;

/// The plans of all ranks, by rank, in an order for `slots` messages on each connection, from 1. Input and output may
/// share memory as the collective allows. Fails (kUnsupported) if there is no such order: the text names a rank, its
/// step, and the peer that it waits for.
Result<std::vector<Plan>> fit_slots(std::vector<Plan> plans, uint32_t slots);

/// The same for plans with messages of several chunks, after split_messages(), whose failures it returns, too.
Result<std::vector<Plan>> split_and_fit(std::vector<Plan> plans, uint32_t slots);

}  // namespace tutti::program
