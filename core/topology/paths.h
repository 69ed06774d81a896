// SPDX-License-Identifier: Apache-2.0
// The best paths between all nodes of a machine.
#pragma once

#include <span>
#include <vector>

#include "topology/machine.h"

namespace tutti::topology {

struct Paths {
  size_t node_count = 0;
  std::vector<tutti_system_path> table;  ///< from node f to node t: f * node_count + t
  std::vector<uint32_t> hops;

  tutti_system_path& at(uint32_t from, uint32_t to) { return table[from * node_count + to]; }
  const tutti_system_path& at(uint32_t from, uint32_t to) const { return table[from * node_count + to]; }
  std::span<const uint32_t> hops_of(const tutti_system_path& path) const {
    return std::span(hops).subspan(path.hop_begin, path.hop_count);
  }
};

/// The type of a path that consists of two parts of these types.
uint32_t join_types(uint32_t a, uint32_t b);

/// Between all pairs: the shortest path; of several shortest paths the widest; of several widest paths the closest.
/// Breadth-first search. A path passes PCI switches, CPUs and NVSwitches. It passes an adapter only between the
/// adapter's port and the machine, and one GPU at most, from NVLink to NVLink.
Paths find_paths(const Machine& machine);

/// Reroutes between GPUs and network ports if the port cannot reach the GPU's memory, or only through a CPU: over
/// NVLink and a GPU that is near the port (PXN), or else through the memory of the CPU nearest the GPU. Without
/// `second_gpus`, no path leads through a second GPU.
void add_detours(const Machine& machine, Paths& paths, bool second_gpus);

/// The nodes of a machine that are kept, in order: ranks, CPUs, NVSwitches and, if `networks`, ports that ranks reach;
/// GPUs without a rank through which ranks reach each other; and all nodes on the way between them.
std::vector<uint32_t> nodes_in_use(const Machine& machine, const Paths& paths, bool networks);

}  // namespace tutti::topology
