// SPDX-License-Identifier: Apache-2.0
// Machine instructions that C++ cannot express, as functions with names. For nvcc. Instructions that an older chip
// lacks do nothing there; kHasBulkCopies states whether the chip has them. The kernels contain no other assembly. The
// tests replace this header and run the kernels on the CPU.
//
// Scope and order are terms of PTX: "relaxed" and "acquire"; "gpu", or "sys" for the whole system.
//
// Threads: each function works for the calling thread, unless it states otherwise.
#pragma once

#include <cstdint>

namespace tutti::device {

// --- Words of memory that other GPUs, or other CTAs, write meanwhile

__device__ __forceinline__ uint32_t load_relaxed(const uint32_t* word) {
  uint32_t value;
  asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
  return value;
}
__device__ __forceinline__ uint32_t load_acquire(const uint32_t* word) {
  uint32_t value;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
  return value;
}
__device__ __forceinline__ uint64_t load_acquire(const uint64_t* word) {
  uint64_t value;
  asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
  return value;
}
__device__ __forceinline__ void store_relaxed(uint32_t* word, uint32_t value) {
  asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(word), "r"(value) : "memory");
}
__device__ __forceinline__ void store_relaxed(uint64_t* word, uint64_t value) {
  asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(word), "l"(value) : "memory");
}
/// Loads two neighbouring words that only this GPU writes.
__device__ __forceinline__ void load_pair(const uint32_t* words, uint32_t& first, uint32_t& second) {
  asm volatile("ld.relaxed.gpu.global.v2.u32 {%0, %1}, [%2];" : "=r"(first), "=r"(second) : "l"(words) : "memory");
}
/// Words that CTAs of this GPU share.
__device__ __forceinline__ uint32_t load_acquire_gpu(const uint32_t* word) {
  uint32_t value;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
  return value;
}
__device__ __forceinline__ void store_release_gpu(uint32_t* word, uint32_t value) {
  asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(word), "r"(value) : "memory");
}
/// Returns the value before. Acquires and releases.
__device__ __forceinline__ uint32_t add_gpu(uint32_t* word, uint32_t value) {
  uint32_t before;
  asm volatile("atom.add.acq_rel.gpu.global.u32 %0, [%1], %2;" : "=r"(before) : "l"(word), "r"(value) : "memory");
  return before;
}
/// Orders the thread's earlier stores before its later stores, for all GPUs and the host.
__device__ __forceinline__ void fence_release() {
  asm volatile("fence.acq_rel.sys;" ::: "memory");
}

/// The same for CTAs of this GPU.
__device__ __forceinline__ void fence_release_gpu() {
  asm volatile("fence.acq_rel.gpu;" ::: "memory");
}

/// 16 bytes. Each half arrives as a whole.
struct WireWord {
  uint64_t low;
  uint64_t high;
};
__device__ __forceinline__ void store_wire(uint8_t* to, WireWord word) {
  asm volatile("st.relaxed.sys.global.v2.u64 [%0], {%1, %2};" ::"l"(to), "l"(word.low), "l"(word.high) : "memory");
}
__device__ __forceinline__ WireWord load_wire(const uint8_t* from) {
  WireWord word;
  asm volatile("ld.relaxed.sys.global.v2.u64 {%0, %1}, [%2];" : "=l"(word.low), "=l"(word.high) : "l"(from) : "memory");
  return word;
}

// --- Registers and clocks of the calling thread

/// Polls of a wait between two checks of the clock and of host memory. A check takes 1 µs.
inline constexpr uint32_t kPollsPerLook = 1u << 10;

__device__ __forceinline__ uint64_t nanoseconds() {
  uint64_t now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  return now;
}
__device__ __forceinline__ uint32_t dynamic_shared_bytes() {
  uint32_t bytes;
  asm("mov.u32 %0, %%dynamic_smem_size;" : "=r"(bytes));
  return bytes;
}
__device__ __forceinline__ void prefetch(const void* address) {
  asm volatile("prefetch.global.L1 [%0];" ::"l"(address));
}

// --- Bulk copies, which a unit beside the SM's threads executes, and the barriers in shared memory (mbarriers) at
// --- which they complete

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
inline constexpr bool kHasBulkCopies = true;
#else
inline constexpr bool kHasBulkCopies = false;
#endif

__device__ __forceinline__ uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

__device__ __forceinline__ void init_barrier(uint64_t* barrier, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals) : "memory");
}
/// Counts as `times` arrivals. Releases the thread's earlier accesses.
__device__ __forceinline__ void arrive_at_barrier(uint64_t* barrier, uint32_t times) {
#if __CUDA_ARCH__ >= 900
  asm volatile("{ .reg .b64 state; mbarrier.arrive.shared::cta.b64 state, [%0], %1; }" ::"r"(shared_address(barrier)),
               "r"(times)
               : "memory");
#else
  for (uint32_t i = 0; i < times; ++i) {
    asm volatile("{ .reg .b64 state; mbarrier.arrive.shared::cta.b64 state, [%0]; }" ::"r"(shared_address(barrier))
                 : "memory");
  }
#endif
}
/// Counts as one arrival. The phase does not end before `bytes` further bytes of bulk loads have arrived.
__device__ __forceinline__ void arrive_expecting_bytes(uint64_t* barrier, uint32_t bytes) {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "{ .reg .b64 state; mbarrier.arrive.expect_tx.shared::cta.b64 state, [%0], %1; }" ::"r"(shared_address(barrier)),
      "r"(bytes)
      : "memory");
#endif
}
/// Whether the phase of this parity is complete. Acquires.
__device__ __forceinline__ bool test_barrier(const uint64_t* barrier, uint32_t parity) {
  uint32_t done;
  asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
               : "=r"(done)
               : "r"(shared_address(barrier)), "r"(parity)
               : "memory");
  return done != 0;
}
/// As test_barrier(), but the hardware may wait for a short time first.
__device__ __forceinline__ bool try_barrier(const uint64_t* barrier, uint32_t parity) {
#if __CUDA_ARCH__ >= 900
  uint32_t done;
  asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
               : "=r"(done)
               : "r"(shared_address(barrier)), "r"(parity)
               : "memory");
  return done != 0;
#else
  return test_barrier(barrier, parity);
#endif
}

/// Copies from global to shared memory. Addresses and size are multiples of 16 bytes. The bytes count for the barrier's
/// phase.
__device__ __forceinline__ void load_bulk(void* to, const void* from, uint32_t bytes, uint64_t* barrier) {
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                   shared_address(to)),
               "l"(from), "r"(bytes), "r"(shared_address(barrier))
               : "memory");
#endif
}
/// Copies from shared to global memory, in the thread's current bulk group.
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
/// Waits until at most `kPending` of the thread's bulk groups still read shared memory.
template <uint32_t kPending>
__device__ __forceinline__ void wait_stores_read() {
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
#endif
}
/// Waits until all stores of the thread's bulk groups are complete.
__device__ __forceinline__ void wait_stores() {
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
#endif
}
/// Orders accesses of threads and of the bulk copy unit to the same memory: all memory, or shared memory.
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
