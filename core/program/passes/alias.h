// SPDX-License-Identifier: Apache-2.0
// The pass `alias`: which chunks of a plan's buffers are the same memory.
//
// Finds    the memory of each chunk of the input, the output and the scratch buffer, as a number.
// Assumes  the blocks of the collective. In place, input and output share memory the way the collective allows, and all
//          chunks of this rank do. The scratch buffer shares none.
// Changes  nothing. Later passes ask for the numbers.
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
