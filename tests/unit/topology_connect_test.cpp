// SPDX-License-Identifier: Apache-2.0
// Machines joined into rings and double trees: worked examples, and properties over many sizes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <numeric>
#include <random>

#include "tutti/sdk/rings.h"
#include "tutti/sdk/trees.h"

namespace tutti::sdk {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// Machines with given channels, as their searches would report them.
class Cluster {
 public:
  /// `orders[node][channel]`: ranks.
  explicit Cluster(std::vector<std::vector<Order>> orders, uint32_t pattern = TUTTI_PATTERN_RING) {
    for (uint32_t node = 0; node < orders.size(); ++node) {
      for (const uint32_t rank : orders[node][0]) {
        if (node_of_rank_.size() <= rank) node_of_rank_.resize(rank + 1);
        node_of_rank_[rank] = node;
      }
      auto& flat = flat_.emplace_back();
      auto& nets = nets_.emplace_back();
      for (uint32_t channel = 0; channel < orders[node].size(); ++channel) {
        flat.insert(flat.end(), orders[node][channel].begin(), orders[node][channel].end());
        nets.insert(nets.end(), {channel, channel});
      }
      tutti_graph graph{};
      graph.node = node;
      graph.pattern = pattern;
      graph.rank_count = static_cast<uint32_t>(orders[node][0].size());
      graph.channel_count = static_cast<uint32_t>(orders[node].size());
      graphs_.push_back(graph);
    }
    for (size_t i = 0; i < graphs_.size(); ++i) {
      graphs_[i].orders = flat_[i].data();
      graphs_[i].nets = nets_[i].data();
    }
    topology.rank_count = static_cast<uint32_t>(node_of_rank_.size());
    topology.node_count = static_cast<uint32_t>(graphs_.size());
    topology.node_of_rank = node_of_rank_.data();
    topology.min_channels = 1;
    topology.max_channels = 64;
  }
  std::span<tutti_graph> graphs() { return graphs_; }
  std::vector<uint32_t>& orders(uint32_t node) { return flat_[node]; }

  tutti_topology topology{};

 private:
  std::vector<uint32_t> node_of_rank_;
  std::vector<std::vector<uint32_t>> flat_;
  std::vector<std::vector<uint32_t>> nets_;
  std::vector<tutti_graph> graphs_;
};

/// Machines of different sizes, ranks dealt out at random, `channels` random orders each.
Cluster random_cluster(std::mt19937_64& random, uint32_t nodes, uint32_t channels, uint32_t pattern) {
  std::vector<uint32_t> ranks;
  std::vector<std::vector<Order>> orders(nodes);
  std::vector<uint32_t> sizes(nodes);
  for (uint32_t& size : sizes) ranks.resize(ranks.size() + (size = 1 + static_cast<uint32_t>(random() % 8)));
  std::iota(ranks.begin(), ranks.end(), 0u);
  std::shuffle(ranks.begin(), ranks.end(), random);
  auto next = ranks.begin();
  for (uint32_t node = 0; node < nodes; ++node) {
    Order mine(next, next + sizes[node]);
    next += sizes[node];
    for (uint32_t channel = 0; channel < channels; ++channel) {
      std::shuffle(mine.begin(), mine.end(), random);
      orders[node].push_back(mine);
    }
  }
  return Cluster(std::move(orders), pattern);
}

TEST(Rings, TwoMachinesOfEightSeenFromRankSix) {
  Cluster cluster({{{0, 7, 6, 3, 2, 5, 4, 1}}, {{10, 9, 8, 13, 12, 15, 14, 11}}});
  const auto rings = join_rings(cluster.topology, cluster.graphs());
  ASSERT_TRUE(rings.ok()) << rings.status().to_string();
  EXPECT_THAT(seen_from(rings->at(0), 6), ElementsAre(6, 3, 2, 5, 4, 1, 10, 9, 8, 13, 12, 15, 14, 11, 0, 7));
}

TEST(Rings, EveryRankOnceWhateverTheMachines) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  for (int round = 0; round < 300; ++round) {
    const auto nodes = 1 + static_cast<uint32_t>(random() % 20);
    Cluster cluster = random_cluster(random, nodes, 1 + static_cast<uint32_t>(random() % 5), TUTTI_PATTERN_RING);
    const auto rings = join_rings(cluster.topology, cluster.graphs());
    ASSERT_TRUE(rings.ok()) << rings.status().to_string();
    for (const Order& ring : *rings) {
      Order sorted = ring;
      std::sort(sorted.begin(), sorted.end());
      ASSERT_EQ(sorted.size(), cluster.topology.rank_count);
      for (uint32_t rank = 0; rank < sorted.size(); ++rank) ASSERT_EQ(sorted[rank], rank);
      // A machine is entered once and left once.
      uint32_t changes = 0;
      for (size_t i = 0; i < ring.size(); ++i) {
        const uint32_t* node = cluster.topology.node_of_rank;
        changes += node[ring[i]] != node[ring[(i + 1) % ring.size()]] ? 1 : 0;
      }
      EXPECT_EQ(changes, nodes == 1 ? 0 : nodes);
    }
  }
}

