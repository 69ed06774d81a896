// SPDX-License-Identifier: Apache-2.0
// Plans of all ranks that are images of one plan: rank r does what rank 0 does, with all ranks moved by r.
#pragma once

#include <optional>
#include <string>

#include "program/plan.h"

namespace tutti::program {

/// How a plan of rank 0 becomes the plan of rank d. Ranks move by d, modulo the number of ranks. The chunks of a buffer
/// with one block per rank move with their ranks. The chunks of other buffers move by d times a shift, modulo the
/// number of chunks. Moved by the number of ranks, every plan is itself again.
struct Rotation {
  uint32_t rank_count = 1;
  uint32_t chunks = 1;
  uint32_t input_blocks = 1;
  uint32_t output_blocks = 1;
  uint32_t scratch_chunks = 0;
  uint32_t chunk_shift = 0;
  uint32_t scratch_shift = 0;

  uint32_t rank(uint32_t of_zero, uint32_t distance) const {
    return static_cast<uint32_t>((uint64_t{of_zero} + distance) % rank_count);
  }
  /// A chunk of one of TUTTI_BUFFER_*. Of NONE: the size of a chunk, as a chunk of a block.
  uint32_t chunk(uint32_t buffer, uint32_t of_zero, uint32_t distance) const;
};

/// The rotation with these shifts for plans like this one. Fails (kInvalidArgument, with the reason) if it is none.
Result<Rotation> rotation_of(const Plan& plan, uint32_t chunk_shift, uint32_t scratch_shift);

/// The only rotation that can make the plan of rank 1 from that of rank 0; nothing if none can.
std::optional<Rotation> find_rotation(const Plan& zero, const Plan& one);

/// Empty if `plan` is the image of rank 0's plan. Else the first difference: "rank 5 step 3: ...". The order of the
/// peers of gather and scatter steps makes no difference. Both plans may have repeats.
std::string differs_from_image(const Rotation& rotation, const Plan& zero, const Plan& plan);

/// The plan of the rank `distance` behind that of `plan`, root included. Fails (kUnsupported) if the steps name too
/// many different peers.
Result<Plan> image(const Rotation& rotation, const Plan& plan, uint32_t distance);

}  // namespace tutti::program
