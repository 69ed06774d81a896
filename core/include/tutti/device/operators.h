// SPDX-License-Identifier: Apache-2.0
// Reduction operators over accumulators (numeric.h): Sum, Prod, Max, Min, and the scalings of average and
// pre-multiplied sum. They take scalars, and equally the vectors of a compiler that has them.
//
// Integers wrap around in their own width. Max and Min of floats are IEEE 754-2019 maximum and minimum: a NaN operand
// gives NaN, and -0 is less than +0; so both are commutative and associative.
//
// Threads: any thread of the host or of a GPU. The functions keep no state.
// Errors: none. Each operator has a result for all operands.
#pragma once

#include <cstdint>
#include <type_traits>
#include <utility>

#include "tutti/device/numeric.h"

namespace tutti::device {

namespace detail {
/// Integers that show the bits of A; A itself where A is made of integers. At first for vectors:
template <class A>
struct BitsOf {
  using Lane = std::remove_cvref_t<decltype(std::declval<A&>()[0])>;
  using Mask = decltype(std::declval<A>() == std::declval<A>());  // signed integers as wide as the lanes
  using Type = std::conditional_t<std::is_floating_point_v<Lane>, Mask, A>;
};
template <class A>
requires(std::is_integral_v<A>) struct BitsOf<A> {
  using Type = A;
};
template <>
struct BitsOf<float> {
  using Type = uint32_t;
};
template <>
struct BitsOf<double> {
  using Type = uint64_t;
};

/// For integers whose arithmetic could overflow: the unsigned type in which it wraps, wide enough not to be promoted to
/// int.
template <class A, bool = std::is_integral_v<A>>
struct Wrapping {
  using Type = A;
};
template <class A>
struct Wrapping<A, true> {
  using Type = std::conditional_t<sizeof(A) == 8, uint64_t, uint32_t>;
};
template <class A>
using Wrapped = typename Wrapping<A>::Type;
}  // namespace detail

struct Sum {
  template <class A>
  TUTTI_HD A operator()(A a, A b) const {
    return static_cast<A>(static_cast<detail::Wrapped<A>>(a) + static_cast<detail::Wrapped<A>>(b));
  }
};

struct Prod {
  template <class A>
  TUTTI_HD A operator()(A a, A b) const {
    return static_cast<A>(static_cast<detail::Wrapped<A>>(a) * static_cast<detail::Wrapped<A>>(b));
  }
};

struct Max {
  template <class A>
  TUTTI_HD A operator()(A a, A b) const {
    using Bits = typename detail::BitsOf<A>::Type;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    if constexpr (std::is_same_v<A, float>) {
      asm("max.NaN.f32 %0, %0, %1;" : "+f"(a) : "f"(b));
      return a;
    }
#endif
    const A larger = a > b ? a : b;  // b if they are equal or any is NaN
    if constexpr (std::is_same_v<Bits, A>) {
      return larger;
    } else {  // equal zeros: the zero without a sign
      const A ordered =
          a == b ? __builtin_bit_cast(A, __builtin_bit_cast(Bits, a) & __builtin_bit_cast(Bits, b)) : larger;
      return a != a ? a : ordered;
    }
  }
};

struct Min {
  template <class A>
  TUTTI_HD A operator()(A a, A b) const {
    using Bits = typename detail::BitsOf<A>::Type;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    if constexpr (std::is_same_v<A, float>) {
      asm("min.NaN.f32 %0, %0, %1;" : "+f"(a) : "f"(b));
      return a;
    }
#endif
    const A smaller = a < b ? a : b;
    if constexpr (std::is_same_v<Bits, A>) {
      return smaller;
    } else {  // equal zeros: the zero with a sign
      const A ordered =
          a == b ? __builtin_bit_cast(A, __builtin_bit_cast(Bits, a) | __builtin_bit_cast(Bits, b)) : smaller;
      return a != a ? a : ordered;
    }
  }
};

/// The last step of an average over n contributions (n > 0). Integers truncate towards zero; floats are divided in the
/// accumulator, before the one rounding of narrow().
template <class A>
TUTTI_HD A divide(A sum, uint32_t n) {
  if constexpr (std::is_floating_point_v<A>) {
    return sum / static_cast<A>(n);
  } else if constexpr (std::is_signed_v<A>) {
    return static_cast<A>(int64_t{sum} / int64_t{n});
  } else {
    return static_cast<A>(uint64_t{sum} / uint64_t{n});
  }
}

/// The factor of a pre-multiplied sum: one element of type T in the low bytes of `bits`. Apply it by Prod to the rank's
/// own contribution, in the accumulator.
template <class T>
TUTTI_HD Accumulator<T> scalar_from(uint64_t bits) {
  if constexpr (SmallFloat<T>) {
    return widen(T{static_cast<decltype(T::code)>(bits)});
  } else if constexpr (std::is_same_v<T, float>) {
    return __builtin_bit_cast(float, static_cast<uint32_t>(bits));
  } else if constexpr (std::is_same_v<T, double>) {
    return __builtin_bit_cast(double, bits);
  } else {
    return static_cast<T>(bits);
  }
}

}  // namespace tutti::device
