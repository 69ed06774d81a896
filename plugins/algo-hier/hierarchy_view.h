// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hierarchy.h"

namespace tutti::hier {

/// One rank's view of the hierarchy.
class HierarchyView {
 public:
  HierarchyView(const Hierarchy& hierarchy, uint32_t rank)
      : hierarchy_(hierarchy),
        rank_(rank),
        machine_(hierarchy.machine_of(rank)),
        position_(hierarchy.position_of(rank)) {}

  uint32_t rank() const { return rank_; }
  uint32_t machine() const { return machine_; }
  uint32_t position() const { return position_; }
  uint32_t machines() const { return hierarchy_.machines(); }
  uint32_t positions() const { return hierarchy_.positions(); }

  /// The rank of this machine at a position.
  uint32_t neighbour(uint32_t position) const { return hierarchy_.rank_at(machine_, position); }
  /// The counterpart of this rank on a machine.
  uint32_t counterpart(uint32_t machine) const { return hierarchy_.rank_at(machine, position_); }
  /// The machine so many machines after this machine. The last machine is followed by the first machine.
  uint32_t machine_after(uint32_t distance) const { return (machine_ + distance) % machines(); }

  /// Calls action(position) for the other ranks of this machine, from the next position on.
  template <class Action>
  void for_other_positions(Action action) const {
    for (uint32_t k = 1; k < positions(); ++k) action((position_ + k) % positions());
  }
  /// Calls action(machine) for the other machines, from the next machine on.
  template <class Action>
  void for_other_machines(Action action) const {
    for (uint32_t k = 1; k < machines(); ++k) action(machine_after(k));
  }

 private:
  const Hierarchy& hierarchy_;
  uint32_t rank_, machine_, position_;
};

}  // namespace tutti::hier
