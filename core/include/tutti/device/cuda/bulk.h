// SPDX-License-Identifier: Apache-2.0
// Bulk copies between global and shared memory, which an engine beside the SM's threads makes, and the barriers in
// shared memory that they complete on. For nvcc; the copies from compute capability 9.0 on.
#pragma once

#include <cstdint>

namespace tutti::device {

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
inline constexpr bool kHasBulkCopies = true;
#else
inline constexpr bool kHasBulkCopies = false;
#endif

__device__ __forceinline__ uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

/// A barrier that is passed again and again ("mbarrier"): by turns, turn t when all have arrived t + 1 times and all
/// bytes expected in it have come.
class Gate {
 public:
  /// One thread, before a barrier of all.
  __device__ __forceinline__ void init(uint32_t arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(&word_)), "r"(arrivals) : "memory");
  }
  /// What the thread did before is seen by those who wait. Counts for as many arrivals.
  __device__ __forceinline__ void arrive(uint32_t times = 1) {
#if __CUDA_ARCH__ >= 900
    asm volatile("{ .reg .b64 state; mbarrier.arrive.shared::cta.b64 state, [%0], %1; }" ::"r"(shared_address(&word_)),
                 "r"(times)
                 : "memory");
#else
    for (uint32_t i = 0; i < times; ++i) {
      asm volatile("{ .reg .b64 state; mbarrier.arrive.shared::cta.b64 state, [%0]; }" ::"r"(shared_address(&word_))
                   : "memory");
    }
#endif
  }
  /// Arrives, and lets the turn wait for `bytes` of bulk loads as well.
  __device__ __forceinline__ void arrive_expecting(uint32_t bytes) {
#if __CUDA_ARCH__ >= 900
    asm volatile(
        "{ .reg .b64 state; mbarrier.arrive.expect_tx.shared::cta.b64 state, [%0], %1; }" ::"r"(shared_address(&word_)),
        "r"(bytes)
        : "memory");
#endif
  }
  __device__ __forceinline__ void wait(uint32_t turn) const {
    while (!passes(turn)) {
    }
  }
  /// Of the turn that is on and the one before it.
  __device__ __forceinline__ bool has_passed(uint32_t turn) const {
    uint32_t done;
    asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                 : "=r"(done)
                 : "r"(shared_address(&word_)), "r"(turn & 1)
                 : "memory");
    return done != 0;
  }

 private:
  friend __device__ void load_bulk(void* to, const void* from, uint32_t bytes, Gate& gate);

  /// As has_passed(), but may itself wait a little.
  __device__ __forceinline__ bool passes(uint32_t turn) const {
#if __CUDA_ARCH__ >= 900
    uint32_t done;
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                 : "=r"(done)
                 : "r"(shared_address(&word_)), "r"(turn & 1)
                 : "memory");
    return done != 0;
#else
    return has_passed(turn);
#endif
  }

  uint64_t word_;
};

/// From global to shared memory; all in units of 16 bytes. Its bytes count for the gate's turn.
__device__ __forceinline__ void load_bulk(void* to, const void* from, uint32_t bytes, Gate& gate) {
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                   shared_address(to)),
               "l"(from), "r"(bytes), "r"(shared_address(&gate.word_))
               : "memory");
#endif
}

/// From shared to global memory, in the thread's current group.
__device__ __forceinline__ void store_bulk(void* to, const void* from, uint32_t bytes) {
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(shared_address(from)),
               "r"(bytes)
               : "memory");
#endif
}
__device__ __forceinline__ void end_store_group() {
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
#endif
}
/// Until at most `kPending` of the thread's groups still read shared memory.
template <uint32_t kPending>
__device__ __forceinline__ void wait_stores_read() {
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
#endif
}
/// Until all that the thread's groups store is there.
__device__ __forceinline__ void wait_stores() {
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
#endif
}

/// Between accesses of threads and accesses of the engine to the same memory: to any, or to shared memory.
__device__ __forceinline__ void fence_bulk() {
#if __CUDA_ARCH__ >= 900
  asm volatile("fence.proxy.async;" ::: "memory");
#endif
}
__device__ __forceinline__ void fence_bulk_shared() {
#if __CUDA_ARCH__ >= 900
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

}  // namespace tutti::device
