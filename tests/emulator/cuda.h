// SPDX-License-Identifier: Apache-2.0
// The words of CUDA C++ that the kernels use, for a compiler of the host. Include it before any of theirs.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <type_traits>
#include <vector>

#include "emulator/cta.h"

#define __device__
#define __host__
#define __global__
#define __grid_constant__
#define __launch_bounds__(...)
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __shared__ thread_local  // a CTA runs on one thread

struct Index {
  uint32_t x = 0;
  uint32_t y = 0;
};
/// Indices of the running thread, set by run_cta().
inline thread_local Index threadIdx, blockIdx, blockDim, gridDim;

struct alignas(16) uint4 {
  uint32_t x, y, z, w;
};
inline uint4 __ldcs(const uint4* from) {
  return *from;
}

template <class A, class B>
constexpr auto min(A a, B b) {
  using Common = std::common_type_t<A, B>;
  return std::min<Common>(a, b);
}
template <class A, class B>
constexpr auto max(A a, B b) {
  using Common = std::common_type_t<A, B>;
  return std::max<Common>(a, b);
}
inline int __ffs(int value) {
  return __builtin_ffs(value);
}
inline int __clz(uint32_t value) {
  return std::countl_zero(value);
}

inline void __syncthreads() {
  tutti::emulator::meet_cta(tutti::emulator::Meeting::kSync, false);
}
inline int __syncthreads_or(int vote) {
  return tutti::emulator::meet_cta(tutti::emulator::Meeting::kVote, vote != 0) ? 1 : 0;
}
/// Kernels name all threads of the warp, always.
inline void require_whole_warp(uint32_t mask) {
  if (mask != 0xffffffffu) std::abort();
}
inline void __syncwarp() {
  tutti::emulator::meet_warp(tutti::emulator::Meeting::kSync, 0);
}
inline int __all_sync(uint32_t mask, int vote) {
  require_whole_warp(mask);
  return tutti::emulator::meet_warp(tutti::emulator::Meeting::kVote, vote).votes == 0xffffffffu;
}
inline int __any_sync(uint32_t mask, int vote) {
  require_whole_warp(mask);
  return tutti::emulator::meet_warp(tutti::emulator::Meeting::kVote, vote).votes != 0;
}
inline int32_t __reduce_max_sync(uint32_t mask, int32_t value) {
  require_whole_warp(mask);
  return tutti::emulator::meet_warp(tutti::emulator::Meeting::kReduceMax, value).most;
}
inline void __threadfence_system() {
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
