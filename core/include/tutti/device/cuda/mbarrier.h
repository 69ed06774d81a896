// SPDX-License-Identifier: Apache-2.0
// mbarriers with phases that count up. In shared memory. For nvcc.
#pragma once

#include "tutti/device/cuda/instructions.h"

namespace tutti::device {

/// An mbarrier. Phase t completes after all arrivals of the phase and all bytes that the phase expects. The caller
/// counts the phases from 0 on.
///
/// Threads: any thread of the CTA, except init().
class Mbarrier {
 public:
  /// One thread. A barrier of all threads must follow.
  __device__ __forceinline__ void init(uint32_t arrivals) { init_barrier(&word_, arrivals); }
  /// Counts as `times` arrivals. Earlier stores of the thread are visible to threads that wait.
  __device__ __forceinline__ void arrive(uint32_t times = 1) { arrive_at_barrier(&word_, times); }
  /// Arrives once. The phase then also waits for `bytes` bytes of bulk loads.
  __device__ __forceinline__ void arrive_expecting(uint32_t bytes) { arrive_expecting_bytes(&word_, bytes); }
  /// Starts a bulk load from global to shared memory, in units of 16 bytes. Its bytes count for the phase.
  __device__ __forceinline__ void load(void* to, const void* from, uint32_t bytes) {
    load_bulk(to, from, bytes, &word_);
  }
  __device__ __forceinline__ void wait(uint32_t turn) const {
    while (!try_barrier(&word_, turn & 1)) {
    }
  }
  /// Whether phase `turn` is complete. Valid only for the current phase and the phase before it.
  __device__ __forceinline__ bool has_passed(uint32_t turn) const { return test_barrier(&word_, turn & 1); }

 private:
  uint64_t word_;
};

}  // namespace tutti::device
