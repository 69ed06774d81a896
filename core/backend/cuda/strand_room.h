// SPDX-License-Identifier: Apache-2.0
// The room for strands on the GPUs of all ranks. Needs no GPU but those of the protocols.
#pragma once

#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "bootstrap/bootstrap.h"
#include "tuner/selector.h"

namespace tutti::backend {

/// By protocol: CTAs of a launch with strands that the GPU of each rank holds at the same time, at most `most_ctas`.
/// `ranks_per_gpu`: ranks that share a GPU, which divide its room. 0 for protocols that run no strands on GPUs. Errors:
/// the failure of a protocol, or of a rank that does not come. Collective; the calling thread's GPU is that of the
/// rank.
Result<std::vector<uint32_t>> agree_on_strand_ctas(const std::vector<tuner::Protocol>& protocols,
                                                   uint32_t ranks_per_gpu, uint32_t most_ctas,
                                                   bootstrap::Bootstrap& bootstrap, base::Time deadline);

}  // namespace tutti::backend
