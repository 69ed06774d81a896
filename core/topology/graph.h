// SPDX-License-Identifier: Apache-2.0
// The channels of one machine, owned. `search` reports them, ranks exchange them, and `connect` reads them.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "tutti/plugin/topology.h"
#include "tutti/status.h"

namespace tutti::topology {

/// Channels of one machine with their orders of ranks and their ports. Does not change after construction: any thread.
class NodeGraph {
 public:
  NodeGraph() = default;

  /// A copy of the graph that a plugin reported. kInternal unless it has at least one channel, and each channel names
  /// exactly once every rank that `topology` puts on machine `node`.
  static Result<NodeGraph> copy(const tutti_graph& graph, const tutti_topology& topology, uint32_t node);

  std::vector<std::byte> encode() const;
  /// kInternal if encode() did not make the bytes.
  static Result<NodeGraph> decode(std::span<const std::byte> bytes);

  uint32_t channel_count() const { return head_.channel_count; }
  uint32_t rank_count() const { return head_.rank_count; }
  std::span<const uint32_t> order(uint32_t channel) const {
    return std::span(orders_).subspan(size_t{channel} * head_.rank_count, head_.rank_count);
  }
  uint32_t net_in(uint32_t channel) const { return nets_[size_t{channel} * 2]; }
  uint32_t net_out(uint32_t channel) const { return nets_[size_t{channel} * 2 + 1]; }
  /// Whether the algorithm searched the machine: the speed of its channels is known.
  bool is_searched() const { return head_.intra_gbs > 0 || head_.inter_gbs > 0; }
  /// The same channels for machine `node`, of the same kind: `rank_offset` is added to every rank.
  NodeGraph moved_to(uint32_t node, uint32_t rank_offset) const;

  /// The same channels in a different order: `order` contains the number of each channel once.
  NodeGraph reordered(std::span<const uint32_t> order) const;

  /// Borrows from this.
  tutti_graph view() const;
  /// "ring: 14 channels × 26.5 GB/s, NVL between ranks, PIX to the network"
  std::string summary() const;

 private:
  tutti_graph head_{};
  std::vector<uint32_t> orders_;
  std::vector<uint32_t> nets_;
};

class System;
/// "channel  0: mlx5_0 → 0 1 2 3 → mlx5_0  (× 2)": a channel's ranks, between the ports by which it enters and leaves
/// the machine. A line per different channel, with the number of equal channels; or, with `all`, a line per channel.
std::vector<std::string> channel_lines(const NodeGraph& graph, const System& system, bool all = false);

/// "ring", "tree", "balanced tree", "split tree".
std::string_view pattern_name(uint32_t pattern);

}  // namespace tutti::topology
