// SPDX-License-Identifier: Apache-2.0
// A few elements that one GPU thread moves and reduces together. For nvcc.
//
// Threads: each function works for the calling thread.
#pragma once

#include "tutti/device/operators.h"

namespace tutti::device {

/// `bytes` (8 or 16) of elements of type T.
template <class T, uint32_t bytes>
union alignas(bytes) Pack {
  static constexpr uint32_t kBytes = bytes;
  static constexpr uint32_t kElements = bytes / sizeof(T);
  uint64_t words[bytes / 8] = {};
  T elements[kElements];
};

/// `a` or `b`, chosen word by word. A choice between addresses would force both packs into memory.
template <class T, uint32_t bytes>
__device__ __forceinline__ Pack<T, bytes> choose(bool first, const Pack<T, bytes>& a, const Pack<T, bytes>& b) {
  Pack<T, bytes> chosen;
#pragma unroll
  for (uint32_t w = 0; w < bytes / 8; ++w) chosen.words[w] = first ? a.words[w] : b.words[w];
  return chosen;
}

/// Whether an address is a multiple of a power of two.
template <uint32_t unit>
__device__ __forceinline__ bool aligned(const void* address) {
  return (reinterpret_cast<uintptr_t>(address) & (unit - 1)) == 0;
}

/// Reads the first `bytes` bytes of a pack (all of them, if there are more) from memory aligned to elements only.
template <class T, uint32_t size>
__device__ __forceinline__ Pack<T, size> load_pack(const uint8_t* from, uint32_t bytes) {
  Pack<T, size> value;
  if (bytes >= size && aligned<8>(from)) {
#pragma unroll
    for (uint32_t w = 0; w < size / 8; ++w) value.words[w] = reinterpret_cast<const uint64_t*>(from)[w];
  } else {
#pragma unroll
    for (uint32_t i = 0; i < Pack<T, size>::kElements; ++i) {
      if (i * sizeof(T) < bytes) value.elements[i] = reinterpret_cast<const T*>(from)[i];
    }
  }
  return value;
}

template <class T, uint32_t size>
__device__ __forceinline__ void store_pack(uint8_t* to, const Pack<T, size>& value, uint32_t bytes) {
  if (bytes >= size && aligned<8>(to)) {
#pragma unroll
    for (uint32_t w = 0; w < size / 8; ++w) reinterpret_cast<uint64_t*>(to)[w] = value.words[w];
  } else {
#pragma unroll
    for (uint32_t i = 0; i < Pack<T, size>::kElements; ++i) {
      if (i * sizeof(T) < bytes) reinterpret_cast<T*>(to)[i] = value.elements[i];
    }
  }
}

/// Contributions folded in their accumulators, and rounded once at the end.
template <class T, uint32_t size, class Op>
class PackSum {
 public:
  using Value = Pack<T, size>;
  // A defaulted constructor would let `PackSum{}` store zeros first.
  __device__ __forceinline__ PackSum() {}  // NOLINT(modernize-use-equals-default)
  __device__ __forceinline__ explicit PackSum(const Value& first) { take(first); }

  __device__ __forceinline__ void take(const Value& pack) {
#pragma unroll
    for (uint32_t i = 0; i < Value::kElements; ++i) {
      const auto next = widen(pack.elements[i]);
      sum_[i] = empty_ ? next : Op()(sum_[i], next);
    }
    empty_ = false;
  }
  /// Adds a pack if `wanted`, without a branch. A first contribution must exist.
  __device__ __forceinline__ void take_if(bool wanted, const Value& pack) {
#pragma unroll
    for (uint32_t i = 0; i < Value::kElements; ++i) {
      const auto with = Op()(sum_[i], widen(pack.elements[i]));
      sum_[i] = wanted ? with : sum_[i];
    }
  }
  __device__ __forceinline__ Value value() const {
    Value pack;
#pragma unroll
    for (uint32_t i = 0; i < Value::kElements; ++i) pack.elements[i] = narrow<T>(sum_[i]);
    return pack;
  }
  /// `divisor`: the final operation of an average; 0: none.
  __device__ __forceinline__ Value value(uint32_t divisor) const {
    if (divisor == 0) return value();
    Value pack;
#pragma unroll
    for (uint32_t i = 0; i < Value::kElements; ++i) pack.elements[i] = narrow<T>(divide(sum_[i], divisor));
    return pack;
  }

 private:
  Accumulator<T> sum_[Value::kElements] = {};
  bool empty_ = true;
};

inline constexpr uint32_t kNoOwn = ~0u;

/// Folds the first `count` packs of `others` and the own pack, which is contribution number `own`. Selects by value:
/// with branches, seven folds would take seven times as long.
template <class Op, class T, uint32_t size, uint32_t kMost>
__device__ __forceinline__ Pack<T, size> fold_in_order(const Pack<T, size> (&others)[kMost], uint32_t count,
                                                       uint32_t own, const Pack<T, size>& value, uint32_t divisor) {
  const uint32_t contributions = count + (own == kNoOwn ? 0 : 1);
  PackSum<T, size, Op> sum(choose(own == 0, value, others[0]));
#pragma unroll
  for (uint32_t i = 1; i <= kMost; ++i) {
    const Pack<T, size> next = choose(i < own, others[i < kMost ? i : i - 1], others[i - 1]);
    sum.take_if(i < contributions, choose(i == own, value, next));
  }
  return sum.value(divisor);
}

/// A rank's own contribution to a pre-multiplied sum.
template <class T, uint32_t size>
__device__ __forceinline__ Pack<T, size> scaled(Pack<T, size> pack, uint64_t scalar) {
  const auto factor = scalar_from<T>(scalar);
#pragma unroll
  for (uint32_t i = 0; i < Pack<T, size>::kElements; ++i) {
    pack.elements[i] = narrow<T>(Prod()(widen(pack.elements[i]), factor));
  }
  return pack;
}

}  // namespace tutti::device
