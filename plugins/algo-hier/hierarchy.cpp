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

uint32_t Hierarchy::machine_stride() const {
  const auto distance = [&](uint32_t machine, uint32_t position) {
    return (rank_at((machine + 1) % machines(), position) + rank_count() - rank_at(machine, position)) % rank_count();
  };
  for (uint32_t machine = 0; machine < machines(); ++machine) {
    for (uint32_t position = 0; position < positions(); ++position) {
      if (distance(machine, position) != distance(0, 0)) return 0;
    }
  }
  return distance(0, 0);
}

uint32_t Hierarchy::position_stride(uint32_t machine) const {
  const std::vector<uint32_t>& ranks = members_[machine];
  for (uint32_t position = 1; position < positions(); ++position) {
    if (ranks[position] - ranks[position - 1] != ranks[1] - ranks[0]) return 0;
  }
  return ranks[1] - ranks[0];
}

}  // namespace tutti::hier
