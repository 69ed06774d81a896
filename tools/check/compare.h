// SPDX-License-Identifier: Apache-2.0
// Compares the output of a rank with the right output.
#pragma once

#include "tools/check/reference.h"
#include "tools/check/sample.h"

namespace tutti::check {

struct Comparison {
  size_t wrong = 0;   ///< elements
  std::string first;  ///< the first wrong element: "element 17 is 3.5, must be 3.25 ± 0.01"

  void add(const Comparison& other);
};

/// Compares one part of an output; `output` points to its first element. `reference` must cover the part where the
/// collective reduces, and is not looked at otherwise.
Comparison compare(const Problem& problem, const Part& part, const Reference& reference, const void* output);

/// Compares the whole output of `rank`, output_elements() long.
Comparison compare(const Problem& problem, const Reference& reference, int rank, const void* output);

/// The number of bytes that no longer are poison (random_input.h).
size_t count_written(const void* output, size_t bytes);

/// A hash of bytes, to compare the outputs of ranks. Not for adversaries.
uint64_t hash(const void* data, size_t bytes);

/// Whether a right call leaves every rank with the same output.
bool same_everywhere(Collective collective);

}  // namespace tutti::check
