// SPDX-License-Identifier: Apache-2.0
// Whether the plans of all ranks are images of one plan.
#pragma once

#include "program/verify/prove.h"
#include "program/verify/rotation.h"

namespace tutti::program {

/// The rotation under which the plan of each rank is the image of rank 0's. Fails with kUnsupported and the reason if
/// there is none, or if the plans have more entries than the limits allow; else as the source does.
Result<Rotation> common_rotation(uint32_t rank_count, const PlanSource& source, const ProofLimits& limits);

/// The plans along a ring: rank p of the new source is the rank at position p (program/verify/order.h). `positions`
/// and `source` outlive it.
PlanSource along_ring(const PlanSource& source, const std::vector<uint32_t>& positions);

}  // namespace tutti::program
