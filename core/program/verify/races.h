// SPDX-License-Identifier: Apache-2.0
// Steps of different strands that touch a chunk at the same time.
#pragma once

#include <vector>

#include "program/plan.h"
#include "program/verify/contents.h"

namespace tutti::program {

/// Every two steps of different strands that touch the same chunk, of which one writes it, and which no waits put in
/// order; also between a loop and the next, where scratch chunks are used again. If steps wait for each other in a
/// circle, this is the only counter-example. Each pair of steps is named once, with the first such chunk. `in_place`:
/// chunks of input and output are the same memory where the collective allows it. The plan has no repeats.
///
/// Steps whose own parts overlap (program/verify/touches.h) are named, too.
///
/// If there is none, all ways in which the strands can run beside each other give the same result: each read has one
/// write before it. In a collective that does not reduce, a copy of a chunk to itself is no write.
std::vector<CounterExample> races(const Plan& plan, bool in_place);

}  // namespace tutti::program
