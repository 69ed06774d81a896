// SPDX-License-Identifier: Apache-2.0
#include "unit/reduce_reference.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "tutti/plugin/types.h"

namespace tutti::reference {

const std::vector<Type> kTypes = {
    {TUTTI_INT8, "int8", 1, false, true, 0, 0, 0},
    {TUTTI_UINT8, "uint8", 1, false, false, 0, 0, 0},
    {TUTTI_INT32, "int32", 4, false, true, 0, 0, 0},
    {TUTTI_UINT32, "uint32", 4, false, false, 0, 0, 0},
    {TUTTI_INT64, "int64", 8, false, true, 0, 0, 0},
    {TUTTI_UINT64, "uint64", 8, false, false, 0, 0, 0},
    {TUTTI_FLOAT16, "float16", 2, true, true, 5, 10, INFINITY},
    {TUTTI_FLOAT32, "float32", 4, true, true, 8, 23, INFINITY},
    {TUTTI_FLOAT64, "float64", 8, true, true, 11, 52, INFINITY},
    {TUTTI_BFLOAT16, "bfloat16", 2, true, true, 8, 7, INFINITY},
    {TUTTI_FLOAT8_E4M3, "float8_e4m3", 1, true, true, 4, 3, 0},
    {TUTTI_FLOAT8_E5M2, "float8_e5m2", 1, true, true, 5, 2, 0},
};

const Type& type_of(uint32_t value) {
  return kTypes.at(value);
}

namespace {

uint64_t mask_of(const Type& type) {
  return type.bytes == 8 ? ~uint64_t{0} : (uint64_t{1} << (8 * type.bytes)) - 1;
}

/// The definition of a small float, by its fields.
double decode_fields(const Type& type, uint32_t code) {
  const uint32_t mantissa = code & ((1u << type.mantissa_bits) - 1);
  const int exponent = static_cast<int>((code >> type.mantissa_bits) & ((1u << type.exponent_bits) - 1));
  const int bias = (1 << (type.exponent_bits - 1)) - 1;
  const double sign = (code >> (type.exponent_bits + type.mantissa_bits)) != 0 ? -1 : 1;
  const bool last_exponent = exponent == (1 << type.exponent_bits) - 1;
  if (type.value == TUTTI_FLOAT8_E4M3) {
    if (last_exponent && mantissa == 7) return NAN;
  } else if (last_exponent) {
    return mantissa == 0 ? sign * INFINITY : NAN;
  }
  const double fraction = std::ldexp(mantissa, -type.mantissa_bits);
  return sign * (exponent == 0 ? std::ldexp(fraction, 1 - bias) : std::ldexp(1 + fraction, exponent - bias));
}

/// All non-negative finite values of a small float, ascending, with their codes.
const std::vector<std::pair<double, uint32_t>>& values_of(const Type& type) {
  static std::map<uint32_t, std::vector<std::pair<double, uint32_t>>> cache;
  auto& values = cache[type.value];
  if (values.empty()) {
    for (uint32_t code = 0; code < 1u << (8 * type.bytes - 1); ++code) {
      const double value = decode_fields(type, code);
      if (std::isfinite(value)) values.emplace_back(value, code);
    }
    std::sort(values.begin(), values.end());
    if (type.overflow != 0) {  // infinity rounds like the value that would come next
      const double step = values.back().first - values[values.size() - 2].first;
      values.emplace_back(values.back().first + step, values.back().second + 1);
    }
  }
  return values;
}

uint64_t encode_small(const Type& type, double value) {
  const uint32_t sign = std::signbit(value) ? 1u << (8 * type.bytes - 1) : 0;
  if (std::isnan(value)) return sign | ((1u << (8 * type.bytes - 1)) - 1);
  const auto& values = values_of(type);
  const double magnitude = std::abs(value);
  const auto above = std::lower_bound(values.begin(), values.end(), std::make_pair(magnitude, 0u));
  if (above == values.end()) return sign | values.back().second;
  if (above == values.begin()) return sign | above->second;
  const auto below = above - 1;
  const double to_above = above->first - magnitude;
  const double to_below = magnitude - below->first;
  if (to_above != to_below) return sign | (to_above < to_below ? above->second : below->second);
  return sign | (above->second % 2 == 0 ? above->second : below->second);
}

/// One step in the accumulator: float for every float type but float64. Double holds enough digits of the exact result
/// of one operation on floats that the second rounding is harmless.
double in_accumulator(const Type& type, double value) {
  return type.value == TUTTI_FLOAT64 ? value : static_cast<double>(static_cast<float>(value));
}

double fold_float(const Type& type, uint32_t op, double a, double b) {
  switch (op) {
    case TUTTI_PROD:
      return in_accumulator(type, a * b);
    case TUTTI_MAX:
    case TUTTI_MIN: {
      if (std::isnan(a) || std::isnan(b)) return NAN;
      const bool a_first = a < b || (a == b && std::signbit(a));
      return a_first == (op == TUTTI_MIN) ? a : b;
    }
    default:
      return in_accumulator(type, a + b);
  }
}

/// The value of an integer code, in the low bits of 64: sign-extended if signed.
uint64_t extend(const Type& type, uint64_t code) {
  code &= mask_of(type);
  const bool negative = type.is_signed && (code >> (8 * type.bytes - 1)) != 0;
  return negative ? code | ~mask_of(type) : code;
}

uint64_t fold_integer(const Type& type, uint32_t op, uint64_t a, uint64_t b) {
  const bool a_less = type.is_signed ? static_cast<int64_t>(a) < static_cast<int64_t>(b) : a < b;
  switch (op) {
    case TUTTI_PROD:
      return extend(type, a * b);
    case TUTTI_MAX:
      return a_less ? b : a;
    case TUTTI_MIN:
      return a_less ? a : b;
    default:
      return extend(type, a + b);
  }
}

uint64_t reduce_floats(const Type& type, uint32_t op, const std::vector<uint64_t>& codes, const Scaling& scaling) {
  double value = 0;
  for (size_t s = 0; s < codes.size(); ++s) {
    double operand = decode(type, codes[s]);
    if (static_cast<int32_t>(s) == scaling.scaled_source) {
      operand = decode(type, encode(type, in_accumulator(type, operand * decode(type, scaling.scalar))));
    }
    value = s == 0 ? operand : fold_float(type, op, value, operand);
  }
  if (scaling.divisor != 0) value = in_accumulator(type, value / scaling.divisor);
  return encode(type, value);
}

uint64_t reduce_integers(const Type& type, uint32_t op, const std::vector<uint64_t>& codes, const Scaling& scaling) {
  uint64_t value = 0;
  for (size_t s = 0; s < codes.size(); ++s) {
    uint64_t operand = extend(type, codes[s]);
    if (static_cast<int32_t>(s) == scaling.scaled_source) {
      operand = extend(type, operand * extend(type, scaling.scalar));
    }
    value = s == 0 ? operand : fold_integer(type, op, value, operand);
  }
  if (scaling.divisor != 0) {
    const bool negative = type.is_signed && static_cast<int64_t>(value) < 0;
    const uint64_t magnitude = (negative ? 0 - value : value) / scaling.divisor;
    value = negative ? 0 - magnitude : magnitude;
  }
  return value & mask_of(type);
}

}  // namespace

double decode(const Type& type, uint64_t code) {
  if (type.value == TUTTI_FLOAT64) return std::bit_cast<double>(code);
  if (type.value == TUTTI_FLOAT32) return static_cast<double>(std::bit_cast<float>(static_cast<uint32_t>(code)));
  return decode_fields(type, static_cast<uint32_t>(code));
}

uint64_t encode(const Type& type, double value) {
  if (type.value == TUTTI_FLOAT64) return std::bit_cast<uint64_t>(value);
  if (type.value == TUTTI_FLOAT32) return std::bit_cast<uint32_t>(static_cast<float>(value));
  return encode_small(type, value);
}

bool is_nan(const Type& type, uint64_t code) {
  return type.is_float && std::isnan(decode(type, code));
}

uint64_t reduce(const Type& type, uint32_t op, const std::vector<uint64_t>& codes, const Scaling& scaling) {
  if (codes.size() == 1 && scaling.scaled_source != 0 && scaling.divisor == 0) return codes[0];
  return type.is_float ? reduce_floats(type, op, codes, scaling) : reduce_integers(type, op, codes, scaling);
}

}  // namespace tutti::reference
