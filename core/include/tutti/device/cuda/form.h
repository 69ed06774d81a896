// SPDX-License-Identifier: Apache-2.0
// The forms of launches (tutti_cuda_tables): the place of connections and programs, and their limits. For nvcc.
//
// Kernels of the small form deal at most one rank or message to a thread, so their code has no loops over ranks. The
// place is chosen where it is used, by `Form::kIsLarge ? ... : ...`: a function for it, even an inlined one, changes
// the machine code of the small form.
//
// Threads: any thread calls deal(), which works for this thread alone.
#pragma once

#include "tutti/plugin/cuda.h"

namespace tutti::device {

/// The program of one step that a message of the large form runs.
struct LargeMessageProgram {
  uint16_t step_count;
  uint16_t chunks;
  uint16_t messages;
  uint16_t stages;
  uint16_t lag;
  tutti_cuda_large_step steps[1];
  tutti_cuda_large_peer peers[1];
};

/// Connections and the program travel in the parameters.
struct SmallForm {
  static constexpr bool kIsLarge = false;
  static constexpr bool kHasStrands = false;
  static constexpr uint32_t kRanks = TUTTI_CUDA_SMALL_RANKS;  // numbers of connections and of the own rank, at most
  using Program = tutti_cuda_program;
  using MessageProgram = tutti_cuda_program;
  using Step = tutti_cuda_step;
  using Peer = tutti_cuda_peer;
};

/// Connections and programs lie in this GPU's memory.
struct LargeForm {
  static constexpr bool kIsLarge = true;
  static constexpr bool kHasStrands = false;
  static constexpr uint32_t kRanks = TUTTI_CUDA_MAX_CONNECTIONS + 1;
  using Program = tutti_cuda_large_program;
  using MessageProgram = LargeMessageProgram;
  using Step = tutti_cuda_large_step;
  using Peer = tutti_cuda_large_peer;
};

/// The large form, for programs with strands: a CTA runs one strand of its channel (strand.h).
struct StrandForm : LargeForm {
  static constexpr bool kHasStrands = true;
};

/// The first program of a launch, which wire formats with short messages run on all CTAs.
template <class Form>
__device__ __forceinline__ const typename Form::Program& first_program(const tutti_cuda_launch& launch) {
  if constexpr (Form::kIsLarge) {
    return launch.tables.first;
  } else {
    return launch.program;
  }
}

/// Calls `action` for the indices below `count` that belong to a thread: `first`, `first + stride` and so on. In the
/// small form, `count` is at most `stride`.
template <class Form, class Action>
__device__ __forceinline__ void deal(uint32_t first, uint32_t count, uint32_t stride, Action&& action) {
  if constexpr (Form::kIsLarge) {
    for (uint32_t i = first; i < count; i += stride) action(i);
  } else {
    if (first < count) action(first);
  }
}

}  // namespace tutti::device
