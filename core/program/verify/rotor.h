// SPDX-License-Identifier: Apache-2.0
// Hashes of expressions that are moved around a ring of ranks by one multiplication.
#pragma once

#include <cstdint>
#include <span>

namespace tutti::program {

/// The hash of an expression is a number modulo a prime p for which p - 1 is a multiple of the number of ranks. `w` has
/// the order rank_count modulo p. If all ranks in an expression are moved by d, its hash is multiplied by w^d. The hash
/// of a fold is homogeneous of degree 1 in the hashes of its operands: the sum of the operands, times a mixed function
/// of their ratios, which a move does not change. Any thread.
class Rotor {
 public:
  explicit Rotor(uint32_t rank_count);

  /// A value that rank `rank` has where rank 0 has a value of kind `kind`.
  uint64_t input(uint64_t kind, uint32_t rank) const { return times(unit(kind), turn(rank)); }
  /// The hash of the expression moved by `distance`.
  uint64_t moved(uint64_t hash, uint32_t distance) const { return times(hash, turn(distance)); }
  /// The fold of two operands in any order.
  uint64_t fold(uint64_t a, uint64_t b) const;
  /// The fold of operands in the order of `ranks`. The hash depends on the ranks: operands with equal ranks have the
  /// same order after any move.
  uint64_t fold(std::span<const uint64_t> operands, std::span<const uint32_t> ranks) const;
  /// Marks a value as final.
  uint64_t finalize(uint64_t hash) const;

 private:
  uint64_t times(uint64_t a, uint64_t b) const;
  uint64_t power(uint64_t base, uint64_t exponent) const;
  uint64_t turn(uint32_t distance) const { return power(root_, distance); }
  uint64_t ratio(uint64_t a, uint64_t b) const { return times(a, power(b, prime_ - 2)); }
  /// A mixed number that is not 0.
  uint64_t unit(uint64_t x) const;

  uint64_t prime_ = 0;
  uint64_t root_ = 1;
};

/// The finalizer of SplitMix64 (Steele, Lea, Flood 2014): every bit of the result depends on every bit of `x`.
uint64_t mix(uint64_t x);

}  // namespace tutti::program
