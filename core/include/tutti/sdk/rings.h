// SPDX-License-Identifier: Apache-2.0
// Joins the rings of machines into rings over all ranks. Header only, for plugins.
// Threads: any thread; the functions keep no state.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "tutti/sdk/graph.h"

namespace tutti::sdk {

/// The number of channels that every machine has: the least number of any graph, at most topology.max_channels (0: no
/// limit). 0 without graphs. join_rings and join_trees repeat the channels if topology.min_channels is larger.
inline uint32_t common_channels(const tutti_topology& topology, std::span<const tutti_graph> graphs) {
  if (graphs.empty()) return 0;
  uint32_t channels = graphs[0].channel_count;
  for (const tutti_graph& graph : graphs) channels = std::min(channels, graph.channel_count);
  return topology.max_channels == 0 ? channels : std::min(channels, topology.max_channels);
}

/// The channel of a machine's graph that is a part of channel `channel` over all machines. `common` is the result of
/// common_channels(). If channels enter and leave by different NICs, every second machine swaps the channels 2k and
/// 2k + 1, if both exist. So both NICs of a pair carry data in both directions.
inline uint32_t channel_in_node(const tutti_graph& graph, uint32_t channel, uint32_t common) {
  const uint32_t own = channel % common;
  const bool swaps = graph.cross_nic != 0 && graph.node % 2 == 1 && (own | 1) < common;
  return swaps ? own ^ 1 : own;
}

/// The ranks along a ring. The successor of the last rank is the first rank.
using Order = std::vector<uint32_t>;

/// Whether the order contains each of the ranks 0 .. rank_count - 1 exactly once.
inline bool names_every_rank_once(const Order& order, uint32_t rank_count) {
  std::vector<bool> seen(rank_count);
  for (uint32_t rank : order) {
    if (rank >= rank_count || seen[rank]) return false;
    seen[rank] = true;
  }
  return order.size() == rank_count;
}

/// One ring through all ranks per channel: the orders of the machines, end to end. Errors: kInvalidArgument if a
/// machine has no channel, or if a channel does not contain every rank exactly once.
inline Result<std::vector<Order>> join_rings(const tutti_topology& topology, std::span<const tutti_graph> graphs) {
  const uint32_t common = common_channels(topology, graphs);
  if (common == 0) return Status(Code::kInvalidArgument, "a machine has no channel");
  std::vector<Order> rings(std::max(common, topology.min_channels));
  for (uint32_t channel = 0; channel < rings.size(); ++channel) {
    rings[channel].reserve(topology.rank_count);
    for (const tutti_graph& graph : graphs) {
      const auto order = order_of(graph, channel_in_node(graph, channel, common));
      rings[channel].insert(rings[channel].end(), order.begin(), order.end());
    }
    if (!names_every_rank_once(rings[channel], topology.rank_count)) {
      return Status(Code::kInvalidArgument,
                    "channel " + std::to_string(channel) + " does not name every rank exactly once");
    }
  }
  return rings;
}

/// The same ring, beginning with `rank`, which it must contain.
inline Order seen_from(const Order& ring, uint32_t rank) {
  Order turned = ring;
  std::rotate(turned.begin(), std::find(turned.begin(), turned.end(), rank), turned.end());
  return turned;
}

/// The network devices of all channels and machines, for AlgorithmInstance::nets.
class ChannelNets {
 public:
  ChannelNets() = default;
  ChannelNets(std::span<const tutti_graph> graphs, uint32_t common) {
    for (uint32_t channel = 0; channel < common; ++channel) {
      auto& nets = by_channel_.emplace_back();
      for (const tutti_graph& graph : graphs) {
        const uint32_t own = channel_in_node(graph, channel, common);
        nets.push_back({net_out(graph, own), net_in(graph, own)});
      }
    }
  }
  /// The devices by which machine `node` sends and receives on a channel. TUTTI_NO_NET if there are no channels.
  tutti_channel_nets of(uint32_t channel, uint32_t node) const {
    if (by_channel_.empty()) return {TUTTI_NO_NET, TUTTI_NO_NET};
    return by_channel_[channel % by_channel_.size()][node];
  }

 private:
  std::vector<std::vector<tutti_channel_nets>> by_channel_;
};

}  // namespace tutti::sdk
