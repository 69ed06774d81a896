// SPDX-License-Identifier: Apache-2.0
// Nodes and wires of a machine while its system graph is made.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "topology/hardware.h"
#include "tutti/plugin/topology.h"

namespace tutti::topology {

/// GB/s within a device: never the limit of a path.
inline constexpr double kLocalGbs = 5000;

struct Machine {
  std::vector<tutti_system_node> nodes;
  std::vector<std::string> names;
  std::vector<int> rails;                ///< of ports; -1: unknown, or no port
  std::vector<GpuFigures> gpus;          ///< of nodes with a GPU; zeros: no GPU
  std::vector<tutti_system_link> links;  ///< by `from`, then `to`, then `type`
  std::vector<uint32_t> first_link;      ///< per node, and one more: where its links begin

  uint32_t size() const { return static_cast<uint32_t>(nodes.size()); }
  uint32_t type(uint32_t node) const { return nodes[node].type; }
  bool is_rank(uint32_t node) const { return nodes[node].rank != TUTTI_NO_RANK; }
  std::vector<uint32_t> nodes_of(uint32_t type) const;

  /// The machine with these nodes, in this order, and the links between them. `reverse` and first_link are computed
  /// anew: in this machine they need not be valid.
  Machine select(std::span<const uint32_t> order) const;
};

}  // namespace tutti::topology
