// SPDX-License-Identifier: Apache-2.0
// Plans as copies: from the sender's input straight to where the receiver wants it, without slots in between.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "plan/plan.h"

namespace tutti::plan {

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
  std::vector<uint32_t> peers;  ///< who copies to this rank's output, ascending
};

/// What the plans of all ranks, in ascending order of one channel, are for `rank`. Fails (kUnsupported, with what is in
/// the way) where they reduce, where a message is more than one hop, where blocks are cut, where an arriving message
/// could overwrite what is still to be sent, as in place, or where there are more than a launch takes. That all
/// messages find their receivers is for verify() to prove (plan/verify.h).
Result<Copies> copies(std::span<const Plan> plans, uint32_t rank, bool in_place);

}  // namespace tutti::plan
