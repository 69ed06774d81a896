// SPDX-License-Identifier: Apache-2.0
// Words that name the rank and the call that sent them, made and checked on the GPU.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tutti/status.h"
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

/// The words checked so far; in memory of the GPU.
struct Outcome {
  unsigned long long checked = 0;  ///< words
  unsigned long long wrong = 0;
};

size_t input_words(const Round& round);
size_t output_words(const Round& round);

/// Enqueue on `stream`: fills the input; adds to the outcome.
Status fill_input(uint32_t* input, const Round& round, void* stream);
Status check_output(const uint32_t* output, const Round& round, Outcome* outcome, void* stream);

}  // namespace tutti::stress
