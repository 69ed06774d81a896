// SPDX-License-Identifier: Apache-2.0
// The right result of a reduction, computed one element at a time from the definitions of the types: values as double
// or 64-bit integers, small floats by table and search. Shares no code with the kernels.
#pragma once

#include <cstdint>
#include <ostream>
#include <vector>

namespace tutti::reference {

/// An element type by its TUTTI_* value; an element is a code, its bits in the low end.
struct Type {
  uint32_t value;
  const char* name;
  uint32_t bytes;
  bool is_float;
  bool is_signed;     // of integers
  int exponent_bits;  // for floats, as the next member
  int mantissa_bits;
  double overflow;  // result for a value halfway beyond the largest finite value; 0: it saturates
};
inline void PrintTo(const Type& type, std::ostream* out) {
  *out << type.name;
}
extern const std::vector<Type> kTypes;
const Type& type_of(uint32_t value);

double decode(const Type& type, uint64_t code);
/// Rounds to the nearest value, ties to the even code.
uint64_t encode(const Type& type, double value);
bool is_nan(const Type& type, uint64_t code);

struct Scaling {
  int32_t scaled_source = -1;
  uint64_t scalar = 0;
  uint32_t divisor = 0;
};
/// final(fold(op, codes in order)); op is a TUTTI_* reduction.
uint64_t reduce(const Type& type, uint32_t op, const std::vector<uint64_t>& codes, const Scaling& scaling);

}  // namespace tutti::reference
