// SPDX-License-Identifier: Apache-2.0
// The size of a CTA's pipeline, for kernels and for the code that starts them.
//
// Threads: any thread of the host or of a GPU.
// Units: warps, threads, stages and bytes, as the name of each constant states.
#pragma once

#include <cstdint>

namespace tutti::device {

inline constexpr uint32_t kWorkerWarps = 4;
inline constexpr uint32_t kStorers = 2;
inline constexpr uint32_t kPipelineThreads = (kWorkerWarps + 2 + kStorers + 1) * 32;

// Pipelines of several communicators must fit an SM together.
inline constexpr uint32_t kPipelinesPerSm = 2;

// Each tile takes one stage in dynamic shared memory. Two CTAs that share an SM have six stages each. Six stages hold
// twice the data that an SM stores in 1 µs, about the latency of a load. In a launch of few CTAs, each CTA has an SM of
// its own and twice as many stages: it moves more data than six stages permit at this latency. A CTA of the large form
// takes more memory beside the stages, so two CTAs that share an SM have five stages each.
inline constexpr uint32_t kStageBits = 14;
inline constexpr uint32_t kStageBytes = 1 << kStageBits;
inline constexpr uint32_t kLeastStages = 4;  // with fewer stages, no bulk copies
inline constexpr uint32_t kMostStages = 12;
inline constexpr uint32_t kFewCtas = 16;

/// The shared memory of a CTA, of one form of launches.
struct PipelineSize {
  uint32_t stages;     ///< stages of a CTA if kPipelinesPerSm CTAs share an SM
  uint32_t own_bytes;  ///< beside the stages, at most
};
inline constexpr PipelineSize kSmallSize = {6, 16 << 10};
inline constexpr PipelineSize kLargeSize = {5, 32 << 10};

}  // namespace tutti::device
