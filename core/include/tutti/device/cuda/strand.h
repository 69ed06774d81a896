// SPDX-License-Identifier: Apache-2.0
// A strand of a program: the share of one CTA of its channel. Strand y of channel x is the CTA (x, y). For nvcc.
//
// A step that other strands wait for ends with a signal: its strand stores a count (tutti_cuda_progress), as a release.
// A step that waits begins after it has loaded all counts that it needs, as an acquire. Counts begin at 0 in each
// launch: the strand that ends last resets them, and all CTAs of a launch end before the next launch begins.
//
// All CTAs of a launch run at the same time, so a strand may wait for a different strand.
//
// Threads: any thread calls each function, and it works for this thread alone.
#pragma once

#include "tutti/device/cuda/instructions.h"
#include "tutti/plugin/cuda.h"

namespace tutti::device {

/// A wait for one strand. It holds what it needs of the tables, so that a poll loads the count alone.
class StrandWait {
 public:
  StrandWait() = default;  ///< no wait: it is over
  __device__ __forceinline__ StrandWait(const uint32_t* count, uint32_t wanted) : count_(count), wanted_(wanted) {}

  /// Loads the count. Whether the awaited steps are complete.
  __device__ __forceinline__ bool is_over() {
    if (count_ == nullptr) return true;
    now_ = load_acquire_gpu(count_);
    return static_cast<int32_t>(now_ - wanted_) >= 0;
  }
  /// Whether the strand has completed steps since the previous call, or since the launch began.
  __device__ __forceinline__ bool has_moved() {
    const bool moved = now_ != before_;
    before_ = now_;
    return moved;
  }

 private:
  const uint32_t* count_ = nullptr;
  uint32_t wanted_ = 0;
  uint32_t now_ = 0;
  uint32_t before_ = 0;
};

class Strand {
 public:
  /// `program`: the index of the channel's program. is_there() must hold for all other functions.
  __device__ __forceinline__ Strand(const tutti_cuda_launch& launch, uint32_t program)
      : table_(launch.tables.strands[program]), progress_(launch.tables.progress[blockIdx.x]) {}

  /// Whether the program has so many strands.
  __device__ __forceinline__ bool is_there() const { return blockIdx.y < table_.strand_count; }

  /// The range of its steps.
  __device__ __forceinline__ uint32_t first() const { return own().first_step; }
  __device__ __forceinline__ uint32_t end() const { return own().first_step + own().step_count; }
  /// Whether this strand signals `done` on a connection.
  __device__ __forceinline__ bool signals(uint32_t connection) const { return (own().sources >> connection & 1) != 0; }

  /// Whether a step waits for other strands.
  __device__ __forceinline__ bool waits(uint32_t step) const { return table_.after[step] != 0; }
  /// The wait of a step for the steps of strand `other`, from 0 to below TUTTI_CUDA_MAX_STRANDS, in this loop.
  __device__ __forceinline__ StrandWait wait(uint32_t step, uint32_t loop, uint32_t other) const {
    const auto steps = static_cast<uint32_t>(table_.after[step] >> other * 8 & 0xff);
    if (steps == 0) return {};
    return StrandWait(&progress_.complete[other], loop * table_.strands[other].step_count + steps);
  }

  /// The word that says how far this strand is, and its value after a step.
  __device__ __forceinline__ uint32_t* word() const { return &progress_.complete[blockIdx.y]; }
  __device__ __forceinline__ uint32_t count_after(uint32_t step, uint32_t loop) const {
    return loop * own().step_count + step - own().first_step + 1;
  }

  /// This strand has ended. Returns whether it is the last of its channel. One thread, after all other threads.
  __device__ __forceinline__ bool ends_last() const {
    if (add_gpu(&progress_.ended, 1) + 1 != table_.strand_count) return false;
    progress_ = {};
    return true;
  }

 private:
  __device__ __forceinline__ const tutti_cuda_strand& own() const { return table_.strands[blockIdx.y]; }

  const tutti_cuda_strands& table_;
  tutti_cuda_progress& progress_;
};

}  // namespace tutti::device
