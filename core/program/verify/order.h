// SPDX-License-Identifier: Apache-2.0
// Plans with other numbers for the ranks: along a ring, every rank may do the same, whatever the ranks' numbers are.
#pragma once

#include "program/verify/prove.h"

namespace tutti::program {

/// The position of each rank on the cycle that begins with rank 0, where each rank is followed by the first rank that
/// it sends to. Fails (kUnsupported, with the reason) if the ranks do not form one cycle, or if the source fails.
Result<std::vector<uint32_t>> positions_on_cycle(uint32_t rank_count, const PlanSource& source);

/// The same plan with the number positions[r] for each rank r. Blocks of buffers with one block per rank move with
/// their ranks. Fails (kUnsupported) if chunks of several blocks are in one list.
Result<Plan> renumbered(const Plan& plan, std::span<const uint32_t> positions);

}  // namespace tutti::program
