// SPDX-License-Identifier: Apache-2.0
// The pass `split_messages`: messages of several chunks as messages of one chunk each, for devices that move one range
// of memory per message.
//
// Finds    the steps with a list of chunks, and the gather and scatter steps that both send and receive.
// Assumes  a plan without repeats and strands. All ranks run the pass if one does: `message_chunks` is the same on all.
//          Then both ends of a message have the same number of chunks, and still agree on the order of messages.
// Changes  the steps. A step that folds k chunks becomes k steps. Chunk i that is read and chunk j that is written
//          share memory only if i = j, so the order of these steps makes no difference. A gather or scatter step
//          becomes k steps that send and copy, then k steps that receive: its sends do not wait for its receives. The
//          number of messages on a connection grows. So a plan that fits the slots before the pass may need the pass
//          fit_slots after it.
#pragma once

#include "program/plan.h"

namespace tutti::program {

/// Whether plans have messages of several chunks. The same for the plans of all ranks.
inline bool has_long_messages(const Plan& plan) {
  return plan.message_chunks > 1;
}

/// The plan with one chunk in each step and message. Fails (kUnsupported) if its steps then have more peers than a plan
/// can name.
Result<Plan> split_messages(const Plan& plan);

}  // namespace tutti::program
