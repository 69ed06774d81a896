// SPDX-License-Identifier: Apache-2.0
// Element types that C++ lacks, and the accumulator that every element type is reduced in. For g++, clang++ and nvcc.
//
//   widen(value)          element -> accumulator, exact
//   narrow<T>(value)      accumulator -> element, rounded once, to nearest even
//
// 8- and 16-bit floats accumulate in float, all other types in themselves. Subnormals are kept. A NaN stays a NaN;
// its sign and payload are unspecified. Too large a value becomes infinity in float16 and bfloat16, and the largest
// finite value in both float8 types, infinity included: that is CUDA's saturating conversion (__NV_SATFINITE).
//
// Threads: any thread of the host or of a GPU. The functions keep no state.
// Errors: none. Each conversion has a result for all values.
#pragma once

#include <cstdint>
#include <type_traits>

#if defined(__CUDACC__)
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#define TUTTI_HD __host__ __device__ __forceinline__
#else
/// A function for host and device. Always inlined, so that no two instruction sets ever share one compiled body.
#define TUTTI_HD inline __attribute__((always_inline))
#endif

namespace tutti::device {

/// The layout of a small float: sign, exponent, mantissa. Codes below are without the sign bit: values above `top`
/// round to `top`; codes from `special` on are infinity (mantissa zero, unless special == nan) and NaN.
template <int exponent_bits, int mantissa_bits, uint32_t top, uint32_t special, uint32_t nan>
struct FloatFormat {
  static constexpr int kBits = 1 + exponent_bits + mantissa_bits;
  static constexpr int kMantissaBits = mantissa_bits;
  static constexpr uint32_t kSign = 1u << (kBits - 1);
  static constexpr uint32_t kTop = top;
  static constexpr uint32_t kSpecial = special;
  static constexpr uint32_t kNan = nan;
  /// How much smaller the exponent's bias is than that of float (127).
  static constexpr uint32_t kRebias = 128u - (1u << (exponent_bits - 1));
};

/// IEEE 754 binary16.
struct float16 {
  using Format = FloatFormat<5, 10, 0x7c00, 0x7c00, 0x7e00>;
  uint16_t code;
};
/// The upper half of a float.
struct bfloat16 {
  using Format = FloatFormat<8, 7, 0x7f80, 0x7f80, 0x7fc0>;
  uint16_t code;
};
/// OCP 8-bit float "E4M3FN": largest value 448, no infinity, NaN is 0x7f and 0xff.
struct float8_e4m3 {
  using Format = FloatFormat<4, 3, 0x7e, 0x7f, 0x7f>;
  uint8_t code;
};
/// OCP 8-bit float E5M2: largest finite value 57344. Infinity is read, but arithmetic saturates and never makes
/// infinity.
struct float8_e5m2 {
  using Format = FloatFormat<5, 2, 0x7b, 0x7c, 0x7e>;
  uint8_t code;
};

template <class T>
concept SmallFloat = requires {
  typename T::Format;
};

/// The type in which elements of type T are combined.
template <class T>
using Accumulator = std::conditional_t<SmallFloat<T>, float, T>;

template <class... T>
struct TypeList {};
/// The element types in the order of the TUTTI_* data types.
using ElementTypes = TypeList<int8_t, uint8_t, int32_t, uint32_t, int64_t, uint64_t, float16, float, double, bfloat16,
                              float8_e4m3, float8_e5m2>;

/// The value of a small float's code, exactly. Works on uint32_t and float, and equally on vectors of them.
template <class Format, class Floats, class Words>
TUTTI_HD Floats decode(Words code) {
  constexpr uint32_t kExponentOne = 1u << 23;
  constexpr uint32_t kRebias = Format::kRebias << 23;
  if constexpr (kRebias == 0) return __builtin_bit_cast(Floats, code << (32 - Format::kBits));
  const Words sign = (code & Format::kSign) << (32 - Format::kBits);
  // The code's exponent and mantissa where float has them.
  const Words shifted = (code & (Format::kSign - 1)) << (23 - Format::kMantissaBits);
  // A subnormal gets the exponent of the smallest normal number; the subtraction removes its implicit leading bit.
  const Floats subnormal = __builtin_bit_cast(Floats, shifted + (kRebias + kExponentOne)) -
                           __builtin_bit_cast(float, kRebias + kExponentOne);
  Words bits = shifted < kExponentOne ? __builtin_bit_cast(Words, subnormal) : shifted + kRebias;
  constexpr uint32_t kSpecial = Format::kSpecial << (23 - Format::kMantissaBits);
  constexpr uint32_t kFloatSpecial = Format::kSpecial == Format::kNan ? 0x7fc00000u : 0x7f800000u;
  bits = shifted >= kSpecial ? shifted - kSpecial + kFloatSpecial : bits;
  return __builtin_bit_cast(Floats, sign | bits);
}

/// The code of the small float nearest to `value`, ties to even. The inverse of decode().
template <class Format, class Words, class Floats>
TUTTI_HD Words encode(Floats value) {
  constexpr int kDropped = 23 - Format::kMantissaBits;
  constexpr uint32_t kAlmostHalf = (1u << (kDropped - 1)) - 1;
  const Words bits = __builtin_bit_cast(Words, value);
  const Words odd = (bits >> kDropped) & 1u;
  if constexpr (Format::kRebias == 0) {
    return value != value ? (bits >> kDropped) | Format::kNan : (bits + odd + kAlmostHalf) >> kDropped;
  }
  const Words magnitude = bits & 0x7fffffffu;
  const Words normal = (magnitude + odd + (kAlmostHalf - (Format::kRebias << 23))) >> kDropped;
  // Below the least normal number: adding a power of two whose last bit is the least subnormal rounds right there.
  constexpr uint32_t kAnchor = (Format::kRebias + 1 + kDropped) << 23;
  const Floats absolute = __builtin_bit_cast(Floats, magnitude);
  const Words subnormal = __builtin_bit_cast(Words, absolute + __builtin_bit_cast(float, kAnchor)) - kAnchor;
  Words code = absolute < __builtin_bit_cast(float, (Format::kRebias + 1) << 23) ? subnormal : normal;
  code = code > Format::kTop ? Words{} + Format::kTop : code;
  code = value != value ? Words{} + Format::kNan : code;
  return code | ((bits >> (32 - Format::kBits)) & Format::kSign);
}

#if defined(__CUDACC__)
/// The GPU's own conversions.
namespace gpu {
__device__ __forceinline__ float widen(float16 value) {
  return __half2float(__ushort_as_half(value.code));
}
__device__ __forceinline__ float widen(bfloat16 value) {
  return __uint_as_float(uint32_t{value.code} << 16);
}
__device__ __forceinline__ float widen(float8_e4m3 value) {
  return __half2float(__nv_cvt_fp8_to_halfraw(value.code, __NV_E4M3));
}
__device__ __forceinline__ float widen(float8_e5m2 value) {
  return __half2float(__nv_cvt_fp8_to_halfraw(value.code, __NV_E5M2));
}
template <class T>
__device__ __forceinline__ T narrow(float value) {
  if constexpr (std::is_same_v<T, float16>) return {__half_as_ushort(__float2half_rn(value))};
  if constexpr (std::is_same_v<T, bfloat16>) return {__bfloat16_as_ushort(__float2bfloat16_rn(value))};
  if constexpr (std::is_same_v<T, float8_e4m3>) return {__nv_cvt_float_to_fp8(value, __NV_SATFINITE, __NV_E4M3)};
  if constexpr (std::is_same_v<T, float8_e5m2>) return {__nv_cvt_float_to_fp8(value, __NV_SATFINITE, __NV_E5M2)};
}
}  // namespace gpu
#endif

template <class T>
TUTTI_HD Accumulator<T> widen(T value) {
  if constexpr (SmallFloat<T>) {
#if defined(__CUDA_ARCH__)
    return gpu::widen(value);
#else
    return decode<typename T::Format, float>(uint32_t{value.code});
#endif
  } else {
    return value;
  }
}

template <class T>
TUTTI_HD T narrow(Accumulator<T> value) {
  if constexpr (SmallFloat<T>) {
#if defined(__CUDA_ARCH__)
    return gpu::narrow<T>(value);
#else
    return {static_cast<decltype(T::code)>(encode<typename T::Format, uint32_t>(value))};
#endif
  } else {
    return value;
  }
}

}  // namespace tutti::device
