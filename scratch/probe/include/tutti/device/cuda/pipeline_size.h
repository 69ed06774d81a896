#ifndef XT
#define XT 4
#endif
#ifndef XS
#define XS 8
#endif
// SPDX-License-Identifier: Apache-2.0
// How large the pipeline of a CTA is: for the kernels, and for what starts them.
#pragma once

#include <cstdint>

namespace tutti::device {

inline constexpr uint32_t kWorkerWarps = 8;
inline constexpr uint32_t kStorers = XT;
inline constexpr uint32_t kPipelineThreads = (kWorkerWarps + 1 + kStorers + 1) * 32;

// What an SM holds of data on its way: with the first load's latency of about 1 µs enough for 100 GB/s.
inline constexpr uint32_t kStages = XS;
inline constexpr uint32_t kStageBytes = 16 << 10;
inline constexpr uint32_t kStagesBytes = kStages * kStageBytes;  // of dynamic shared memory; else no bulk copies

}  // namespace tutti::device
