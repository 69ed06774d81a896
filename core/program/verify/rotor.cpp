// SPDX-License-Identifier: Apache-2.0
#include "program/verify/rotor.h"

#include <vector>

namespace tutti::program {
namespace {

__extension__ using Wide = unsigned __int128;

constexpr uint64_t kFinal = 0x46494e414cu;
constexpr uint64_t kWide = 0x57494445u;

uint64_t times(uint64_t a, uint64_t b, uint64_t modulus) {
  return static_cast<uint64_t>(Wide{a} * b % modulus);
}

uint64_t power(uint64_t base, uint64_t exponent, uint64_t modulus) {
  uint64_t result = 1;
  for (; exponent > 0; exponent >>= 1) {
    if ((exponent & 1) != 0) result = times(result, base, modulus);
    base = times(base, base, modulus);
  }
  return result;
}

/// The test of Miller and Rabin with the twelve bases that decide all numbers below 2^64 (Sorenson, Webster 2015).
bool is_prime(uint64_t number) {
  uint64_t odd = number - 1;
  uint32_t twos = 0;
  for (; odd % 2 == 0; odd /= 2) ++twos;
  for (const uint64_t base : {2u, 3u, 5u, 7u, 11u, 13u, 17u, 19u, 23u, 29u, 31u, 37u}) {
    if (number % base == 0) return number == base;
    uint64_t x = power(base, odd, number);
    bool passes = x == 1 || x == number - 1;
    for (uint32_t i = 1; i < twos && !passes; ++i) {
      x = times(x, x, number);
      passes = x == number - 1;
    }
    if (!passes) return false;
  }
  return true;
}

std::vector<uint32_t> prime_factors(uint32_t number) {
  std::vector<uint32_t> factors;
  for (uint32_t factor = 2; factor * factor <= number; ++factor) {
    if (number % factor == 0) factors.push_back(factor);
    while (number % factor == 0) number /= factor;
  }
  if (number > 1) factors.push_back(number);
  return factors;
}

}  // namespace

uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

Rotor::Rotor(uint32_t rank_count) {
  constexpr uint64_t kLarge = uint64_t{1} << 60;
  prime_ = kLarge / rank_count * rank_count + 1;
  while (!is_prime(prime_)) prime_ += rank_count;
  const auto factors = prime_factors(rank_count);
  for (uint64_t base = 2;; ++base) {
    root_ = power(base, (prime_ - 1) / rank_count);
    bool is_primitive = true;
    for (const uint32_t factor : factors) is_primitive = is_primitive && power(root_, rank_count / factor) != 1;
    if (is_primitive) return;
  }
}

uint64_t Rotor::times(uint64_t a, uint64_t b) const {
  return program::times(a, b, prime_);
}

uint64_t Rotor::power(uint64_t base, uint64_t exponent) const {
  return program::power(base, exponent, prime_);
}

uint64_t Rotor::unit(uint64_t x) const {
  return 1 + mix(x) % (prime_ - 1);
}

uint64_t Rotor::fold(uint64_t a, uint64_t b) const {
  const uint64_t sum = (a + b) % prime_;
  return times(sum, unit(ratio(times(a, b), times(sum, sum))));
}

uint64_t Rotor::fold(std::span<const uint64_t> operands, std::span<const uint32_t> ranks) const {
  uint64_t sum = 0;
  for (size_t i = 0; i < operands.size(); ++i) {
    sum = (sum + times(operands[i], unit(ratio(turn(ranks[i]), operands[i])))) % prime_;
  }
  return times(sum, unit(kWide + operands.size()));
}

uint64_t Rotor::finalize(uint64_t hash) const {
  return times(hash, unit(kFinal));
}

}  // namespace tutti::program
