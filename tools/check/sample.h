// SPDX-License-Identifier: Apache-2.0
// The elements that a check compares: all elements, or, in large buffers, windows spread evenly over every rank's input
// and their results in the outputs.
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

/// The ranges of a rank's input that a check needs, ascending. If the larger buffer of the call has at most
/// `max_bytes`: the whole input. Otherwise, windows that hold about this many bytes of it, including the first and the
/// last element.
std::vector<Range> sampled_input(const Problem& problem, int rank, size_t max_bytes);

/// The parts of a rank's output that result from these ranges, in the order of the output.
std::vector<Part> sampled_output(const Problem& problem, int rank, size_t max_bytes);

}  // namespace tutti::check
