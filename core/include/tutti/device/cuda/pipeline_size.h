// SPDX-License-Identifier: Apache-2.0
// How large the pipeline of a CTA is: for the kernels, and for what starts them.
#pragma once

#include <cstdint>

namespace tutti::device {

inline constexpr uint32_t kWorkerWarps = 8;
inline constexpr uint32_t kStorers = 2;
inline constexpr uint32_t kPipelineThreads = (kWorkerWarps + 2 + kStorers + 1) * 32;

// Those of several communicators must run beside each other.
inline constexpr uint32_t kPipelinesPerSm = 2;

// What a CTA holds of data on its way: twice what an SM stores in 1 µs, about the latency of a load. Twice as much
// brought nothing.
inline constexpr uint32_t kStages = 6;
inline constexpr uint32_t kStageBytes = 16 << 10;
inline constexpr uint32_t kStagesBytes = kStages * kStageBytes;  // of dynamic shared memory; else no bulk copies

}  // namespace tutti::device
