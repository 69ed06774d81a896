// SPDX-License-Identifier: Apache-2.0
// The costs that algorithms report to tuners, counted by hand: on one node, on several, and on nodes of unequal size.
#include <gmock/gmock.h>

#include <algorithm>
#include <array>

#include "program/channels.h"
#include "program/cost.h"
#include "program/passes/split_messages.h"
#include "unit/plan_support.h"
#include "unit/required.h"

namespace tutti::test {
namespace {

using testing::DoubleNear;

/// By kind of link: inside of nodes, between nodes.
struct Cost {
  std::array<uint32_t, 2> hops;
  std::array<double, 2> wire;
};

class CostsTest : public testing::Test {
 protected:
  static void expect(const Algorithm& algorithm, const NodeOfRank& nodes, uint32_t collective, uint32_t variant,
                     const Cost& expected, uint32_t channels = 1) {
    SCOPED_TRACE(algorithm.name() + ", " + std::string(to_string(static_cast<Collective>(collective))) + ", variant " +
                 std::to_string(variant) + ", " + std::to_string(nodes.size()) + " ranks");
    const tutti_algorithm_cost cost = Connected(algorithm, nodes, channels).cost(collective, variant);
    EXPECT_EQ(cost.hops[TUTTI_LINK_P2P], expected.hops[0]);
    EXPECT_EQ(cost.hops[TUTTI_LINK_NETWORK], expected.hops[1]);
    EXPECT_EQ(cost.hops[TUTTI_LINK_SHM], 0u) << "the devices reach each other directly";
    EXPECT_THAT(cost.wire[TUTTI_LINK_P2P], DoubleNear(expected.wire[0], 1e-9));
    EXPECT_THAT(cost.wire[TUTTI_LINK_NETWORK], DoubleNear(expected.wire[1], 1e-9));
    EXPECT_EQ(cost.wire[TUTTI_LINK_SHM], 0);
  }

