// SPDX-License-Identifier: Apache-2.0
#include "topology/paths.h"

#include <algorithm>

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
  const bool is_within_gpu = link.type == TUTTI_WIRE_LOC && from == TUTTI_NODE_GPU && to == TUTTI_NODE_GPU;
  if (is_within_gpu) return TUTTI_PATH_NVL;  // between two ranks on one GPU
  if (from == TUTTI_NODE_CPU || to == TUTTI_NODE_CPU) return TUTTI_PATH_PHB;
  return from == TUTTI_NODE_PCI && to == TUTTI_NODE_PCI ? TUTTI_PATH_PXB : TUTTI_PATH_PIX;
}

/// The type that a path gets from a node on it.
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
    reached_[source] = {{.gbs = kLocalGbs}};
    for (std::vector<uint32_t> level{source}; !level.empty();) level = expand(level);
  }

  void append_to(Paths& paths) const {
    for (uint32_t node = 0; node < machine_.size(); ++node) append_to(paths, node);
  }

 private:
  /// A shortest way to a node, by its end.
  struct Arrival {
    uint32_t hop_count = 0;
    uint32_t type = TUTTI_PATH_LOC;
    double gbs = 0;
    uint32_t link = 0;      ///< the last
    uint32_t previous = 0;  ///< which arrival at the node before
  };

  /// The nodes that are one hop farther than `level`, in order.
  std::vector<uint32_t> expand(const std::vector<uint32_t>& level) {
    std::vector<uint32_t> next;
    for (const uint32_t node : level) {
      for (uint32_t link = machine_.first_link[node]; link < machine_.first_link[node + 1]; ++link) {
        if (!may_pass(machine_.links[link])) continue;
        const uint32_t to = machine_.links[link].to;
        if (reached_[to].empty()) next.push_back(to);
        for (uint32_t i = 0; i < reached_[node].size(); ++i) add(reached_[to], over(link, i));
      }
    }
    std::ranges::sort(next);
    return next;
  }

  /// Keeps the wider and the closer of two paths: a wide path may prove to be narrow farther on.
  static void add(std::vector<Arrival>& arrivals, const Arrival& arrival) {
    const auto is_as_good = [](const Arrival& a, const Arrival& b) { return a.gbs >= b.gbs && a.type <= b.type; };
    for (const Arrival& known : arrivals) {
      if (known.hop_count < arrival.hop_count || is_as_good(known, arrival)) return;
    }
    std::erase_if(arrivals, [&](const Arrival& known) { return is_as_good(arrival, known); });
    arrivals.push_back(arrival);
  }

  bool may_pass(const tutti_system_link& link) const {
    if (link.from == source_) return true;
    const bool next_to_source = reached_[link.from].front().hop_count == 1;
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

  Arrival over(uint32_t index, uint32_t previous) const {
    const tutti_system_link& link = machine_.links[index];
    const Arrival& before = reached_[link.from][previous];
    uint32_t type = join_types(before.type, link_path_type(machine_, link));
    if (link.from != source_) type = join_types(type, passed_path_type(machine_.type(link.from)));
    return {before.hop_count + 1, type, std::min(before.gbs, link.gbs), index, previous};
  }

  void append_to(Paths& paths, uint32_t target) const {
    const auto begin = static_cast<uint32_t>(paths.hops.size());
    if (reached_[target].empty()) {
      paths.table.push_back({TUTTI_PATH_DIS, begin, 0, 0, 0});
      return;
    }
    const Arrival& best = *std::ranges::max_element(reached_[target], {}, &Arrival::gbs);
    paths.table.push_back({best.type, begin, best.hop_count, 0, best.gbs});
    paths.hops.resize(begin + best.hop_count);
    const Arrival* arrival = &best;
    for (uint32_t hop = best.hop_count; hop-- > 0;) {
      paths.hops[begin + hop] = arrival->link;
      arrival = &reached_[machine_.links[arrival->link].from][arrival->previous];
    }
  }

  const Machine& machine_;
  uint32_t source_;
  /// Per node; no entry is both narrower and farther than a different entry.
  std::vector<std::vector<Arrival>> reached_;
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
