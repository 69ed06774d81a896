// SPDX-License-Identifier: Apache-2.0
#include "program/passes/alias.h"

namespace tutti::program {

/// Chunks of the input are numbered after the chunks of the output; in place, chunks that share memory share a number.
/// Scratch chunks are numbered last.
uint32_t place_of(const Plan& plan, bool in_place, uint32_t buffer, uint32_t chunk) {
  if (buffer == TUTTI_BUFFER_OUTPUT) return chunk;
  const uint32_t outputs = plan.output_chunks();
  if (buffer == TUTTI_BUFFER_SCRATCH) return outputs + plan.input_chunks() + chunk;
  if (!in_place) return outputs + chunk;
  if (plan.input_blocks == plan.output_blocks) return chunk;
  const uint32_t own = plan.rank * plan.chunks;
  if (plan.output_blocks > 1) return own + chunk;  // the input is a block of the output
  return chunk >= own && chunk < own + plan.chunks ? chunk - own : outputs + chunk;
}

}  // namespace tutti::program
