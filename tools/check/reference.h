// SPDX-License-Identifier: Apache-2.0
// The right output of a call, computed from the inputs of all ranks in wide arithmetic.
//
// Exact, so compared bit for bit: all results that only move data; integers (sums and products wrap around in their
// width; averages divide the wrapped sum, truncating); max and min.
//
// Every order of additions rounds sums and products of floats differently, so a bound is set on the error. Let u = 2^-p
// be the unit roundoff of the type (p bits of significand), s half its smallest value above zero, and n the number of
// ranks. A result is rounded to the type after each of its at most n + 2 operations (n - 1 additions, a factor, a
// division, the rounding of the reference itself). It then differs from the right result by at most
//     sum, average, pre-multiplied sum:  (n + 2) (u Σ|terms| + s)
//     product:                           (n + 2) (u |product| + s)
// Inputs of 8-bit floats make sums and products exact (random_input.h). There the bound is 0, and u|value| for an
// average. With more ranks than this permits, the general bound holds, which is loose for 8-bit floats.
#pragma once

#include <cstddef>
#include <vector>

#include "tools/check/problem.h"

namespace tutti::check {

/// The right result of a reduction for a range of elements. Immutable: any number of threads may read it.
class Reference {
 public:
  /// For elements first .. first + count - 1 of the ranks' inputs.
  Reference(const Problem& problem, size_t first, size_t count);
  /// For the output of `rank`; empty if the collective does not reduce.
  static Reference for_rank(const Problem& problem, int rank);
  /// For an output that is equal on all ranks.
  static Reference for_all(const Problem& problem);

  size_t first() const { return first_; }
  size_t count() const { return count_; }
  /// Elements of the type, bit for bit; empty where results have a bound.
  const std::vector<std::byte>& exact() const { return exact_; }
  /// Right values and the largest allowed distance from them; empty where results are exact.
  const std::vector<double>& values() const { return values_; }
  const std::vector<double>& bounds() const { return bounds_; }

 private:
  size_t first_;
  size_t count_;
  std::vector<std::byte> exact_;
  std::vector<double> values_;
  std::vector<double> bounds_;
};

}  // namespace tutti::check
