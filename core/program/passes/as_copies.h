// SPDX-License-Identifier: Apache-2.0
// The pass `as_copies`: plans as copies from the sender's input straight to where the receiver wants it, without slots.
//
// Finds    the block of the input that each message carries, and the block of the output that its receiver writes.
// Assumes  plans of all ranks without repeats, which a proof has found right: the k-th message of a connection meets
//          the k-th receive. Outputs of peers can be written (registered buffers).
// Changes  the form: the result is a list of copies for each rank. Plans that are more than copies are refused.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "program/plan.h"

namespace tutti::program {

/// A block of this rank's input that belongs in a block of a rank's output.
struct Copy {
  uint32_t peer = 0;
  uint32_t from = 0;  ///< block of the input
  uint32_t to = 0;    ///< block of the peer's output
  bool operator==(const Copy&) const = default;
};

/// One rank's part.
struct Copies {
  std::vector<Copy> list;       ///< in the order in which to make them: that of the plan
  std::optional<Copy> own;      ///< from the own input to the own output; in place, where that is not the same
  std::vector<uint32_t> peers;  ///< ranks that copy to this rank's output, ascending
};

/// The part of `rank` in the plans of all ranks for one channel. The plans are in ascending order of ranks. Fails
/// (kUnsupported, with the reason) if the plans reduce, if a message is more than one hop, if blocks are cut, or if
/// there are more copies than a launch takes. It also fails if an arriving message could overwrite data that is still
/// to be sent, as in place. verify() proves that all messages find their receivers (program/verify/verify.h).
Result<Copies> copies(std::span<const Plan> plans, uint32_t rank, bool in_place);

}  // namespace tutti::program
