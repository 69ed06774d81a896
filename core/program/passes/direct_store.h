// SPDX-License-Identifier: Apache-2.0
// Messages that need no slots: where outputs are registered, senders store them where their receivers would.
#pragma once

#include <span>

#include "program/plan.h"
#include "tutti/plugin/cuda.h"

namespace tutti::program {

/// Marks messages for direct stores in a channel's programs, by rank, lowered from `plans`. A message qualifies if two
/// conditions hold. First, its receiver writes it to its output unchanged. Second, when it is sent, the receiver no
/// longer uses the destination, and the messages that led to this message prove this. A chunk that no earlier step
/// touches is free when the receiver's call begins. Ranks may differ in whether they use their buffers in place: marked
/// messages permit both.
void send_to_outputs(std::span<const Plan> plans, std::span<tutti_cuda_program> programs);

/// Whether a program sends or receives any.
bool uses_outputs(const tutti_cuda_program& program);

/// Ranks, as bits 1 << rank, whose messages a program receives in slots, and to whose slots it sends.
struct SlotPeers {
  uint32_t senders = 0;
  uint32_t receivers = 0;
};
SlotPeers slot_peers(const tutti_cuda_program& program);

}  // namespace tutti::program
