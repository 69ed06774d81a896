// SPDX-License-Identifier: Apache-2.0
// The two levels of a communicator: the ranks of each machine, and the counterparts of each rank. The counterparts are
// the ranks of the other machines that have the same position in their machines.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tutti/plugin/topology.h"

namespace tutti::hier {

/// Machines with equal numbers of ranks. A rank is machine × position.
class Hierarchy {
 public:
  explicit Hierarchy(const tutti_topology& topology);

  uint32_t rank_count() const { return static_cast<uint32_t>(machine_of_.size()); }
  uint32_t machines() const { return static_cast<uint32_t>(members_.size()); }
  /// Ranks of each machine; 0 if the machines have different numbers of ranks.
  uint32_t positions() const { return positions_; }
  uint32_t machine_of(uint32_t rank) const { return machine_of_[rank]; }
  uint32_t position_of(uint32_t rank) const { return position_of_[rank]; }
  uint32_t rank_at(uint32_t machine, uint32_t position) const { return members_[machine][position]; }
  /// The distance from each rank to its counterpart on the next machine, modulo the number of ranks. The last machine
  /// is followed by the first machine. 0 if the distances differ. The machines have equal numbers of ranks.
  uint32_t machine_stride() const;
  /// The distance from each rank of a machine to the rank at the next position; 0 if the distances differ. The machines
  /// have two ranks or more.
  uint32_t position_stride(uint32_t machine) const;

 private:
  std::vector<uint32_t> machine_of_;
  std::vector<uint32_t> position_of_;
  std::vector<std::vector<uint32_t>> members_;  // ascending ranks of each machine
  uint32_t positions_ = 0;
};

}  // namespace tutti::hier
