// SPDX-License-Identifier: Apache-2.0
// Comparing what a rank received with what it must have received.
#pragma once

#include "tools/check/reference.h"

namespace tutti::check {

struct Comparison {
  size_t wrong = 0;   ///< elements
  std::string first;  ///< the first wrong one: "element 17 is 3.5, must be 3.25 ± 0.01"
};

/// Compares the output of `rank`, output_elements() long. `reference` must cover what this rank receives where the
/// collective reduces, and is not looked at otherwise.
Comparison compare(const Problem& problem, const Reference& reference, int rank, const void* output);

/// The number of bytes that no longer are poison (random_input.h).
size_t count_written(const void* output, size_t bytes);

/// A hash of bytes, to compare what ranks hold. Not for adversaries.
uint64_t hash(const void* data, size_t bytes);

/// Whether a right call leaves every rank with the same output.
bool same_everywhere(Collective collective);

}  // namespace tutti::check