TEST(Rings, ChannelsAreTheFewestFoundThenRepeated) {
  Cluster cluster({{{0, 1}, {1, 0}, {0, 1}}, {{2, 3}, {3, 2}}});
  cluster.topology.min_channels = 5;
  const auto rings = join_rings(cluster.topology, cluster.graphs());
  ASSERT_TRUE(rings.ok());
  ASSERT_EQ(rings->size(), 5u);
  EXPECT_THAT(rings->at(1), ElementsAre(1, 0, 3, 2));
  EXPECT_THAT(rings->at(2), ElementsAre(0, 1, 2, 3));
  cluster.topology.min_channels = cluster.topology.max_channels = 1;
  EXPECT_EQ(join_rings(cluster.topology, cluster.graphs())->size(), 1u);
}

TEST(Rings, EverySecondMachineSwapsChannelsThatCrossNics) {
  Cluster cluster({{{0, 1}, {1, 0}}, {{2, 3}, {3, 2}}});
  for (tutti_graph& graph : cluster.graphs()) graph.cross_nic = 1;
  const auto rings = join_rings(cluster.topology, cluster.graphs());
  ASSERT_TRUE(rings.ok());
  EXPECT_THAT(rings->at(0), ElementsAre(0, 1, 3, 2));
  const ChannelNets nets(cluster.graphs(), 2);
  EXPECT_EQ(nets.of(0, 0).send, 0u);
  EXPECT_EQ(nets.of(0, 1).send, 1u);
  EXPECT_EQ(nets.of(2, 1).receive, 1u) << "repeated channels use the devices of those they repeat";
}

TEST(Rings, TheLastOfAnOddNumberOfChannelsHasNoPartnerToSwapWith) {
  Cluster cluster({{{0, 1}, {1, 0}, {0, 1}}, {{2, 3}, {3, 2}, {2, 3}}});
  for (tutti_graph& graph : cluster.graphs()) graph.cross_nic = 1;
  const auto channels = [&](uint32_t node) {
    std::vector<uint32_t> own;
    for (uint32_t channel = 0; channel < 6; ++channel)
      own.push_back(channel_in_node(cluster.graphs()[node], channel, 3));
    return own;
  };
  EXPECT_THAT(channels(0), ElementsAre(0, 1, 2, 0, 1, 2));
  EXPECT_THAT(channels(1), ElementsAre(1, 0, 2, 1, 0, 2));
  EXPECT_THAT(join_rings(cluster.topology, cluster.graphs())->at(2), ElementsAre(0, 1, 2, 3));
  for (tutti_graph& graph : cluster.graphs()) graph.cross_nic = 0;
  EXPECT_THAT(channels(1), ElementsAre(0, 1, 2, 0, 1, 2)) << "only where channels cross";
}

TEST(Rings, AChannelThatMissesARankIsRefused) {
  Cluster cluster({{{0, 1}}, {{2, 3}}});
  cluster.orders(1)[1] = 2;
  const auto rings = join_rings(cluster.topology, cluster.graphs());
  ASSERT_FALSE(rings.ok());
  EXPECT_THAT(rings.status().text(), HasSubstr("every rank exactly once"));
  EXPECT_FALSE(join_trees(cluster.topology, {}).ok());
}

TEST(DoubleTree, EveryMachineIsALeafInOneTreeAndInnerInTheOther) {
  for (uint32_t count = 1; count <= 1100; ++count) {
    const auto levels = static_cast<uint32_t>(std::ceil(std::log2(count))) + 1;
    std::vector<uint32_t> inner(count);
    for (const uint32_t tree : {0u, 1u}) {
      uint32_t roots = 0;
      std::vector<uint32_t> parents(count, kNobody);
      for (uint32_t node = 0; node < count; ++node) {
        const TreePlace place = double_tree_place(node, count, tree);
        roots += place.parent == kNobody ? 1 : 0;
        parents[node] = place.parent;
        if (!place.is_leaf()) ++inner[node];
        for (const uint32_t child : place.children) {
          if (child == kNobody) continue;
          ASSERT_LT(child, count);
          ASSERT_EQ(double_tree_place(child, count, tree).parent, node) << count << ": " << child;
        }
      }
      ASSERT_EQ(roots, 1u) << count;
      for (uint32_t node = 0; node < count; ++node) {
        uint32_t machines = 1;
        for (uint32_t at = node; parents[at] != kNobody; at = parents[at]) ASSERT_LE(++machines, levels) << count;
        if (parents[node] == kNobody) continue;
        const TreePlace above = double_tree_place(parents[node], count, tree);
        ASSERT_THAT(above.children, testing::Contains(node)) << count;
      }
    }
    for (uint32_t node = 0; count > 1 && node < count; ++node) ASSERT_EQ(inner[node], 1u) << count << ": " << node;
  }
}

