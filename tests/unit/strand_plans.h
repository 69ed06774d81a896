// SPDX-License-Identifier: Apache-2.0
// Plans with strands, made of plans that are lists.
#pragma once

#include <cstdint>
#include <vector>

#include "program/plan.h"

namespace tutti::test {

/// The plans of all ranks with up to `most` strands each, at random. Steps that share a direction of a connection stay
/// in one strand. Steps of different strands that touch the same chunk, in place or not, keep their order by waits.
/// Empty if no plan can be cut, or if the plans have scratch buffers, whose loops would need further waits.
std::vector<program::Plan> in_strands(const std::vector<program::Plan>& plans, uint32_t most, uint64_t seed);

}  // namespace tutti::test
