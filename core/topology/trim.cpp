// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "topology/paths.h"

namespace tutti::topology {
namespace {

class Use {
 public:
  Use(const Machine& machine, const Paths& paths) : machine_(machine), paths_(paths), used_(machine.nodes.size()) {}

  /// Marks the ends: nodes that are kept for their own sake.
  void add_ends(bool networks) {
    for (uint32_t node = 0; node < machine_.size(); ++node) used_[node] = machine_.is_rank(node);
    const std::vector<uint32_t> ranks = nodes();
    for (uint32_t node = 0; node < machine_.size(); ++node) {
      const uint32_t type = machine_.type(node);
      const bool wanted = type == TUTTI_NODE_CPU || type == TUTTI_NODE_NVS || (networks && type == TUTTI_NODE_NET);
      const auto reaches = [&](uint32_t rank) { return paths_.at(rank, node).type != TUTTI_PATH_DIS; };
      if (wanted && std::ranges::any_of(ranks, reaches)) used_[node] = true;
    }
  }

  /// Marks the nodes that paths between used nodes pass: GPUs (which then count as ends), or all other nodes. Returns
  /// whether it marked any.
  bool add_between(bool gpus) {
    const std::vector<uint32_t> ends = nodes();
    bool any = false;
    for (const uint32_t from : ends) {
      for (const uint32_t to : ends) {
        for (const uint32_t hop : paths_.hops_of(paths_.at(from, to))) {
          const uint32_t node = machine_.links[hop].to;
          if (used_[node] || (machine_.type(node) == TUTTI_NODE_GPU) != gpus) continue;
          used_[node] = true;
          any = true;
        }
      }
    }
    return any;
  }

  std::vector<uint32_t> nodes() const {
    std::vector<uint32_t> nodes;
    for (uint32_t node = 0; node < machine_.size(); ++node) {
      if (used_[node]) nodes.push_back(node);
    }
    return nodes;
  }

 private:
  const Machine& machine_;
  const Paths& paths_;
  std::vector<bool> used_;
};

}  // namespace

std::vector<uint32_t> nodes_in_use(const Machine& machine, const Paths& paths, bool networks) {
  Use use(machine, paths);
  use.add_ends(networks);
  use.add_between(true);
  while (use.add_between(false)) {  // a switch between two GPUs needs the switches above it
  }
  return use.nodes();
}

}  // namespace tutti::topology
