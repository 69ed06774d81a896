// SPDX-License-Identifier: Apache-2.0
// Plans of all-reduces that run without an algorithm plugin, for tests of executors.
#pragma once

#include <cstdint>

#include "tutti/sdk/plan_builder.h"

namespace tutti::check {

/// Writes the plan of `rank` of a ring. The builder has as many chunks as ranks, and at least two ranks.
void ring_all_reduce(sdk::PlanBuilder& plan, uint32_t rank, uint32_t ranks);
/// Each rank reduces its chunk and sends the result to all. The builder has as many chunks as ranks.
void two_shot_all_reduce(sdk::PlanBuilder& plan, uint32_t rank, uint32_t ranks);

}  // namespace tutti::check
