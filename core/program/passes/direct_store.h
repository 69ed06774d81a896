// SPDX-License-Identifier: Apache-2.0
// The pass `direct_store`: messages that need no slots, because their senders store them where their receivers would.
//
// Finds    each message that its receiver writes to its output unchanged, and whose destination the receiver no longer
//          uses when the message is sent. The messages that led to a message prove this (vector clocks).
// Assumes  the programs of all ranks of one channel, lowered from the plans of all ranks; outputs that are registered
//          on all ranks; a chunk that no earlier step touches is free when the receiver's call begins. Each rank may
//          use its buffers in place or not: a mark permits both.
// Changes  the peers of these messages, at both ends: `to_output`; at the sender, the block and chunk of the output.
#pragma once

#include <set>
#include <span>

#include "program/plan.h"
#include "program/program.h"
#include "tutti/plugin/cuda.h"
#include "tutti/status.h"

namespace tutti::program {

/// Marks messages for direct stores in a channel's programs, by rank, lowered from `plans`. kInvalidArgument: the ranks
/// would wait for each other forever (the plans were not proved).
Status store_directly(std::span<const Plan> plans, std::span<Program> programs);

/// Whether a program sends or receives any.
bool uses_outputs(const Program& program);

/// Ranks whose messages a program receives in slots, and to whose slots it sends.
struct SlotPeers {
  std::set<uint32_t> senders;
  std::set<uint32_t> receivers;
};
SlotPeers slot_peers(const Program& program);

}  // namespace tutti::program
