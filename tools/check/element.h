// SPDX-License-Identifier: Apache-2.0
// The properties of element types for the check. It decodes small floats with a table made by ldexp, so it shares no
// code with the kernels.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>

#include "tutti/device/numeric.h"
#include "tutti/types.h"

namespace tutti::check {

/// Calls `visit` with an element of the C++ type of `type`, to deduce that type from.
template <class Visit>
decltype(auto) with_element(DataType type, Visit&& visit) {
  switch (type) {
    case DataType::kInt8:
      return visit(int8_t{});
    case DataType::kUint8:
      return visit(uint8_t{});
    case DataType::kInt32:
      return visit(int32_t{});
    case DataType::kUint32:
      return visit(uint32_t{});
    case DataType::kInt64:
      return visit(int64_t{});
    case DataType::kUint64:
      return visit(uint64_t{});
    case DataType::kFloat16:
      return visit(device::float16{});
    case DataType::kFloat32:
      return visit(float{});
    case DataType::kBfloat16:
      return visit(device::bfloat16{});
    case DataType::kFloat8E4M3:
      return visit(device::float8_e4m3{});
    case DataType::kFloat8E5M2:
      return visit(device::float8_e5m2{});
    default:
      return visit(double{});
  }
}

/// Bits of a float type's significand, the implicit one included.
template <class T>
constexpr int significand_bits() {
  if constexpr (device::SmallFloat<T>) {
    return T::Format::kMantissaBits + 1;
  } else {
    return std::numeric_limits<T>::digits;
  }
}

namespace detail {

/// Sign, exponent and mantissa of a small float's code, by the definition of IEEE 754.
template <class T>
double decode(uint32_t code) {
  using Format = typename T::Format;
  const uint32_t magnitude = code & (Format::kSign - 1);
  const auto exponent = static_cast<int>(magnitude >> Format::kMantissaBits);
  const uint32_t mantissa = magnitude & ((1u << Format::kMantissaBits) - 1);
  const int bias = (1 << (Format::kBits - 2 - Format::kMantissaBits)) - 1;
  const double sign = (code & Format::kSign) != 0 ? -1 : 1;
  if (magnitude >= Format::kSpecial) return sign * (mantissa == 0 ? INFINITY : NAN);
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - Format::kMantissaBits);
  return sign * std::ldexp(mantissa + (1u << Format::kMantissaBits), exponent - bias - Format::kMantissaBits);
}

template <class T>
const auto& decode_table() {
  static const auto table = [] {
    std::array<double, size_t{1} << T::Format::kBits> values;
    for (uint32_t code = 0; code < values.size(); ++code) values[code] = decode<T>(code);
    return values;
  }();
  return table;
}

}  // namespace detail

/// The smallest value above zero of a float type.
template <class T>
double smallest_value() {
  if constexpr (device::SmallFloat<T>) {
    return detail::decode<T>(1);
  } else {
    return std::numeric_limits<T>::denorm_min();
  }
}

/// The value of a float element.
template <class T>
double value_of(T element) {
  if constexpr (device::SmallFloat<T>) {
    return detail::decode_table<T>()[element.code];
  } else {
    return static_cast<double>(element);
  }
}

}  // namespace tutti::check