/// Which rank of machine 1 of 4, of ranks 2 and 3 in this order, talks to the machines of its children, 0 and 2.
std::array<uint32_t, 2> parents_of_children(uint32_t pattern) {
  Cluster cluster({{{0, 1}}, {{2, 3}}, {{4, 5}}, {{6, 7}}}, pattern);
  const auto trees = join_trees(cluster.topology, cluster.graphs());
  EXPECT_TRUE(trees.ok()) << trees.status().to_string();
  const Tree& tree = trees->at(0);
  EXPECT_EQ(tree[3].parent, 2u) << "the chain of the machine";
  return {tree[0].parent, tree[4].parent};
}

TEST(Trees, PatternsSayWhichRankServesAChild) {
  EXPECT_THAT(parents_of_children(TUTTI_PATTERN_TREE), ElementsAre(2, 2));
  EXPECT_THAT(parents_of_children(TUTTI_PATTERN_BALANCED_TREE), ElementsAre(2, 3));
  EXPECT_THAT(parents_of_children(TUTTI_PATTERN_SPLIT_TREE), ElementsAre(3, 3));
}

TEST(Trees, RefuseChannelsWithRanksOfOtherMachines) {
  Cluster cluster({{{0, 1}}, {{2, 3}}}, TUTTI_PATTERN_TREE);
  cluster.orders(1)[1] = 1;
  EXPECT_THAT(join_trees(cluster.topology, cluster.graphs()).status().text(), HasSubstr("a rank of another machine"));
  cluster.orders(1)[1] = 9;
  EXPECT_THAT(join_trees(cluster.topology, cluster.graphs()).status().text(), HasSubstr("a rank of another machine"));
}

TEST(Trees, AMachineOfOneRankServesAllItself) {
  for (const uint32_t pattern : {TUTTI_PATTERN_TREE, TUTTI_PATTERN_BALANCED_TREE, TUTTI_PATTERN_SPLIT_TREE}) {
    Cluster cluster({{{0}}, {{1}}, {{2}}, {{3}}}, pattern);
    const auto trees = join_trees(cluster.topology, cluster.graphs());
    ASSERT_TRUE(trees.ok()) << trees.status().to_string();
    EXPECT_EQ(trees->at(0)[0].parent, 1u);
    EXPECT_EQ(trees->at(0)[2].parent, 1u);
  }
}

TEST(Trees, SpanAllRanksAndUseBothTrees) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  for (int round = 0; round < 300; ++round) {
    const auto nodes = 1 + static_cast<uint32_t>(random() % 40);
    const auto pattern = TUTTI_PATTERN_TREE + static_cast<uint32_t>(random() % 3);
    const auto channels = 1 + static_cast<uint32_t>(random() % 4);
    Cluster cluster = random_cluster(random, nodes, channels, pattern);
    const auto trees = join_trees(cluster.topology, cluster.graphs());
    ASSERT_TRUE(trees.ok()) << trees.status().to_string();
    ASSERT_EQ(trees->size(), nodes > 1 ? 2 * channels : channels);
    std::vector<uint32_t> streams(nodes);  // streams that a machine sends and receives in the first two trees
    for (size_t t = 0; t < trees->size(); ++t) {
      const Tree& tree = trees->at(t);
      uint32_t roots = 0;
      for (uint32_t rank = 0; rank < tree.size(); ++rank) {
        roots += tree[rank].parent == kNobody ? 1 : 0;
        uint32_t hops = 0;
        for (uint32_t at = rank; tree[at].parent != kNobody; at = tree[at].parent) ASSERT_LE(++hops, tree.size());
        for (const uint32_t child : tree[rank].children) {
          if (child == kNobody) continue;
          ASSERT_EQ(tree[child].parent, rank);
          const uint32_t* node = cluster.topology.node_of_rank;
          if (t < 2 && node[child] != node[rank]) ++streams[node[rank]], ++streams[node[child]];
        }
      }
      ASSERT_EQ(roots, 1u);
    }
    for (const uint32_t count : streams) EXPECT_LE(count, 4u) << "no machine does more than its share of both trees";
  }
}

TEST(ChannelNets, SendByOneDeviceAndReceiveByAnother) {
  std::array<uint32_t, 4> nets = {3, 7, 4, 9};
  tutti_graph graph{};
  graph.channel_count = 2;
  graph.nets = nets.data();
  const ChannelNets devices(std::span(&graph, 1), 2);
  for (const uint32_t channel : {0u, 1u}) {
    EXPECT_NE(net_out(graph, channel), net_in(graph, channel));
    EXPECT_EQ(devices.of(channel, 0).send, net_out(graph, channel));
    EXPECT_EQ(devices.of(channel, 0).receive, net_in(graph, channel));
  }
}

}  // namespace
}  // namespace tutti::sdk
