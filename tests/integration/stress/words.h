// SPDX-License-Identifier: Apache-2.0
// Words that say who gave them to which call, made and checked on the GPU.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tutti/types.h"

namespace tutti::stress {

/// One rank's side of a call on words; sums wrap around.
struct Round {
  Collective collective = Collective::kAllReduce;
  uint32_t call = 0;
  uint32_t rank = 0;
  uint32_t rank_count = 1;
  size_t count = 0;  ///< words of a block
};

/// Enqueue on `stream`: fills the input; adds to *wrong how many words of the output are not what they must be.
void fill_input(uint32_t* input, const Round& round, void* stream);
void check_output(const uint32_t* output, const Round& round, uint32_t* wrong, void* stream);

}  // namespace tutti::stress
