// SPDX-License-Identifier: Apache-2.0
// Sends, receives and own copies, laid out as one launch of a GPU.
//
// A message is cut into lanes, each a connection of its own, by its size: so both ends know of how many. A launch has
// fewer CTAs than its messages have lanes, so that it leaves room for other kernels: those that send and those that
// receive take lanes in turn, in order of the distance between ranks and then of lanes. All ranks have the same order,
// and no CTA both sends and receives; so the least pair of a sent and a received lane that is not over is on at both
// ends, whatever the group is like, and nobody waits for ever.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "plan/plan.h"
#include "tutti/plugin/cuda.h"
#include "tutti/plugin/protocol.h"
#include "tutti/status.h"

namespace tutti::plan {

/// At most one per peer and direction.
struct Message {
  uint32_t kind = TUTTI_CUDA_SEND;
  uint32_t peer = 0;
  uint64_t bytes = 0;  ///< > 0
  uint32_t lanes = 1;
};

/// Fills the launch's messages, less their buffers, and its CTAs: at most `most_ctas` (a multiple of
/// TUTTI_CUDA_CLUSTER) of each kind. Returns where each message went. Fails (kUnsupported) where they are more than a
/// launch holds. The launch's rank and rank_count are set.
Result<std::vector<uint32_t>> lay_out(std::span<const Message> messages, const tutti_slot_layout& layout,
                                      uint32_t most_ctas, tutti_cuda_launch& launch);

/// A block that a plan moves.
struct Hop {
  uint32_t kind = TUTTI_CUDA_SEND;
  uint32_t peer = 0;
  uint32_t from = 0;  ///< block of the input
  uint32_t to = 0;    ///< block of the output
};

/// What a plan does that goes from peer to peer: one at a time, each block in one hop. Nothing: it is not such a plan,
/// or none of a collective in which all ranks have the same part. Other ranks' plans may be different.
std::optional<std::vector<Hop>> hops_of(const Plan& plan);

}  // namespace tutti::plan
