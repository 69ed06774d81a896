// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <optional>
#include <tuple>

#include "topology/paths.h"

namespace tutti::topology {
namespace {

class Detours {
 public:
  Detours(const Machine& machine, Paths& paths, bool second_gpus)
      : machine_(machine),
        paths_(paths),
        second_gpus_(second_gpus),
        gpus_(machine.nodes_of(TUTTI_NODE_GPU)),
        cpus_(machine.nodes_of(TUTTI_NODE_CPU)),
        nets_(machine.nodes_of(TUTTI_NODE_NET)) {}

  void add() {
    for (const uint32_t gpu : gpus_) {
      for (const uint32_t net : nets_) {
        if (!is_direct(gpu, net)) reroute(gpu, net);
      }
    }
  }

 private:
  /// Whether the port reaches the GPU's memory over no CPU, or over the CPU on the GPU's module. Rerouting does not
  /// change the answer: rerouted paths were not direct before, and are not direct afterwards.
  bool is_direct(uint32_t gpu, uint32_t net) const {
    const uint32_t flags = machine_.nodes[gpu].flags & machine_.nodes[net].flags;
    return (flags & TUTTI_NODE_DIRECT) != 0 && paths_.at(gpu, net).type <= TUTTI_PATH_P2C;
  }

  void reroute(uint32_t gpu, uint32_t net) {
    if (const auto peer = relay(gpu, net)) {
      lead_over(*peer, gpu, net, TUTTI_PATH_PXN);
    } else {
      lead_over(nearest_cpu(gpu), gpu, net, TUTTI_PATH_PHB);
    }
  }

  /// The distance of a GPU as a relay to a port; the smallest is best.
  std::tuple<bool, uint32_t, double> distance(uint32_t gpu, uint32_t net) const {
    const tutti_system_path& path = paths_.at(gpu, net);
    return {!machine_.is_rank(gpu), path.type, -path.gbs};
  }

  /// The GPU through which `gpu` reaches a port. If several relays are equally near, they share the ports near them.
  std::optional<uint32_t> relay(uint32_t gpu, uint32_t net) const {
    if (!second_gpus_) return std::nullopt;
    std::vector<uint32_t> nearest;
    for (const uint32_t peer : gpus_) {
      if (peer == gpu || paths_.at(gpu, peer).type != TUTTI_PATH_NVL || !is_direct(peer, net)) continue;
      if (!nearest.empty() && distance(peer, net) > distance(nearest[0], net)) continue;
      if (!nearest.empty() && distance(peer, net) < distance(nearest[0], net)) nearest.clear();
      nearest.push_back(peer);
    }
    if (nearest.empty()) return std::nullopt;
    const auto ports_before = std::ranges::count_if(
        nets_, [&](uint32_t other) { return other < net && distance(nearest[0], other) == distance(nearest[0], net); });
    return nearest[static_cast<size_t>(ports_before) % nearest.size()];
  }

  uint32_t nearest_cpu(uint32_t gpu) const {
    return *std::ranges::min_element(cpus_, {}, [&](uint32_t cpu) {
      const tutti_system_path& path = paths_.at(gpu, cpu);
      return std::tuple(path.type, path.hop_count, -path.gbs);
    });
  }

  void lead_over(uint32_t via, uint32_t gpu, uint32_t net, uint32_t least_type) {
    paths_.at(gpu, net) = joined(paths_.at(gpu, via), paths_.at(via, net), least_type);
    paths_.at(net, gpu) = joined(paths_.at(net, via), paths_.at(via, gpu), least_type);
  }

  tutti_system_path joined(const tutti_system_path& first, const tutti_system_path& second, uint32_t least_type) {
    const auto begin = static_cast<uint32_t>(paths_.hops.size());
    for (const tutti_system_path& part : {first, second}) {
      for (uint32_t hop = 0; hop < part.hop_count; ++hop) paths_.hops.push_back(paths_.hops[part.hop_begin + hop]);
    }
    const uint32_t type = std::max(join_types(first.type, second.type), least_type);
    return {type, begin, first.hop_count + second.hop_count, 0, std::min(first.gbs, second.gbs)};
  }

  const Machine& machine_;
  Paths& paths_;
  bool second_gpus_;
  std::vector<uint32_t> gpus_, cpus_, nets_;
};

}  // namespace

void add_detours(const Machine& machine, Paths& paths, bool second_gpus) {
  Detours(machine, paths, second_gpus).add();
}

}  // namespace tutti::topology
