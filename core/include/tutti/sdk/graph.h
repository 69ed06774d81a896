// SPDX-License-Identifier: Apache-2.0
// The channels of one machine: the result of search, and the input of connect. Header only, for plugins.
// Threads: any thread; the functions keep no state.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "tutti/plugin/algorithm.h"
#include "tutti/status.h"

namespace tutti::sdk {

/// A channel of one machine.
struct Channel {
  std::vector<uint32_t> order;  ///< ranks of the machine along the channel, as numbers in the communicator
  uint32_t net_in = TUTTI_NO_NET;
  uint32_t net_out = TUTTI_NO_NET;
};

/// The channels of one machine. tutti_graph states the meaning of every field.
struct Graph {
  uint32_t pattern = TUTTI_PATTERN_RING;
  std::vector<Channel> channels;
  uint32_t intra_type = TUTTI_PATH_LOC;
  uint32_t inter_type = TUTTI_PATH_LOC;
  bool same_channels = true;
  bool cross_nic = false;
  bool fallback = false;
  double intra_gbs = 0;
  double inter_gbs = 0;

  /// GB/s of all channels together: between ranks of the machine, and between the machine and other machines.
  double total_intra_gbs() const { return intra_gbs * static_cast<double>(channels.size()); }
  double total_inter_gbs() const { return inter_gbs * static_cast<double>(channels.size()); }
};

/// The ranks of a machine in ascending order.
inline std::vector<uint32_t> ranks_of_node(const tutti_topology& topology, uint32_t node) {
  std::vector<uint32_t> ranks;
  for (uint32_t rank = 0; rank < topology.rank_count; ++rank) {
    if (topology.node_of_rank[rank] == node) ranks.push_back(rank);
  }
  return ranks;
}

/// The number of ranks of the machine with the most ranks.
inline uint32_t most_ranks_of_node(const tutti_topology& topology) {
  std::vector<uint32_t> counts(topology.node_count);
  for (uint32_t rank = 0; rank < topology.rank_count; ++rank) ++counts[topology.node_of_rank[rank]];
  return counts.empty() ? 0 : *std::max_element(counts.begin(), counts.end());
}

/// A graph of `channels` equal channels: the ranks of the machine of `rank` in ascending order. For algorithms that
/// need no particular order. The graph states no bandwidth.
inline Graph ascending(const tutti_topology& topology, uint32_t rank, uint32_t channels) {
  Graph graph;
  graph.channels.resize(channels, {ranks_of_node(topology, topology.node_of_rank[rank])});
  return graph;
}

/// Passes a graph to the host. Errors: kInternal if channels differ in their number of ranks; the code of the sink if
/// the host refuses the graph.
inline Status report(const Graph& graph, uint32_t node, const tutti_graph_sink& sink) {
  std::vector<uint32_t> orders;
  std::vector<uint32_t> nets;
  const size_t ranks = graph.channels.empty() ? 0 : graph.channels[0].order.size();
  for (const Channel& channel : graph.channels) {
    if (channel.order.size() != ranks) return Status(Code::kInternal, "channels differ in their number of ranks");
    orders.insert(orders.end(), channel.order.begin(), channel.order.end());
    nets.insert(nets.end(), {channel.net_in, channel.net_out});
  }
  const tutti_graph view = {sizeof(tutti_graph),
                            node,
                            graph.pattern,
                            static_cast<uint32_t>(ranks),
                            static_cast<uint32_t>(graph.channels.size()),
                            graph.fallback ? TUTTI_GRAPH_FALLBACK : 0u,
                            graph.intra_type,
                            graph.inter_type,
                            graph.same_channels ? 1u : 0u,
                            graph.cross_nic ? 1u : 0u,
                            graph.intra_gbs,
                            graph.inter_gbs,
                            orders.data(),
                            nets.data()};
  const int32_t code = sink.report(sink.context, &view);
  return code == TUTTI_OK ? Status() : Status(static_cast<Code>(code), "the host refused the channels");
}

/// The kind of link between ranks of one machine (TUTTI_LINK_*).
inline uint32_t link_inside(const tutti_topology& topology) {
  return topology.bandwidth_gbs[TUTTI_LINK_P2P] > 0 ? TUTTI_LINK_P2P : TUTTI_LINK_SHM;
}

/// Sets the GB/s of one channel in `cost`, if connect made `channels` channels from these graphs. The machine with the
/// smallest bandwidth decides. `inside` is the kind of link between ranks of one machine (TUTTI_LINK_*).
inline void set_bandwidth(tutti_algorithm_cost& cost, uint32_t inside, std::span<const tutti_graph> graphs,
                          uint32_t channels) {
  for (const tutti_graph& graph : graphs) {
    const auto lower = [&](double& gbs, double channel_gbs) {
      const double share = channel_gbs * graph.channel_count / channels;
      if (share > 0 && (gbs == 0 || share < gbs)) gbs = share;
    };
    if (graph.rank_count > 1) lower(cost.gbs[inside], graph.intra_gbs);
    lower(cost.gbs[TUTTI_LINK_NETWORK], graph.inter_gbs);
  }
}

/// The ranks of one machine along a channel, and the network devices of the channel's entry and exit.
inline std::span<const uint32_t> order_of(const tutti_graph& graph, uint32_t channel) {
  return {graph.orders + size_t{channel} * graph.rank_count, graph.rank_count};
}
inline uint32_t net_in(const tutti_graph& graph, uint32_t channel) {
  return graph.nets == nullptr ? TUTTI_NO_NET : graph.nets[size_t{channel} * 2];
}
inline uint32_t net_out(const tutti_graph& graph, uint32_t channel) {
  return graph.nets == nullptr ? TUTTI_NO_NET : graph.nets[size_t{channel} * 2 + 1];
}

}  // namespace tutti::sdk
