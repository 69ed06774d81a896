// SPDX-License-Identifier: Apache-2.0
#include "tools/check/random_input.h"

#include <algorithm>
#include <cstring>

#include "tools/check/element.h"

namespace tutti::check {
namespace {

/// A stream of random words that can be read from anywhere.
class Words {
 public:
  Words(uint64_t seed, int rank) : key_(mix(seed ^ mix(static_cast<uint64_t>(rank) + 1))) {}
  uint64_t operator[](uint64_t index) const { return mix(key_ + index * 0x9e3779b97f4a7c15u); }

 private:
  uint64_t key_;
};

void fill_bytes(const Words& words, size_t first, size_t count, uint8_t* bytes) {
  while (count > 0) {
    const uint64_t word = words[first / sizeof(uint64_t)];
    const size_t skipped = first % sizeof(uint64_t);
    const size_t copied = std::min(sizeof(word) - skipped, count);
    std::memcpy(bytes, reinterpret_cast<const uint8_t*>(&word) + skipped, copied);
    first += copied;
    bytes += copied;
    count -= copied;
  }
}

/// Uniform in [-1, 1].
double uniform(uint64_t word) {
  return static_cast<double>(static_cast<int64_t>(word)) * 0x1p-63;
}

double product_factor(uint64_t word, int rank_count, bool exact) {
  const double sign = (word & 1) != 0 ? -1 : 1;
  if (exact) return sign * (rank_count > 8 ? 1 : std::ldexp(1, static_cast<int>((word >> 8) % 3) - 1));
  const double limit = rank_count > 8 ? std::exp2(8.0 / rank_count) : 2;
  return sign * (1 / limit + (limit - 1 / limit) * (uniform(word) + 1) / 2);
}

/// A term of a sum whose partial sums over all ranks are exact.
double small_integer(uint64_t word, int rank_count, int exact_bits) {
  const uint64_t largest = std::max<uint64_t>((uint64_t{1} << exact_bits) / static_cast<uint64_t>(rank_count), 1);
  return static_cast<double>((word >> 32) % (2 * largest + 1)) - static_cast<double>(largest);
}

template <class T>
T random_float(const Problem& problem, uint64_t word) {
  constexpr bool kTiny = sizeof(T) == 1;
  double value = 0;
  if (problem.op == ReduceOp::kProd) {
    value = product_factor(word, problem.rank_count, kTiny);
  } else if (problem.op == ReduceOp::kMax || problem.op == ReduceOp::kMin) {
    value = word % 16 == 0 ? std::copysign(0.0, uniform(word)) : uniform(word);
  } else if constexpr (kTiny) {
    value = small_integer(word, problem.rank_count, significand_bits<T>());
  } else {
    value = uniform(word);
  }
  return device::narrow<T>(static_cast<device::Accumulator<T>>(value));
}

template <class T>
T random_element(const Problem& problem, uint64_t word) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(problem.op == ReduceOp::kProd ? word | 1 : word);
  } else {
    return random_float<T>(problem, word);
  }
}

}  // namespace

void fill_input(const Problem& problem, int rank, size_t first, size_t count, void* input) {
  const Words words(problem.seed, rank);
  const size_t element_bytes = size_of(problem.type);
  if (!reduces(problem.collective)) {
    fill_bytes(words, first * element_bytes, count * element_bytes, static_cast<uint8_t*>(input));
    return;
  }
  with_element(problem.type, [&]<class T>(T) {
    auto* elements = static_cast<T*>(input);
    for (size_t i = 0; i < count; ++i) elements[i] = random_element<T>(problem, words[first + i]);
  });
}

void poison(void* output, size_t bytes) {
  if (bytes > 0) std::memset(output, kPoison, bytes);
}

}  // namespace tutti::check
