// SPDX-License-Identifier: Apache-2.0
// Sends, receives and own copies, laid out as one launch of a GPU.
//
// A message is cut into stripes, each with a connection of its own, by its size: so both ends know their
// number. A launch has fewer CTAs than its messages have stripes, so that it leaves room for other kernels. CTAs that
// send and CTAs that receive take stripes in turn, in the order of the distance between ranks, then of stripes. All
// ranks have the same order, and no CTA both sends and receives. The lowest unfinished stripe is therefore active on
// both peers, and there is always progress, in every group.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "program/plan.h"
#include "tutti/plugin/cuda.h"
#include "tutti/plugin/protocol.h"
#include "tutti/status.h"

namespace tutti::backend {

/// At most one per peer and direction.
struct Message {
  uint32_t kind = TUTTI_CUDA_SEND;
  uint32_t peer = 0;
  uint64_t bytes = 0;  ///< > 0
  uint32_t stripes = 1;
};

/// The launch of a message among the launches of a group, if the group has more messages than a launch holds. A launch
/// has the messages of TUTTI_CUDA_MAX_MESSAGES / 2 distances between ranks, in both directions. Both ends of a message
/// get the same number.
uint32_t part_of(const Message& message, uint32_t rank, uint32_t rank_count);

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

/// The blocks of a plan that moves each block straight from peer to peer: one peer at a time, each block in one hop.
/// Nothing: the plan has a different form, or its collective does not give all ranks the same part. Other ranks' plans
/// may be different.
std::optional<std::vector<Hop>> hops_of(const program::Plan& plan);

/// The hops of one call by launch, as many as a launch holds. Both ends of a hop have it in the same launch. Copies are
/// in the last launch, or in a launch of their own if that one is full.
std::vector<std::vector<Hop>> in_parts(std::span<const Hop> hops, uint32_t rank, uint32_t rank_count);

/// Whether a plan has hops_of(), and more connections than a program: it runs as launches of messages, which have
/// connections with all ranks.
bool runs_as_messages(const program::Plan& plan);

}  // namespace tutti::backend
