// SPDX-License-Identifier: Apache-2.0
// The machine instructions that C++ has no words for, by name. For nvcc; what needs a newer chip does nothing on an
// older one, and kHasBulkCopies says so. Nothing else in the kernels is assembly, so whoever replaces this header can
// run them elsewhere: the tests do, on the CPU.
//
// Scope and order are PTX's ("relaxed", "acquire", of the "gpu" or the whole "sys"tem).
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
/// Two neighbours at once, as this GPU alone writes them.
__device__ __forceinline__ void load_pair(const uint32_t* words, uint32_t& first, uint32_t& second) {
  asm volatile("ld.relaxed.gpu.global.v2.u32 {%0, %1}, [%2];" : "=r"(first), "=r"(second) : "l"(words) : "memory");
}
/// What was stored before is there before what is stored after.
__device__ __forceinline__ void fence_release() {
  asm volatile("fence.acq_rel.sys;" ::: "memory");
}

/// 16 bytes: each half arrives whole.
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

// --- What a thread can ask of its surroundings

/// Polls of a wait between two looks at the clock and at memory of the host, which take 1 µs.
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

// --- Bulk copies, which an engine beside the SM's threads makes, and the barriers in shared memory ("mbarrier") that
// --- they complete on

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
/// Counts for `times` arrivals; releases what the thread did before.
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
/// One arrival; the phase ends not before `bytes` more of bulk loads have come.
__device__ __forceinline__ void arrive_expecting_bytes(uint64_t* barrier, uint32_t bytes) {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "{ .reg .b64 state; mbarrier.arrive.expect_tx.shared::cta.b64 state, [%0], %1; }" ::"r"(shared_address(barrier)),
      "r"(bytes)
      : "memory");
#endif
}
/// Whether the phase of this parity is over; acquires.
__device__ __forceinline__ bool test_barrier(const uint64_t* barrier, uint32_t parity) {
  uint32_t done;
  asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
               : "=r"(done)
               : "r"(shared_address(barrier)), "r"(parity)
               : "memory");
  return done != 0;
}
/// As test_barrier(), but may itself wait a little.
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

/// From global to shared memory; all in units of 16 bytes. Its bytes count for the barrier's phase.
__device__ __forceinline__ void load_bulk(void* to, const void* from, uint32_t bytes, uint64_t* barrier) {
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                   shared_address(to)),
               "l"(from), "r"(bytes), "r"(shared_address(barrier))
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
