// SPDX-License-Identifier: Apache-2.0
// Rounds of messages between counterparts. All-gather by recursive doubling and reduce-scatter by recursive halving: R.
// Thakur, R. Rabenseifner, W. Gropp, "Optimization of collective communication operations in MPICH", Int. J. High
// Perform. Comput. Appl. 19 (2005). All-reduce by recursive doubling, or by recursive multiplying: M. Ruefenacht, M.
// Bull, S. Booth, "Generalisation of recursive doubling for AllReduce: now with simulation", Parallel Comput. 69
// (2017).
#pragma once

#include <bit>

#include "hierarchy_view.h"
#include "tutti/sdk/algorithm.h"

namespace tutti::hier {

/// Each adds the steps of one rank. The number of machines is 4, 8, 16, ..., and machine_stride() is not 0.
void doubling_all_gather(sdk::PlanBuilder& plan, const HierarchyView& view, const Hierarchy& hierarchy);
void doubling_reduce_scatter(sdk::PlanBuilder& plan, const HierarchyView& view, const Hierarchy& hierarchy);

/// The rounds of an all-reduce. In the round at `bit`, the machines whose numbers differ only in the bits from `bit` to
/// bit * radix(bit) / 2 exchange their sums. The rounds are for a power of two of machines. Each further machine gives
/// its sum to a delegate, one of these machines, and gets the result from the delegate.
class Rounds {
 public:
  /// `radix`: 2 or 4. With 4, the first round has radix 2 where the power of two has an odd exponent.
  Rounds(uint32_t machines, uint32_t radix)
      : machines_(machines),
        paired_(std::bit_floor(machines)),
        radix_(radix),
        odd_(std::countr_zero(paired_) % 2 == 1) {}

  /// Machines that take part in the rounds.
  uint32_t paired() const { return paired_; }
  /// Machines that do not, which have the machines 0, 1, ... as delegates.
  uint32_t helped() const { return machines_ - paired_; }
  uint32_t radix(uint32_t bit) const { return bit == 1 && odd_ ? 2 : radix_; }
  uint32_t next(uint32_t bit) const { return bit * radix(bit); }

 private:
  uint32_t machines_, paired_, radix_;
  bool odd_;
};

/// Recursive multiplying exchanges the sums of four machines in a round.
inline constexpr uint32_t kMultiplyingRadix = 4;

/// Adds the steps of one rank. All machines of a round fold the same sums in the same order.
void rounds_all_reduce(sdk::PlanBuilder& plan, const HierarchyView& view, uint32_t radix);

}  // namespace tutti::hier
