// SPDX-License-Identifier: Apache-2.0
// Moves one slice: folds data from several sources and writes the value to several destinations. For nvcc.
//
// Threads: all worker threads of the CTA call each function, unless it states otherwise.
#pragma once

#include "tutti/device/cuda/pack.h"
#include "tutti/plugin/cuda.h"

namespace tutti::device {

inline constexpr uint32_t kNone = ~0u;

/// Sources and destinations of a move in a communicator of at most `kRanks` ranks. The structure lies in shared memory.
/// `from` has the order of the fold.
template <uint32_t kRanks>
struct OperandsOf {
  const uint8_t* from[kRanks];
  uint8_t* to[kRanks + 1];
  uint32_t from_count;
  uint32_t to_count;
  uint32_t scaled;   ///< the contribution that is multiplied by the scalar, or kNone
  uint32_t divisor;  ///< divisor of the final operation; 0: none
};

/// For addresses that are multiples of 16 bytes, in packs of 16 bytes. Each thread loads `kUnroll` packs of each of the
/// `kSources` contributions before it uses any of them.
template <class T, class Op, uint32_t kSources, uint32_t kUnroll, uint32_t kRanks>
__device__ __forceinline__ void move_packs(const OperandsOf<kRanks>& operands, uint32_t packs, uint32_t thread,
                                           uint32_t threads, uint64_t scalar) {
  using Value = Pack<T, 16>;
  const uint32_t sources = operands.from_count;
  const bool folds = sources > 1 || operands.divisor != 0;
  for (uint32_t begin = thread; begin < packs; begin += threads * kUnroll) {
    PackSum<T, 16, Op> sum[kUnroll];
    Value value[kSources][kUnroll];
    for (uint32_t first = 0; first < sources; first += kSources) {
#pragma unroll
      for (uint32_t s = 0; s < kSources; ++s) {
        if (first + s >= sources) continue;
        const uint4* const from = reinterpret_cast<const uint4*>(operands.from[first + s]) + begin;
#pragma unroll
        for (uint32_t u = 0; u < kUnroll; ++u) {
          if (begin + u * threads < packs) value[s][u] = __builtin_bit_cast(Value, __ldcs(from + u * threads));
        }
      }
#pragma unroll
      for (uint32_t s = 0; s < kSources; ++s) {
        if (first + s >= sources) continue;
        const bool scales = first + s == operands.scaled;
#pragma unroll
        for (uint32_t u = 0; u < kUnroll; ++u) {
          if (scales) value[s][u] = scaled(value[s][u], scalar);
          if (folds) sum[u].take(value[s][u]);
        }
      }
    }
#pragma unroll
    for (uint32_t u = 0; u < kUnroll; ++u) {
      if (folds) value[0][u] = sum[u].value(operands.divisor);
    }
    for (uint32_t d = 0; d < operands.to_count; ++d) {
      uint4* const to = reinterpret_cast<uint4*>(operands.to[d]) + begin;
#pragma unroll
      for (uint32_t u = 0; u < kUnroll; ++u) {
        if (begin + u * threads < packs) to[u * threads] = __builtin_bit_cast(uint4, value[0][u]);
      }
    }
  }
}

/// Folds `packs` packs of 16 bytes of each source onto the first source. Issues the loads of `kUnroll` packs before it
/// uses any of them. `more`: number of sources beyond the first `kSources`. `kDivides`: `divisor` is not 0. Code with
/// divisions takes more time for a tile than all remaining code, even if a branch skips the divisions.
template <class T, class Op, uint32_t kSources, uint32_t kUnroll, bool kDivides>
__device__ __forceinline__ void fold_packs(uint8_t* tile, uint32_t stride, uint32_t packs, uint32_t more,
                                           uint32_t divisor, uint32_t thread, uint32_t threads) {
  using Value = Pack<T, 16>;
  const auto pack_of = [&](uint32_t source, uint32_t pack) {
    return __builtin_bit_cast(Value, *reinterpret_cast<const uint4*>(tile + source * stride + pack * 16));
  };
  for (uint32_t begin = thread; begin < packs; begin += threads * kUnroll) {
    Value value[kSources][kUnroll];
#pragma unroll
    for (uint32_t s = 0; s < kSources; ++s) {
#pragma unroll
      for (uint32_t u = 0; u < kUnroll; ++u) {
        if (begin + u * threads < packs) value[s][u] = pack_of(s, begin + u * threads);
      }
    }
#pragma unroll
    for (uint32_t u = 0; u < kUnroll; ++u) {
      const uint32_t pack = begin + u * threads;
      if (pack >= packs) break;
      PackSum<T, 16, Op> sum;
#pragma unroll
      for (uint32_t s = 0; s < kSources; ++s) sum.take(value[s][u]);
      for (uint32_t s = kSources; s < kSources + more; ++s) sum.take(pack_of(s, pack));
      const Value value_of_all = kDivides ? sum.value(divisor) : sum.value();
      *reinterpret_cast<uint4*>(tile + pack * 16) = __builtin_bit_cast(uint4, value_of_all);
    }
  }
}

/// Folds a tile onto its first source. The sources lie in shared memory, `stride` bytes apart. `bytes` is a multiple of
/// 16. One warp.
template <class T, class Op, uint32_t kRanks>
__device__ __forceinline__ void fold_tile(const OperandsOf<kRanks>& operands, uint8_t* tile, uint32_t stride,
                                          uint32_t bytes, uint32_t thread, uint32_t threads, uint64_t scalar) {
  const uint32_t packs = bytes / 16;
  const uint32_t sources = operands.from_count;
  const uint32_t divisor = operands.divisor;
  if (operands.scaled != kNone) {
    uint8_t* const own = tile + operands.scaled * stride;
    for (uint32_t pack = thread; pack < packs; pack += threads) {
      auto& place = reinterpret_cast<uint4*>(own)[pack];
      place = __builtin_bit_cast(uint4, scaled(__builtin_bit_cast(Pack<T, 16>, place), scalar));
    }
  }
  // Accumulators of small floats take more registers than their elements.
  constexpr uint32_t kUnroll = sizeof(Accumulator<T>) > sizeof(T) ? 2 : 4;
  if (divisor != 0) {
    fold_packs<T, Op, 1, 1, true>(tile, stride, packs, sources - 1, divisor, thread, threads);
  } else if (sources == 2) {
    fold_packs<T, Op, 2, kUnroll, false>(tile, stride, packs, 0, 0, thread, threads);
  } else if (sources > 2) {
    fold_packs<T, Op, 3, 2, false>(tile, stride, packs, sources - 3, 0, thread, threads);
  }
}

/// Moves element by element, from byte `first` on. Loads several elements of each contribution before it uses any of
/// them.
template <class T, class Op, uint32_t kRanks>
__device__ __forceinline__ void move_elements(const OperandsOf<kRanks>& operands, uint64_t first, uint64_t bytes,
                                              uint32_t thread, uint32_t threads, uint64_t scalar) {
  constexpr uint32_t kUnroll = 4;
  const uint64_t stride = uint64_t{threads} * sizeof(T);
  for (uint64_t begin = first + thread * sizeof(T); begin < bytes; begin += kUnroll * stride) {
    Accumulator<T> sum[kUnroll] = {};
    T value[kUnroll] = {};
    for (uint32_t s = 0; s < operands.from_count; ++s) {
#pragma unroll
      for (uint32_t u = 0; u < kUnroll; ++u) {
        const uint64_t at = begin + u * stride;
        if (at < bytes) value[u] = *reinterpret_cast<const T*>(operands.from[s] + at);
      }
#pragma unroll
      for (uint32_t u = 0; u < kUnroll; ++u) {
        if (s == operands.scaled) value[u] = narrow<T>(Prod()(widen(value[u]), scalar_from<T>(scalar)));
        sum[u] = s == 0 ? widen(value[u]) : Op()(sum[u], widen(value[u]));
      }
    }
    const bool folds = operands.from_count > 1 || operands.divisor != 0;
#pragma unroll
    for (uint32_t u = 0; u < kUnroll; ++u) {
      const uint64_t at = begin + u * stride;
      if (at >= bytes) break;
      if (operands.divisor != 0) sum[u] = divide(sum[u], operands.divisor);
      if (folds) value[u] = narrow<T>(sum[u]);
      for (uint32_t d = 0; d < operands.to_count; ++d) *reinterpret_cast<T*>(operands.to[d] + at) = value[u];
    }
  }
}

/// Moves the share of thread `thread` of `threads`.
template <class T, class Op, uint32_t kRanks>
__device__ __forceinline__ void move_slice(const OperandsOf<kRanks>& operands, uint64_t bytes, uint32_t thread,
                                           uint32_t threads, uint64_t scalar) {
  bool packs = true;
  for (uint32_t s = 0; s < operands.from_count; ++s) packs = packs && aligned<16>(operands.from[s]);
  for (uint32_t d = 0; d < operands.to_count; ++d) packs = packs && aligned<16>(operands.to[d]);
  const uint32_t whole = packs ? static_cast<uint32_t>(bytes / 16) : 0;
  // Accumulators of small floats take more registers than their elements.
  constexpr uint32_t kWide = sizeof(Accumulator<T>) > sizeof(T) ? 2 : 1;
  if (operands.from_count == 1 && operands.divisor == 0) {
    move_packs<T, Op, 1, 8>(operands, whole, thread, threads, scalar);
  } else if (operands.from_count <= 2) {
    move_packs<T, Op, 2, 4 / kWide>(operands, whole, thread, threads, scalar);
  } else {
    move_packs<T, Op, 4, 2 / kWide>(operands, whole, thread, threads, scalar);
  }
  move_elements<T, Op>(operands, uint64_t{whole} * 16, bytes, thread, threads, scalar);
}

}  // namespace tutti::device
