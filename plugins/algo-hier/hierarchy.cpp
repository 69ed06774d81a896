// SPDX-License-Identifier: Apache-2.0
#include "hierarchy.h"

namespace tutti::hier {

Hierarchy::Hierarchy(const tutti_topology& topology)
    : machine_of_(topology.node_of_rank, topology.node_of_rank + topology.rank_count),
      position_of_(topology.rank_count),
      members_(topology.node_count) {
  for (uint32_t rank = 0; rank < topology.rank_count; ++rank) {
    std::vector<uint32_t>& machine = members_[machine_of_[rank]];
    position_of_[rank] = static_cast<uint32_t>(machine.size());
    machine.push_back(rank);
  }
  positions_ = static_cast<uint32_t>(members_[0].size());
  for (const std::vector<uint32_t>& machine : members_) {
    if (machine.size() != positions_) positions_ = 0;
  }
}

}  // namespace tutti::hier
