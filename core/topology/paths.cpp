// SPDX-License-Identifier: Apache-2.0
#include "topology/paths.h"

#include <algorithm>

#include "topology/bandwidth.h"

namespace tutti::topology {
namespace {

/// The type of a path over this link alone.
uint32_t link_path_type(const Machine& machine, const tutti_system_link& link) {
  switch (link.type) {
    case TUTTI_WIRE_NVL:
    case TUTTI_WIRE_NET:
      return TUTTI_PATH_NVL;
    case TUTTI_WIRE_C2C:
      return TUTTI_PATH_C2C;
    case TUTTI_WIRE_SYS:
      return TUTTI_PATH_SYS;
    default:
      break;
  }
  const uint32_t from = machine.type(link.from);
  const uint32_t to = machine.type(link.to);
  if (from == TUTTI_NODE_CPU || to == TUTTI_NODE_CPU) return TUTTI_PATH_PHB;
  return from == TUTTI_NODE_PCI && to == TUTTI_NODE_PCI ? TUTTI_PATH_PXB : TUTTI_PATH_PIX;
}

/// What a path takes from the node that it passes.
uint32_t passed_path_type(uint32_t node_type) {
  switch (node_type) {
    case TUTTI_NODE_GPU:
      return TUTTI_PATH_NVB;
    case TUTTI_NODE_CPU:
      return TUTTI_PATH_PHB;
    default:
      return TUTTI_PATH_LOC;
  }
}

/// The best paths from one node.
class PathsFrom {
 public:
  PathsFrom(const Machine& machine, uint32_t source) : machine_(machine), source_(source), reached_(machine.size()) {
    reached_[source] = {.known = true, .gbs = kLocalGbs};
    for (std::vector<uint32_t> level{source}; !level.empty();) level = expand(level);
  }

  void append_to(Paths& paths) const {
    for (uint32_t node = 0; node < machine_.size(); ++node) append_to(paths, node);
  }

 private:
  /// How the best path comes to a node.
  struct Arrival {
    bool known = false;
    uint32_t hop_count = 0;
    uint32_t type = TUTTI_PATH_LOC;
    uint32_t link = 0;  ///< the last
    double gbs = 0;
  };

  /// The nodes one hop farther than those of `level`, in order.
  std::vector<uint32_t> expand(const std::vector<uint32_t>& level) {
    std::vector<uint32_t> next;
    for (const uint32_t node : level) {
      for (const uint32_t link : machine_.links_from(node)) {
        const uint32_t to = machine_.links[link].to;
        if (!may_pass(machine_.links[link])) continue;
        if (!reached_[to].known) next.push_back(to);
        const Arrival arrival = over(link);
        if (is_better(arrival, reached_[to])) reached_[to] = arrival;
      }
    }
    std::ranges::sort(next);
    return next;
  }

  bool may_pass(const tutti_system_link& link) const {
    if (link.from == source_) return true;
    const bool next_to_source = reached_[link.from].hop_count == 1;
    const uint32_t source = machine_.type(source_);
    const uint32_t to = machine_.type(link.to);
    switch (machine_.type(link.from)) {
      case TUTTI_NODE_GPU:
        return next_to_source && source == TUTTI_NODE_GPU && to == TUTTI_NODE_GPU;
      case TUTTI_NODE_NIC:
        return to == TUTTI_NODE_NET || (next_to_source && source == TUTTI_NODE_NET);
      case TUTTI_NODE_HOST:
      case TUTTI_NODE_NET:
        return false;
      default:
        return true;
    }
  }

  Arrival over(uint32_t index) const {
    const tutti_system_link& link = machine_.links[index];
    const Arrival& before = reached_[link.from];
    uint32_t type = join_types(before.type, link_path_type(machine_, link));
    if (link.from != source_) type = join_types(type, passed_path_type(machine_.type(link.from)));
    return {true, before.hop_count + 1, type, index, std::min(before.gbs, link.gbs)};
  }

  static bool is_better(const Arrival& a, const Arrival& b) {
    if (!b.known) return true;
    if (a.hop_count != b.hop_count) return a.hop_count < b.hop_count;
    if (a.gbs != b.gbs) return a.gbs > b.gbs;
    return a.type < b.type;
  }

  void append_to(Paths& paths, uint32_t target) const {
    const Arrival& arrival = reached_[target];
    const auto begin = static_cast<uint32_t>(paths.hops.size());
    paths.hops.resize(begin + arrival.hop_count);
    for (uint32_t hop = arrival.hop_count, node = target; hop-- > 0;
         node = machine_.links[paths.hops[begin + hop]].from) {
      paths.hops[begin + hop] = reached_[node].link;
    }
    const uint32_t type = arrival.known ? arrival.type : TUTTI_PATH_DIS;
    paths.table.push_back({type, begin, arrival.hop_count, 0, arrival.gbs});
  }

  const Machine& machine_;
  uint32_t source_;
  std::vector<Arrival> reached_;
};

}  // namespace

uint32_t join_types(uint32_t a, uint32_t b) {
  const auto [closer, farther] = std::minmax(a, b);
  const bool by_chip = closer == TUTTI_PATH_C2C || closer == TUTTI_PATH_P2C;
  return farther == TUTTI_PATH_PHB && by_chip ? TUTTI_PATH_P2C : farther;
}

Paths find_paths(const Machine& machine) {
  Paths paths;
  paths.node_count = machine.nodes.size();
  paths.table.reserve(paths.node_count * paths.node_count);
  for (uint32_t source = 0; source < machine.size(); ++source) PathsFrom(machine, source).append_to(paths);
  return paths;
}

}  // namespace tutti::topology
