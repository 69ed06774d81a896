// SPDX-License-Identifier: Apache-2.0
// Which elements a check looks at: all, or where buffers are large, windows spread evenly over every rank's input and
// whatever becomes of them in the outputs.
#pragma once

#include "tools/check/problem.h"

namespace tutti::check {

struct Range {
  size_t first;
  size_t count;
};

/// A range of a rank's output, and where it comes from.
struct Part {
  int source;  ///< the rank whose input it is a copy of; no rank's alone where the collective reduces
  size_t input_first;
  size_t output_first;
  size_t count;
};

/// The ranges of a rank's input that a check needs, ascending. Where the larger buffer of the call has no more than
/// `max_bytes`: all. Else windows that hold about that much of it, the first and the last element included.
std::vector<Range> sampled_input(const Problem& problem, int rank, size_t max_bytes);

/// The parts of a rank's output that come from those ranges, in the order of the output.
std::vector<Part> sampled_output(const Problem& problem, int rank, size_t max_bytes);

}  // namespace tutti::check
