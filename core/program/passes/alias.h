// SPDX-License-Identifier: Apache-2.0
// Which chunks of a plan's buffers are the same memory.
#pragma once

#include "program/plan.h"

namespace tutti::program {

/// The number of the memory that a chunk of a buffer (TUTTI_BUFFER_INPUT, _OUTPUT or _SCRATCH) lies in, the same for
/// chunks that share it. `in_place`: input and output do, the way the collective allows.
uint32_t place_of(const Plan& plan, bool in_place, uint32_t buffer, uint32_t chunk);
/// All numbers are below this one.
inline uint32_t place_count(const Plan& plan) {
  return plan.output_chunks() + plan.input_chunks() + plan.scratch_chunks;
}

}  // namespace tutti::program
