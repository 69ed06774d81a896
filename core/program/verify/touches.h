// SPDX-License-Identifier: Apache-2.0
// The memory that a step reads and writes.
#pragma once

#include <string>
#include <vector>

#include "program/plan.h"

namespace tutti::program {

/// A chunk of a buffer that a step reads or writes.
struct Touch {
  uint32_t place;  ///< the number of the memory (program/passes/alias.h)
  uint8_t buffer;
  uint32_t chunk;
  bool writes;
  bool to_itself;  ///< writes the chunk that it reads at the same index of its lists
  /// "output chunk 3"
  std::string text() const;
};

/// All chunks that a step of a plan touches. A message is no chunk.
std::vector<Touch> touches(const Plan& plan, const tutti_plan_step& step, bool in_place);

/// The parts of a gather or scatter step have no order among themselves: no chunk may be written twice, or written and
/// read. A copy of a chunk to itself is neither. Empty if the step keeps this rule, else "writes output chunk 0 twice".
std::string overlap(const Plan& plan, const tutti_plan_step& step, bool in_place);

}  // namespace tutti::program
