// SPDX-License-Identifier: Apache-2.0
// What one GPU thread moves at once with LL: a line of two words, 8 bytes of data and their flags. For nvcc.
#pragma once

#include "tutti/device/ll.h"
#include "tutti/device/operators.h"

namespace tutti::device {

inline constexpr uint32_t kLineBytes = 8;

template <class T>
union Line {
  static constexpr uint32_t kElements = kLineBytes / sizeof(T);
  uint64_t bits = 0;
  uint32_t words[2];
  T elements[kElements];
};

/// Both words are written whatever the length of the data, so that readers need not know it.
template <class T>
__device__ __forceinline__ void send_line(uint8_t* to, Line<T> value, uint32_t flag) {
  asm volatile("st.relaxed.sys.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(value.words[0]), "r"(flag),
               "r"(value.words[1]), "r"(flag)
               : "memory");
}

/// Whether the line is there.
template <class T>
__device__ __forceinline__ bool receive_line(const uint8_t* from, Line<T>& value, uint32_t flag) {
  uint32_t first = 0;
  uint32_t second = 0;
  asm volatile("ld.relaxed.sys.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.words[0]), "=r"(first), "=r"(value.words[1]), "=r"(second)
               : "l"(from)
               : "memory");
  return first == flag && second == flag;
}

/// Buffers are aligned to their elements only. `bytes` of the line are data.
template <class T>
__device__ __forceinline__ Line<T> load_line(const uint8_t* from, uint32_t bytes) {
  Line<T> value;
  if (bytes >= kLineBytes && reinterpret_cast<uintptr_t>(from) % kLineBytes == 0) {
    value.bits = *reinterpret_cast<const uint64_t*>(from);
  } else {
    for (uint32_t i = 0; i < Line<T>::kElements; ++i) {
      if (i * sizeof(T) < bytes) value.elements[i] = reinterpret_cast<const T*>(from)[i];
    }
  }
  return value;
}
template <class T>
__device__ __forceinline__ void store_line(uint8_t* to, Line<T> value, uint32_t bytes) {
  if (bytes >= kLineBytes && reinterpret_cast<uintptr_t>(to) % kLineBytes == 0) {
    *reinterpret_cast<uint64_t*>(to) = value.bits;
  } else {
    for (uint32_t i = 0; i < Line<T>::kElements; ++i) {
      if (i * sizeof(T) < bytes) reinterpret_cast<T*>(to)[i] = value.elements[i];
    }
  }
}

/// Contributions folded in their accumulators, and rounded once at the end.
template <class T, class Op>
class LineSum {
 public:
  __device__ __forceinline__ void take(Line<T> line) {
    for (uint32_t i = 0; i < Line<T>::kElements; ++i) {
      const auto next = widen(line.elements[i]);
      sum_[i] = empty_ ? next : Op()(sum_[i], next);
    }
    empty_ = false;
  }
  /// `divisor`: the final operation of an average; 0: none.
  __device__ __forceinline__ Line<T> value(uint32_t divisor) const {
    Line<T> line;
    for (uint32_t i = 0; i < Line<T>::kElements; ++i) {
      line.elements[i] = narrow<T>(divisor != 0 ? divide(sum_[i], divisor) : sum_[i]);
    }
    return line;
  }

 private:
  Accumulator<T> sum_[Line<T>::kElements] = {};
  bool empty_ = true;
};

/// The rank's own contribution to a pre-multiplied sum.
template <class T>
__device__ __forceinline__ Line<T> scaled_line(Line<T> line, uint64_t scalar) {
  const auto factor = scalar_from<T>(scalar);
  for (uint32_t i = 0; i < Line<T>::kElements; ++i) {
    line.elements[i] = narrow<T>(Prod()(widen(line.elements[i]), factor));
  }
  return line;
}

}  // namespace tutti::device
