// SPDX-License-Identifier: Apache-2.0
#include "channels.h"

#include <algorithm>

namespace tutti::ring {
namespace {

bool names_every_rank_once(const Order& order, uint32_t rank_count) {
  std::vector<bool> seen(rank_count);
  for (uint32_t rank : order) {
    if (rank >= rank_count || seen[rank]) return false;
    seen[rank] = true;
  }
  return order.size() == rank_count;
}

}  // namespace

Order order_in_node(const tutti_topology& topology, uint32_t rank, uint32_t channel) {
  Order order;
  for (uint32_t other = 0; other < topology.rank_count; ++other) {
    if (topology.node_of_rank[other] == topology.node_of_rank[rank]) order.push_back(other);
  }
  const auto size = static_cast<uint32_t>(order.size());
  std::rotate(order.begin(), order.begin() + channel % size, order.end());
  if (channel / size % 2 == 1) std::reverse(order.begin(), order.end());
  return order;
}

double channel_bandwidth(const tutti_topology& topology, uint32_t channels) {
  const double* by_link = topology.bandwidth_gbs;
  const double link = by_link[TUTTI_LINK_P2P] > 0 ? by_link[TUTTI_LINK_P2P] : by_link[TUTTI_LINK_SHM];
  return link / channels;
}

std::vector<Order> join(const tutti_topology& topology, std::span<const tutti_node_graph> graphs) {
  uint32_t channels = graphs.empty() ? 0 : graphs[0].channel_count;
  for (const tutti_node_graph& graph : graphs) channels = std::min(channels, graph.channel_count);
  std::vector<Order> orders(channels);
  for (uint32_t channel = 0; channel < channels; ++channel) {
    for (const tutti_node_graph& graph : graphs) {
      const uint32_t* begin = graph.orders + size_t{channel} * graph.rank_count;
      orders[channel].insert(orders[channel].end(), begin, begin + graph.rank_count);
    }
    if (!names_every_rank_once(orders[channel], topology.rank_count)) return {};
  }
  return orders;
}

}  // namespace tutti::ring
