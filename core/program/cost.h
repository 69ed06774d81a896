// SPDX-License-Identifier: Apache-2.0
// The cost of plans, counted from their steps.
#pragma once

#include <span>

#include "program/plan.h"

namespace tutti::program {

/// The α–β cost of all ranks' plans of one channel on this topology (tutti/plugin/algorithm.h explains the fields).
/// Channels share the bandwidth of their links. Fails if the plans deadlock,
/// or are too large to count.
Result<tutti_algorithm_cost> cost_of(std::span<const Plan> plans, const tutti_topology& topology);

}  // namespace tutti::program
