// SPDX-License-Identifier: Apache-2.0
// Barriers in shared memory that are passed again and again. For nvcc.
#pragma once

#include "tutti/device/cuda/instructions.h"

namespace tutti::device {

/// Passed by turns: turn t when all have arrived t + 1 times and all bytes expected in it have come.
class Gate {
 public:
  /// One thread, before a barrier of all.
  __device__ __forceinline__ void init(uint32_t arrivals) { init_barrier(&word_, arrivals); }
  /// What the thread did before is seen by those who wait. Counts for as many arrivals.
  __device__ __forceinline__ void arrive(uint32_t times = 1) { arrive_at_barrier(&word_, times); }
  /// Arrives, and lets the turn wait for `bytes` of bulk loads as well.
  __device__ __forceinline__ void arrive_expecting(uint32_t bytes) { arrive_expecting_bytes(&word_, bytes); }
  /// From global to shared memory, in units of 16 bytes; counts for the turn.
  __device__ __forceinline__ void load(void* to, const void* from, uint32_t bytes) {
    load_bulk(to, from, bytes, &word_);
  }
  __device__ __forceinline__ void wait(uint32_t turn) const {
    while (!try_barrier(&word_, turn & 1)) {
    }
  }
  /// Of the turn that is on and the one before it.
  __device__ __forceinline__ bool has_passed(uint32_t turn) const { return test_barrier(&word_, turn & 1); }

 private:
  uint64_t word_;
};

}  // namespace tutti::device
