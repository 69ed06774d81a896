// SPDX-License-Identifier: Apache-2.0
// The pass `overlap_loops`: stages, by which kernels run steps of several loops at the same time. In wave w, a step of
// stage s handles loop w - s.
//
// Finds    the earliest stage of each step: it receives data that was sent in an earlier wave, and is in no earlier
//          stage than the steps before it. The lag of a message is the number of waves between its send and its
//          receive.
// Assumes  the programs of all ranks and channels of a call, from plans that are proved, after even_messages()
//          (number_messages.h).
// Changes  `stages`, `lag`, the stages of steps and the lags of peers. If loops cannot overlap, all of them are as if
//          there was one stage. Loops do not overlap in these cases:
//          - The kernels of the protocol overlap no loops, or no rank sends a message.
//          - A program has strands: a strand overlaps its loops with loops of other strands.
//          - There are more than 64 stages, or the messages of a connection have different lags.
//          - The slots cannot hold the messages that are then under way.
#pragma once

#include "program/passes/number_messages.h"
#include "program/program.h"
#include "tutti/plugin/protocol.h"

namespace tutti::program {

/// Finds the stages of all programs of a call, for connections of this layout.
void overlap_loops(Programs& programs, const tutti_slot_layout& layout);

/// Slots that a chunk of a program may fill after this pass. 0: loops that overlap have more messages under way than
/// slots.
uint32_t chunk_slots(const Program& program, const tutti_slot_layout& layout);

}  // namespace tutti::program
