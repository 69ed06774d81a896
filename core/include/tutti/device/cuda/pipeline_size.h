// SPDX-License-Identifier: Apache-2.0
// How large the pipeline of a CTA is: for the kernels, and for what starts them.
#pragma once

#include <cstdint>

namespace tutti::device {

inline constexpr uint32_t kWorkerWarps = 4;
inline constexpr uint32_t kStorers = 2;
inline constexpr uint32_t kPipelineThreads = (kWorkerWarps + 2 + kStorers + 1) * 32;

// Those of several communicators must run beside each other.
inline constexpr uint32_t kPipelinesPerSm = 2;

// What a CTA holds of data on its way: tiles in dynamic shared memory, a stage each. Two CTAs that share an SM have
// six, twice what an SM stores in 1 µs, about the latency of a load. A launch of few CTAs has them on SMs of their own,
// with twice as many stages: there each CTA has more to move than latency lets six of them take.
inline constexpr uint32_t kStageBits = 14;
inline constexpr uint32_t kStageBytes = 1 << kStageBits;
inline constexpr uint32_t kLeastStages = 4;  // with fewer, or none, there are no bulk copies
inline constexpr uint32_t kStages = 6;
inline constexpr uint32_t kMostStages = 12;
inline constexpr uint32_t kFewCtas = 16;

}  // namespace tutti::device