  const NodeOfRank one_node_ = {0, 0, 0, 0};
  const NodeOfRank two_nodes_ = {0, 0, 0, 1, 1, 1};
  const NodeOfRank unequal_nodes_ = {0, 0, 0, 1};
  const NodeOfRank alone_ = {0, 1, 2, 3};
};

TEST_F(CostsTest, OfRings) {
  const Algorithm ring("ring");
  expect(ring, {0}, TUTTI_ALL_REDUCE, 0, {{0, 0}, {0, 0}});
  // Every block passes n - 1 links, twice where it is reduced and sent around again.
  expect(ring, one_node_, TUTTI_ALL_REDUCE, 0, {{6, 0}, {1.5, 0}});
  expect(ring, one_node_, TUTTI_REDUCE_SCATTER, 0, {{3, 0}, {0.75, 0}});
  expect(ring, one_node_, TUTTI_ALL_GATHER, 0, {{3, 0}, {0.75, 0}});
  expect(ring, one_node_, TUTTI_BROADCAST, 0, {{3, 0}, {1, 0}});
  expect(ring, one_node_, TUTTI_REDUCE, 0, {{3, 0}, {1, 0}});
  // Two of the six links join nodes.
  expect(ring, two_nodes_, TUTTI_ALL_REDUCE, 0, {{6, 4}, {10.0 / 6, 10.0 / 6}});
  expect(ring, two_nodes_, TUTTI_ALL_GATHER, 0, {{3, 2}, {5.0 / 6, 5.0 / 6}});
  expect(ring, two_nodes_, TUTTI_BROADCAST, 0, {{3, 2}, {1, 1}});
  expect(ring, unequal_nodes_, TUTTI_ALL_REDUCE, 0, {{2, 4}, {1.5, 1.5}});
  // All links do.
  expect(ring, alone_, TUTTI_ALL_REDUCE, 0, {{0, 6}, {0, 1.5}});
  expect(ring, alone_, TUTTI_BROADCAST, 0, {{0, 3}, {0, 1}});
}

TEST_F(CostsTest, OfTrees) {
  constexpr uint32_t kDirect = 0;
  constexpr uint32_t kPipelined = 1;
  const Algorithm tree("tree");
  expect(tree, {0}, TUTTI_BROADCAST, kDirect, {{0, 0}, {0, 0}});
  // A chain of four: three hops up, and three down again.
  expect(tree, one_node_, TUTTI_ALL_REDUCE, kDirect, {{6, 0}, {6, 0}});
  expect(tree, one_node_, TUTTI_BROADCAST, kDirect, {{3, 0}, {1.5, 0}});
  expect(tree, one_node_, TUTTI_REDUCE, kDirect, {{3, 0}, {1.5, 0}});
  // 4 × 3 chunks: eleven more of them each way.
  expect(tree, one_node_, TUTTI_ALL_REDUCE, kPipelined, {{6 + 22, 0}, {2 * (1 + 3.0 / 12), 0}});
  // Two chains of three, whose first ranks are joined: two hops inside, then one between.
  expect(tree, two_nodes_, TUTTI_ALL_REDUCE, kDirect, {{4, 2}, {4, 2}});
  expect(tree, two_nodes_, TUTTI_BROADCAST, kDirect, {{2, 1}, {1, 1}});
  expect(tree, two_nodes_, TUTTI_ALL_REDUCE, kPipelined, {{4, 2}, {2 * (1 + 2.0 / 12), 2 * (1 + 1.0 / 12)}});
  const auto pipelined = Connected(tree, two_nodes_).cost(TUTTI_ALL_REDUCE, kPipelined);
  EXPECT_EQ(pipelined.messages[TUTTI_LINK_NETWORK], 2u + 22u) << "the further chunks follow without an answer";
  // With both trees, half of the data goes by each.
  expect(tree, two_nodes_, TUTTI_ALL_REDUCE, kDirect, {{4, 2}, {4, 2}}, 2);
  expect(tree, two_nodes_, TUTTI_BROADCAST, kDirect, {{2, 1}, {1, 1}}, 2);
  // Four nodes: the deepest is two hops below the root. A machine sends to two children.
  expect(tree, alone_, TUTTI_BROADCAST, kDirect, {{0, 2}, {0, 2}});
  expect(tree, alone_, TUTTI_ALL_REDUCE, kDirect, {{0, 4}, {0, 8}});
}

TEST_F(CostsTest, OfDirectExchanges) {
  constexpr uint32_t kOneShot = 0;
  constexpr uint32_t kTwoShot = 1;
  constexpr uint32_t kShifted = 2;
  constexpr double kCongestion = 1.06;  // the built-in setting
  const Algorithm direct("direct");
  expect(direct, {0}, TUTTI_ALL_REDUCE, kOneShot, {{0, 0}, {0, 0}});
  expect(direct, one_node_, TUTTI_ALL_REDUCE, kOneShot, {{1, 0}, {3 * kCongestion, 0}});
  expect(direct, one_node_, TUTTI_ALL_REDUCE, kTwoShot, {{2, 0}, {1.5 * kCongestion, 0}});
  expect(direct, one_node_, TUTTI_BROADCAST, kOneShot, {{1, 0}, {3 * kCongestion, 0}});
  expect(direct, one_node_, TUTTI_ALL_TO_ALL, kOneShot, {{1, 0}, {0.75 * kCongestion, 0}});
  expect(direct, one_node_, TUTTI_ALL_TO_ALL, kShifted, {{3, 0}, {0.75, 0}});
  expect(direct, one_node_, TUTTI_GATHER, kShifted, {{1, 0}, {0.75, 0}});
  // The hops inside are over before the hops between, unless they take turns.
  expect(direct, two_nodes_, TUTTI_ALL_GATHER, kOneShot, {{0, 1}, {2 * kCongestion / 6, 3 * kCongestion / 6}});
  expect(direct, two_nodes_, TUTTI_ALL_GATHER, kShifted, {{2, 3}, {2.0 / 6, 3.0 / 6}});
  // The busiest rank inside is one of three ranks; the busiest rank outside is the single rank.
  expect(direct, unequal_nodes_, TUTTI_ALL_REDUCE, kOneShot, {{0, 1}, {2 * kCongestion, 3 * kCongestion}});
  expect(direct, unequal_nodes_, TUTTI_ALL_REDUCE, kTwoShot, {{0, 2}, {kCongestion, 1.5 * kCongestion}});
  expect(direct, unequal_nodes_, TUTTI_ALL_TO_ALL, kShifted, {{2, 3}, {0.5, 0.75}});
  expect(direct, alone_, TUTTI_ALL_TO_ALL, kShifted, {{0, 3}, {0, 0.75}});
}

TEST_F(CostsTest, OfHierarchies) {
  constexpr uint32_t kExchange = 0;
  constexpr uint32_t kDoubling = 1;
  constexpr uint32_t kRing = 2;
  constexpr uint32_t kBruck = 3;
  const Algorithm hier("hier");
  // A part is a third of the data. It crosses to two neighbours twice, and to the other machine once.
  expect(hier, two_nodes_, TUTTI_ALL_REDUCE, kExchange, {{2, 1}, {4.0 / 3, 1.0 / 3}});
  expect(hier, two_nodes_, TUTTI_BROADCAST, kExchange, {{2, 1}, {4.0 / 3, 1.0 / 3}});
  // A part is one block of six. Two blocks go to each neighbour.
  expect(hier, two_nodes_, TUTTI_ALL_GATHER, kExchange, {{1, 1}, {4.0 / 6, 1.0 / 6}});
  expect(hier, two_nodes_, TUTTI_REDUCE_SCATTER, kExchange, {{1, 1}, {4.0 / 6, 1.0 / 6}});
  const NodeOfRank four_nodes = {0, 0, 1, 1, 2, 2, 3, 3};
  expect(hier, four_nodes, TUTTI_ALL_REDUCE, kExchange, {{2, 1}, {1, 1.5}});
  expect(hier, four_nodes, TUTTI_ALL_GATHER, kExchange, {{3, 1}, {4.0 / 8, 3.0 / 8}});
  // Each rank has half of the blocks of its machine cross, in one message to each counterpart.
  expect(hier, two_nodes_, TUTTI_ALL_TO_ALL, kExchange, {{1, 1}, {4.0 / 6, 0.5}});
  expect(hier, four_nodes, TUTTI_ALL_TO_ALL, kExchange, {{1, 1}, {0.5, 0.75}});
  expect(hier, four_nodes, TUTTI_ALL_REDUCE, kDoubling, {{2, 2}, {1, 1}});
  expect(hier, four_nodes, TUTTI_ALL_REDUCE, kRing, {{2, 6}, {1, 0.75}});
  expect(hier, alone_, TUTTI_ALL_REDUCE, kDoubling, {{0, 2}, {0, 2}});
  // The third machine sends its sum to the first, while the second sends to the first, and gets the result.
  const NodeOfRank three_nodes = {0, 0, 1, 1, 2, 2};
  expect(hier, three_nodes, TUTTI_ALL_REDUCE, kDoubling, {{2, 2}, {1, 1}});
  expect(hier, three_nodes, TUTTI_ALL_GATHER, kBruck, {{1, 2}, {3.0 / 6, 2.0 / 6}});
  expect(hier, three_nodes, TUTTI_REDUCE_SCATTER, kBruck, {{1, 2}, {3.0 / 6, 2.0 / 6}});
  expect(hier, four_nodes, TUTTI_ALL_GATHER, kBruck, {{1, 2}, {4.0 / 8, 3.0 / 8}});
  const tutti_algorithm_cost exchange = Connected(hier, four_nodes).cost(TUTTI_ALL_REDUCE, kExchange);
  EXPECT_EQ(exchange.messages[TUTTI_LINK_P2P], 2u);
  EXPECT_EQ(exchange.messages[TUTTI_LINK_NETWORK], 3u);
  EXPECT_EQ(exchange.fan, 3u);
  EXPECT_DOUBLE_EQ(exchange.memory, 2 + 0.5 * (2 + 3));
  const tutti_algorithm_cost all_to_all = Connected(hier, four_nodes).cost(TUTTI_ALL_TO_ALL, kExchange);
  EXPECT_EQ(all_to_all.messages[TUTTI_LINK_P2P], 4u) << "one for each block";
  EXPECT_EQ(all_to_all.messages[TUTTI_LINK_NETWORK], 6u);
  EXPECT_DOUBLE_EQ(all_to_all.memory, 2 + 0.5 + 3 * 0.75);
  // Blocks for the other machines have no common stride.
  const tutti_algorithm_cost scattered = Connected(hier, {0, 1, 2, 3, 0, 1, 2, 3}).cost(TUTTI_ALL_TO_ALL, kExchange);
  EXPECT_EQ(scattered.messages[TUTTI_LINK_P2P], 4u);
  EXPECT_DOUBLE_EQ(scattered.wire[TUTTI_LINK_P2P], 0.5);
}

TEST_F(CostsTest, OfMessagesAndMemory) {
  const Algorithm direct("direct");
  const tutti_algorithm_cost two_shot = Connected(direct, unequal_nodes_).cost(TUTTI_ALL_REDUCE, 1);
  EXPECT_EQ(two_shot.messages[TUTTI_LINK_P2P], 4u);
  EXPECT_EQ(two_shot.messages[TUTTI_LINK_NETWORK], 6u);
  EXPECT_EQ(two_shot.fan, 3u);
  EXPECT_DOUBLE_EQ(two_shot.memory, 2 + 2 * 1.5);
  const tutti_algorithm_cost shifted = Connected(direct, one_node_).cost(TUTTI_ALL_TO_ALL, 2);
  EXPECT_EQ(shifted.messages[TUTTI_LINK_P2P], 3u);
  EXPECT_EQ(shifted.messages[TUTTI_LINK_NETWORK], 0u);
  EXPECT_EQ(shifted.fan, 1u);
  EXPECT_DOUBLE_EQ(Connected(Algorithm("ring"), one_node_).cost(TUTTI_ALL_REDUCE, 0).memory, 3.5);
  EXPECT_DOUBLE_EQ(Connected(Algorithm("tree"), one_node_).cost(TUTTI_ALL_REDUCE, 0).memory, 4);
}

/// The most peers of a step, and the most messages that a rank sends or receives on each kind of link.
struct Counts {
  uint32_t fan = 0;
  std::array<uint32_t, 2> messages{};
};

Counts counts_of(const std::vector<program::Plan>& plans, const NodeOfRank& nodes) {
  Counts counts;
  for (const program::Plan& plan : plans) {
    std::array<uint32_t, 2> sent{};
    std::array<uint32_t, 2> received{};
    const auto link_to = [&](const tutti_plan_peer& peer) { return nodes[peer.rank] == nodes[plan.rank] ? 0 : 1; };
    for (const tutti_plan_step& step : plan.steps) {
      counts.fan = std::max<uint32_t>({counts.fan, step.recv_count, step.send_count});
      for (const tutti_plan_peer& peer : plan.send(step)) ++sent[static_cast<size_t>(link_to(peer))];
      for (const tutti_plan_peer& peer : plan.recv(step)) ++received[static_cast<size_t>(link_to(peer))];
    }
    for (const size_t link : {0, 1})
      counts.messages[link] = std::max({counts.messages[link], sent[link], received[link]});
  }
  return counts;
}

/// The plans with a message for each chunk.
std::vector<program::Plan> as_kernels_send(const std::vector<program::Plan>& plans) {
  std::vector<program::Plan> split;
  for (const program::Plan& plan : plans) split.push_back(required(program::split_messages(plan)));
  return split;
}

/// Fans, hops and messages of hierarchies are those of the plans.
TEST_F(CostsTest, OfHierarchiesAreThoseOfPlans) {
  const Algorithm hier("hier");
  for (const uint32_t machines : {2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 16, 17, 20, 22}) {
    for (const uint32_t positions : {1, 2, 3}) {
      NodeOfRank nodes;
      for (uint32_t rank = 0; rank < machines * positions; ++rank) nodes.push_back(rank / positions);
      Connected connected(hier, nodes);
      for (uint32_t variant = 0; variant < hier.variants().size(); ++variant) {
        for (uint32_t collective = 0; collective < TUTTI_COLLECTIVE_COUNT; ++collective) {
          const auto plans = connected.plans(collective, variant);
          if (!plans.ok()) continue;  // declined
          SCOPED_TRACE(std::to_string(machines) + " machines of " + std::to_string(positions) + ", variant " +
                       std::to_string(variant) + ", collective " + std::to_string(collective));
          const tutti_algorithm_cost stated = connected.cost(collective, variant);
          const auto counted = required(program::cost_of(*plans, topology_of(nodes)));
          EXPECT_EQ(stated.fan, std::max(counts_of(*plans, nodes).fan, 1u));
          EXPECT_EQ(stated.hops[TUTTI_LINK_P2P], counted.hops[TUTTI_LINK_P2P]);
          EXPECT_EQ(stated.hops[TUTTI_LINK_NETWORK], counted.hops[TUTTI_LINK_NETWORK]);
          const Counts of_kernels = counts_of(as_kernels_send(*plans), nodes);
          EXPECT_EQ(stated.messages[TUTTI_LINK_P2P], of_kernels.messages[0]);
          EXPECT_EQ(stated.messages[TUTTI_LINK_NETWORK], of_kernels.messages[1]);
        }
      }
    }
  }
}

/// The sums of costs equal the counts of the plans, where the largest machine and every root are equally busy.
TEST_F(CostsTest, OfMachinesAreTheCountsOfPlans) {
  const struct {
    const char* algorithm;
    uint32_t collective;
    uint32_t variant;
  } cases[] = {{"ring", TUTTI_ALL_REDUCE, 0},     {"ring", TUTTI_ALL_GATHER, 0},  {"direct", TUTTI_ALL_REDUCE, 0},
               {"direct", TUTTI_ALL_REDUCE, 1},   {"direct", TUTTI_BROADCAST, 0}, {"direct", TUTTI_ALL_TO_ALL, 2},
               {"tree", TUTTI_ALL_REDUCE, 0},     {"tree", TUTTI_ALL_REDUCE, 1},  {"tree", TUTTI_BROADCAST, 0},
               {"hier", TUTTI_ALL_REDUCE, 0},     {"hier", TUTTI_ALL_GATHER, 0},  {"hier", TUTTI_BROADCAST, 0},
               {"hier", TUTTI_REDUCE_SCATTER, 0}, {"hier", TUTTI_ALL_TO_ALL, 0},  {"hier", TUTTI_REDUCE, 0}};
  for (const auto& one : cases) {
    SCOPED_TRACE(std::string(one.algorithm) + ", collective " + std::to_string(one.collective) + ", variant " +
                 std::to_string(one.variant));
    const Algorithm algorithm(one.algorithm);
    Connected connected(algorithm, two_nodes_);
    const tutti_algorithm_cost stated = connected.cost(one.collective, one.variant);
    const std::vector<program::Plan> plans = as_kernels_send(required(connected.plans(one.collective, one.variant)));
    const auto counted = required(program::cost_of(plans, topology_of(two_nodes_)));
    for (const uint32_t link : {TUTTI_LINK_P2P, TUTTI_LINK_NETWORK}) {
      const double congestion = std::string(one.algorithm) == "direct" && one.variant != 2 ? 1.06 : 1.0;
      const uint32_t all_ranks = 2 * 3 * std::max(stated.messages[link], stated.hops[link]);
      const uint32_t messages = stated.machine_messages[link] > 0 ? stated.machine_messages[link] : all_ranks;
      const double wire = stated.machine_wire[link] > 0 ? stated.machine_wire[link] : 2 * 3 * stated.wire[link];
      EXPECT_EQ(messages, counted.machine_messages[link]) << "link " << link;
      EXPECT_THAT(wire, DoubleNear(counted.machine_wire[link] * congestion, 1e-9)) << "link " << link;
    }
  }
}

TEST_F(CostsTest, OfShmWithoutDeviceLinks) {
  tutti_topology topology = topology_of(one_node_);
  topology.bandwidth_gbs[TUTTI_LINK_P2P] = 0;
  topology.bandwidth_gbs[TUTTI_LINK_SHM] = 10;
  topology.min_channels = topology.max_channels = 1;
  for (const char* name : {"ring", "tree", "direct"}) {
    const Algorithm algorithm(name);
    const auto instance = program::search_and_connect({algorithm.name(), &algorithm.ops(), algorithm.self()}, topology);
    ASSERT_TRUE(instance.ok()) << instance.status().to_string();
    tutti_algorithm_cost cost{};
    cost.struct_size = sizeof cost;
    ASSERT_EQ(algorithm.ops().cost(instance->get(), TUTTI_ALL_REDUCE, 0, &cost), TUTTI_OK);
    EXPECT_GT(cost.hops[TUTTI_LINK_SHM], 0u) << name;
    EXPECT_EQ(cost.hops[TUTTI_LINK_P2P], 0u) << name;
    EXPECT_GT(cost.wire[TUTTI_LINK_SHM], 0) << name;
  }
}

}  // namespace
}  // namespace tutti::test
