// SPDX-License-Identifier: Apache-2.0
// Which way the rings run: an order of ranks per channel.
#pragma once

#include <span>
#include <vector>

#include "tutti/plugin/algorithm.h"

namespace tutti::ring {

/// Ranks along the ring; the last one's successor is the first.
using Order = std::vector<uint32_t>;

/// The ranks of `rank`'s node along channel `channel`: ascending, rotated by one from channel to channel, so that each
/// channel enters and leaves the node through another rank and thereby another NIC; reversed after a full turn, so that
/// links between neighbours carry data both ways.
Order order_in_node(const tutti_topology& topology, uint32_t rank, uint32_t channel);

/// Bandwidth one of `channels` rings can have inside a node, GB/s.
double channel_bandwidth(const tutti_topology& topology, uint32_t channels);

/// Joins the nodes' orders end to end, channel by channel, as many channels as every node has. Empty if the graphs do
/// not name every rank exactly once per channel.
std::vector<Order> join(const tutti_topology& topology, std::span<const tutti_node_graph> graphs);

}  // namespace tutti::ring
