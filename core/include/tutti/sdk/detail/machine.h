// SPDX-License-Identifier: Apache-2.0
// The view of the search on a machine: the devices of its ranks, its network ports, the paths between them, and the
// bandwidth that their links have left.
#pragma once

#include <algorithm>
#include <limits>
#include <vector>

#include "tutti/plugin/topology.h"

namespace tutti::sdk::detail {

/// Devices (nodes that carry a rank) and ports are numbered from 0, in the order of the system graph.
class Machine {
 public:
  /// `joined`: channels over all machines that each channel of this machine becomes.
  Machine(const tutti_system& system, bool with_network, uint32_t joined) : system_(system), joined_(joined) {
    for (uint32_t node = 0; node < system.node_count; ++node) {
      if (system.nodes[node].rank != TUTTI_NO_RANK) devices_.push_back(node);
      if (with_network && system.nodes[node].type == TUTTI_NODE_NET) nets_.push_back(node);
    }
  }

  const tutti_system& system() const { return system_; }
  uint32_t device_count() const { return static_cast<uint32_t>(devices_.size()); }
  uint32_t net_count() const { return static_cast<uint32_t>(nets_.size()); }
  const tutti_system_node& device(uint32_t device) const { return system_.nodes[devices_[device]]; }
  const tutti_system_node& net(uint32_t net) const { return system_.nodes[nets_[net]]; }

  /// Most channels of this machine that enter, and most that leave by a port. At least 1.
  uint32_t max_channels(uint32_t net) const {
    const uint32_t limit = this->net(net).max_channels;
    return limit == 0 ? UINT32_MAX : std::max(1u, limit / joined_);
  }
  /// The same for all ports together; no limit without a port.
  uint32_t max_channels() const {
    uint64_t sum = net_count() == 0 ? UINT32_MAX : 0;
    for (uint32_t net = 0; net < net_count(); ++net) sum += max_channels(net);
    return static_cast<uint32_t>(std::min<uint64_t>(sum, UINT32_MAX));
  }

  const tutti_system_path& between(uint32_t from, uint32_t to) const { return path(devices_[from], devices_[to]); }
  const tutti_system_path& into(uint32_t net, uint32_t device) const { return path(nets_[net], devices_[device]); }
  const tutti_system_path& out_of(uint32_t device, uint32_t net) const { return path(devices_[device], nets_[net]); }

  /// The bandwidth of all links (or all NVLinks) out of (or into) a device together, GB/s.
  double capacity(uint32_t device, bool out, bool nvlink_only) const {
    double sum = 0;
    for (uint32_t i = 0; i < system_.link_count; ++i) {
      const tutti_system_link& link = system_.links[i];
      if ((out ? link.from : link.to) != devices_[device]) continue;
      if (!nvlink_only || link.type == TUTTI_WIRE_NVL) sum += link.gbs;
    }
    return sum;
  }

  /// The largest bandwidth of one channel on the slowest device of this machine, GB/s. Some tens of thousands of loads
  /// in flight per block limit it. It is twice `comfortable()`, the value above which more channels are better than
  /// faster channels.
  double ceiling() const {
    double gbs = std::numeric_limits<double>::infinity();
    for (const uint32_t node : devices_) gbs = std::min(gbs, ceiling_of(system_.nodes[node]));
    return gbs;
  }
  double comfortable() const { return ceiling() / 2; }

 private:
  static double ceiling_of(const tutti_system_node& node) {
    return node.channel_mbs == 0 ? std::numeric_limits<double>::infinity() : node.channel_mbs / 1e3;
  }
  const tutti_system_path& path(uint32_t from, uint32_t to) const {
    return system_.paths[size_t{from} * system_.node_count + to];
  }

  const tutti_system& system_;
  const uint32_t joined_;
  std::vector<uint32_t> devices_;
  std::vector<uint32_t> nets_;
};

/// Calls visit(link, GB/s) for everything that a stream of `gbs` along `path` costs.
template <class Visit>
void for_each_load(const tutti_system& system, const tutti_system_path& path, double gbs, Visit&& visit) {
  if (path.hop_count == 0) return;
  const uint32_t* hops = system.hops + path.hop_begin;
  const auto node = [&](uint32_t index) -> const tutti_system_node& { return system.nodes[index]; };
  const bool from_gpu = node(system.links[hops[0]].from).type == TUTTI_NODE_GPU;
  double pci_gbs = gbs;
  for (uint32_t i = 0; i < path.hop_count; ++i) {
    const tutti_system_node& passed = node(system.links[hops[i]].to);
    // Intel's root complex forwards peer-to-peer writes in smaller packets.
    if (passed.type == TUTTI_NODE_CPU && passed.chip == TUTTI_CPU_INTEL && path.type == TUTTI_PATH_PHB && from_gpu) {
      pci_gbs = gbs * 6 / 5;
    }
  }
  for (uint32_t i = 0; i < path.hop_count; ++i) {
    const tutti_system_link& link = system.links[hops[i]];
    const tutti_system_node& to = node(link.to);
    const double forward = link.type == TUTTI_WIRE_PCI ? pci_gbs : gbs;
    visit(hops[i], forward);
    const bool old_gpu = to.type == TUTTI_NODE_GPU && to.chip < 80 && (to.flags & TUTTI_NODE_AMD) == 0;
    if (old_gpu && !from_gpu && link.type == TUTTI_WIRE_PCI) visit(link.reverse, forward / 8);  // flow control
    if (to.type == TUTTI_NODE_CPU && to.chip == TUTTI_CPU_POWER && link.type == TUTTI_WIRE_NVL) {
      visit(link.reverse, forward);  // NVLink to POWER shares its directions
    }
  }
}

/// The free bandwidth of every link. Streams take bandwidth and give it back.
class Ledger {
 public:
  explicit Ledger(const tutti_system& system) : system_(system) {
    free_.reserve(system.link_count);
    for (uint32_t i = 0; i < system.link_count; ++i) free_.push_back(system.links[i].gbs);
  }

  /// All or nothing.
  bool take(const tutti_system_path& path, double gbs) {
    bool fits = true;
    for_each_load(system_, path, gbs, [&](uint32_t link, double load) {
      free_[link] -= load;
      fits = fits && free_[link] >= -kRounding;
    });
    if (!fits) give(path, gbs);
    return fits;
  }
  void give(const tutti_system_path& path, double gbs) {
    for_each_load(system_, path, gbs, [&](uint32_t link, double load) { free_[link] += load; });
  }
  /// An upper bound for a further stream.
  double left(const tutti_system_path& path) const {
    double gbs = path.gbs;
    for (uint32_t i = 0; i < path.hop_count; ++i) gbs = std::min(gbs, free_[system_.hops[path.hop_begin + i]]);
    return gbs;
  }

 private:
  static constexpr double kRounding = 1e-6;
  const tutti_system& system_;
  std::vector<double> free_;
};

}  // namespace tutti::sdk::detail
