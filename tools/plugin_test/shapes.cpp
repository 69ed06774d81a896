// SPDX-License-Identifier: Apache-2.0
#include "tools/plugin_test/shapes.h"

#include <fmt/format.h>

namespace tutti::tools::plugin_test {
namespace {

constexpr uint32_t kMostMachines = 4;  // with one rank each
constexpr uint32_t kSeveralChannels = 3;

Shape in_blocks(uint32_t ranks, uint32_t nodes, uint32_t channels) {
  Shape shape;
  shape.node_count = nodes;
  shape.channels = channels;
  shape.on_gpus = ranks % 2 == 0;
  for (uint32_t rank = 0; rank < ranks; ++rank) shape.node_of_rank.push_back(rank * nodes / ranks);
  return shape;
}

Shape in_turns(uint32_t ranks, uint32_t nodes) {
  Shape shape = in_blocks(ranks, nodes, 1);
  for (uint32_t rank = 0; rank < ranks; ++rank) shape.node_of_rank[rank] = rank % nodes;
  return shape;
}

}  // namespace

tutti_topology Shape::topology() const {
  tutti_topology out{};
  out.struct_size = sizeof out;
  out.rank_count = rank_count();
  out.node_count = node_count;
  out.min_channels = out.max_channels = channels;
  out.node_of_rank = node_of_rank.data();
  const uint32_t inside = on_gpus ? TUTTI_LINK_P2P : TUTTI_LINK_SHM;
  out.bandwidth_gbs[inside] = on_gpus ? 350 : 20;
  out.latency_us[inside] = 1;
  out.gap_us[inside] = 0.5;
  if (node_count > 1) {
    out.bandwidth_gbs[TUTTI_LINK_NETWORK] = 50;
    out.latency_us[TUTTI_LINK_NETWORK] = 5;
    out.gap_us[TUTTI_LINK_NETWORK] = 1;
  }
  return out;
}

std::string Shape::name() const {
  const bool turns = node_count > 1 && node_of_rank.size() > node_count && node_of_rank[1] == 1 &&
                     node_of_rank[0] == 0 && node_of_rank.back() != node_count - 1;
  return fmt::format("{} rank{} on {} machine{}{}, {} channel{}", rank_count(), rank_count() == 1 ? "" : "s",
                     node_count, node_count == 1 ? "" : "s", turns ? " in turns" : "", channels,
                     channels == 1 ? "" : "s");
}

std::vector<Shape> all_shapes() {
  std::vector<Shape> shapes;
  for (const uint32_t ranks : {1u, 2u, 3u, 4u, 5u, 6u, 7u, 8u, 9u, 16u, 33u}) {
    for (const uint32_t nodes : {1u, 2u, 3u}) {
      if (nodes <= ranks) shapes.push_back(in_blocks(ranks, nodes, nodes > 1 ? kSeveralChannels : 1));
    }
    if (ranks == kMostMachines) shapes.push_back(in_blocks(ranks, ranks, 1));
    if (ranks == 5 || ranks == 9) shapes.push_back(in_turns(ranks, 2));
    if (ranks == 8) shapes.push_back(in_blocks(ranks, 1, kSeveralChannels));
  }
  return shapes;
}

std::vector<Shape> few_shapes() {
  return {in_blocks(1, 1, 1), in_blocks(2, 1, 1), in_blocks(5, 2, kSeveralChannels), in_blocks(8, 1, kSeveralChannels)};
}

}  // namespace tutti::tools::plugin_test
