// SPDX-License-Identifier: Apache-2.0
// Hierarchies of machines: which the algorithm `hier` takes, and why it declines the rest.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <map>
#include <numeric>

#include "program/verify/verify.h"
#include "unit/plan_support.h"

namespace tutti::test {
namespace {

using program::verify;
using testing::HasSubstr;

/// Ranks of one machine need not follow each other.
TEST(Hier, TakesInterleavedMachines) {
  const Algorithm hier("hier");
  Connected connected(hier, {0, 1, 2, 1, 0, 2, 2, 0, 1});
  for (uint32_t collective = 0; collective < TUTTI_COLLECTIVE_COUNT; ++collective) {
    for (uint32_t variant = 0; variant < hier.variants().size(); ++variant) {
      if (!hier.variants()[variant].can(collective)) continue;
      const auto plans = connected.plans(collective, variant, program::has_root(Collective(collective)) ? 4 : 0);
      if (hier.variants()[variant].name == "multiplying") {
        EXPECT_THAT(plans.status().text(), HasSubstr("needs five machines or more"));
        continue;
      }
      if (hier.variants()[variant].name == "binomial") {
        EXPECT_THAT(plans.status().text(), HasSubstr("from four machines on"));
        continue;
      }
      const bool is_bruck = hier.variants()[variant].name == "bruck";
      if (is_bruck && collective == TUTTI_ALL_TO_ALL) {
        EXPECT_THAT(plans.status().text(), HasSubstr("from four machines on"));
        continue;
      }
      if (is_bruck) {
        EXPECT_THAT(plans.status().text(), HasSubstr("a constant distance"));
        continue;
      }
      if (hier.variants()[variant].name == "doubling" && collective != TUTTI_ALL_REDUCE) {
        EXPECT_THAT(plans.status().text(), HasSubstr("needs 4, 8, 16, ... machines"));
        continue;
      }
      ASSERT_TRUE(plans.ok()) << plans.status().to_string();
      EXPECT_TRUE(verify(*plans).ok()) << verify(*plans).to_string();
    }
  }
}

/// Messages of one rank to each peer.
std::map<uint32_t, uint32_t> messages_of(const program::Plan& plan) {
  std::map<uint32_t, uint32_t> messages;
  for (const tutti_plan_step& step : plan.steps) {
    for (const tutti_plan_peer& peer : plan.send(step)) ++messages[peer.rank];
  }
  return messages;
}

void expect_proved(const std::vector<program::Plan>& plans) {
  for (const uint32_t slots : {1u, 2u}) {
    EXPECT_TRUE(verify(plans, {.slots = slots}).ok()) << verify(plans, {.slots = slots}).to_string();
  }
}

/// An all-to-all joins the blocks of a pair of machines, whatever the order of the ranks.
TEST(Hier, SendsOneMessageToEachCounterpart) {
  const Algorithm hier("hier");
  struct Layout {
    NodeOfRank nodes;
    uint32_t inside;  // messages to each neighbour
  };
  const std::vector<Layout> layouts = {{{0, 0, 1, 1}, 2},
                                       {{0, 1, 0, 1}, 2},
                                       {{0, 1, 1, 0}, 2},
                                       {{0, 0, 1, 1, 0, 1}, 2},  // machine 0 has the ranks 0, 1 and 4
                                       {{0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3}, 2},
                                       {{0, 0, 1, 1, 2, 2, 0, 0, 1, 1, 2, 2}, 3},
                                       {{0, 1, 2, 0, 1, 2, 0, 1, 2}, 3},
                                       {{2, 2, 1, 1, 0, 0}, 2},
                                       {{0, 1, 2, 1, 0, 2, 2, 0, 1}, 3}};
  for (const auto& [nodes, inside] : layouts) {
    const auto ranks = static_cast<uint32_t>(nodes.size());
    const uint32_t machines = *std::max_element(nodes.begin(), nodes.end()) + 1;
    const auto plans = Connected(hier, nodes).plans(TUTTI_ALL_TO_ALL, 0);
    ASSERT_TRUE(plans.ok()) << plans.status().to_string();
    expect_proved(*plans);
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      const auto messages = messages_of((*plans)[rank]);
      EXPECT_EQ(messages.size(), machines - 1 + ranks / machines - 1);
      for (const auto& [peer, count] : messages) {
        EXPECT_EQ(count, nodes[peer] == nodes[rank] ? inside : 1) << rank << " to " << peer << " of " << ranks;
      }
    }
  }
}

/// Machines with equal numbers of ranks, which follow each other.
NodeOfRank blocks(uint32_t machines, uint32_t positions) {
  NodeOfRank nodes;
  for (uint32_t rank = 0; rank < machines * positions; ++rank) nodes.push_back(rank / positions);
  return nodes;
}

/// Messages of a rank to ranks of other machines.
uint32_t messages_between(const NodeOfRank& nodes, const std::vector<program::Plan>& plans, uint32_t rank) {
  uint32_t between = 0;
  for (const auto& [peer, count] : messages_of(plans[rank])) between += nodes[peer] == nodes[rank] ? 0 : count;
  return between;
}

/// Bruck's schedules send one message to a counterpart in each round.
TEST(Hier, PassesBlocksOnInLogarithmicRounds) {
  const Algorithm hier("hier");
  std::vector<NodeOfRank> layouts = {{0, 1, 2, 3, 0, 1, 2, 3}, {3, 1, 0, 2}, {0, 1, 1, 0, 2, 3, 3, 2, 0, 1, 2, 3}};
  for (const uint32_t machines : {4u, 5u, 6u, 7u, 8u, 9u, 16u, 17u}) layouts.push_back(blocks(machines, 1));
  for (const uint32_t machines : {4u, 5u, 7u, 8u, 9u}) layouts.push_back(blocks(machines, 3));
  for (const NodeOfRank& nodes : layouts) {
    const uint32_t machines = *std::max_element(nodes.begin(), nodes.end()) + 1;
    for (const uint32_t collective : {TUTTI_ALL_TO_ALL, TUTTI_ALL_GATHER, TUTTI_REDUCE_SCATTER}) {
      const auto plans = Connected(hier, nodes).plans(collective, hier.variant("bruck"));
      if (collective != TUTTI_ALL_TO_ALL && !std::is_sorted(nodes.begin(), nodes.end())) {
        EXPECT_THAT(plans.status().text(), HasSubstr("a constant distance"));
        continue;
      }
      ASSERT_TRUE(plans.ok()) << plans.status().to_string();
      expect_proved(*plans);
      for (uint32_t rank = 0; rank < nodes.size(); ++rank) {
        EXPECT_EQ(messages_between(nodes, *plans, rank), std::bit_width(machines - 1)) << machines << " machines";
      }
    }
  }
}

/// Two machines of a pair send one message per round. A machine beyond the last power of two sends one message, and its
/// delegate one more.
TEST(Hier, DoublesSumsOfAnyNumberOfMachines) {
  const Algorithm hier("hier");
  for (const uint32_t positions : {1u, 2u, 3u}) {
    for (uint32_t machines = 3; machines <= 17; ++machines) {
      const NodeOfRank nodes = blocks(machines, positions);
      const auto plans = Connected(hier, nodes).plans(TUTTI_ALL_REDUCE, hier.variant("doubling"));
      ASSERT_TRUE(plans.ok()) << plans.status().to_string();
      expect_proved(*plans);
      const uint32_t paired = std::bit_floor(machines);
      for (uint32_t rank = 0; rank < nodes.size(); ++rank) {
        const bool helps = nodes[rank] + paired < machines;
        const uint32_t expected = nodes[rank] >= paired ? 1 : std::bit_width(paired) - 1 + (helps ? 1 : 0);
        EXPECT_EQ(messages_between(nodes, *plans, rank), expected) << "rank " << rank << " of " << machines;
      }
    }
  }
}

/// Four machines of a group send three messages per round.
TEST(Hier, MultipliesSumsOfAnyNumberOfMachines) {
  const Algorithm hier("hier");
  std::vector<NodeOfRank> layouts = {{0, 1, 1, 0, 2, 4, 3, 3, 4, 2}, {7, 6, 5, 4, 3, 2, 1, 0}};
  for (const uint32_t positions : {1u, 3u}) {
    for (uint32_t machines = 5; machines <= 18; ++machines) layouts.push_back(blocks(machines, positions));
  }
  for (const NodeOfRank& nodes : layouts) {
    const uint32_t machines = *std::max_element(nodes.begin(), nodes.end()) + 1;
    const auto plans = Connected(hier, nodes).plans(TUTTI_ALL_REDUCE, hier.variant("multiplying"));
    ASSERT_TRUE(plans.ok()) << plans.status().to_string();
    expect_proved(*plans);
    uint32_t in_rounds = 0;
    for (int bits = std::bit_width(machines) - 1; bits > 0; bits -= 2) in_rounds += bits == 1 ? 1 : 3;
    uint32_t most = 0;
    for (uint32_t rank = 0; rank < nodes.size(); ++rank) {
      most = std::max(most, messages_between(nodes, *plans, rank));
    }
    EXPECT_EQ(most, in_rounds + (std::has_single_bit(machines) ? 0 : 1)) << machines << " machines";
  }
}

/// The root's machine sends a message to each machine whose distance is a power of two. Each other machine receives
/// one.
TEST(Hier, BroadcastsAndReducesAlongBinomialTrees) {
  const Algorithm hier("hier");
  std::vector<NodeOfRank> layouts = {{0, 1, 1, 0, 2, 3, 3, 2}};
  for (const uint32_t positions : {1u, 2u, 3u}) {
    for (const uint32_t machines : {4u, 5u, 6u, 7u, 8u, 9u, 16u, 17u}) layouts.push_back(blocks(machines, positions));
  }
  for (const NodeOfRank& nodes : layouts) {
    const auto ranks = static_cast<uint32_t>(nodes.size());
    const uint32_t machines = *std::max_element(nodes.begin(), nodes.end()) + 1;
    for (const uint32_t root : {0u, ranks / 2, ranks - 1}) {
      Connected connected(hier, nodes);
      const auto broadcast = connected.plans(TUTTI_BROADCAST, hier.variant("binomial"), root);
      const auto reduce = connected.plans(TUTTI_REDUCE, hier.variant("binomial"), root);
      ASSERT_TRUE(broadcast.ok()) << broadcast.status().to_string();
      ASSERT_TRUE(reduce.ok()) << reduce.status().to_string();
      expect_proved(*broadcast);
      expect_proved(*reduce);
      EXPECT_EQ(messages_between(nodes, *broadcast, root), std::bit_width(machines - 1)) << machines << " machines";
      for (uint32_t rank = 0; rank < ranks; ++rank) {
        EXPECT_EQ(messages_between(nodes, *reduce, rank), nodes[rank] == nodes[root] ? 0 : 1) << machines;
      }
    }
  }
}

/// Each chunk crosses each edge of a tree once up and once down. Positions alternate between two trees, so all machines
/// send about as much.
TEST(Hier, AddsAlongTwoTrees) {
  const Algorithm hier("hier");
  std::vector<NodeOfRank> layouts = {{0, 1, 1, 0, 2, 4, 3, 3, 4, 2}};
  for (const uint32_t positions : {2u, 3u}) {
    for (uint32_t machines = 3; machines <= 10; ++machines) layouts.push_back(blocks(machines, positions));
  }
  for (const NodeOfRank& nodes : layouts) {
    const uint32_t machines = *std::max_element(nodes.begin(), nodes.end()) + 1;
    const auto ranks = static_cast<uint32_t>(nodes.size());
    const uint32_t positions = ranks / machines;
    const auto plans = Connected(hier, nodes).plans(TUTTI_ALL_REDUCE, hier.variant("tree"));
    ASSERT_TRUE(plans.ok()) << plans.status().to_string();
    expect_proved(*plans);
    const uint32_t chunks = plans->front().input_chunks() / positions;
    std::vector<uint32_t> of_machine(machines);
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      const uint32_t between = messages_between(nodes, *plans, rank);
      EXPECT_EQ(between % chunks, 0u);
      of_machine[nodes[rank]] += between / chunks;
    }
    EXPECT_EQ(std::accumulate(of_machine.begin(), of_machine.end(), 0u), positions * 2 * (machines - 1));
    if (positions == 2) {
      EXPECT_LE(*std::max_element(of_machine.begin(), of_machine.end()), 4u) << machines << " machines";
    }
  }
}

TEST(Hier, DeclinesWithAReason) {
  const Algorithm hier("hier");
  const auto text = [&](const NodeOfRank& nodes, uint32_t variant) {
    const Status status = Connected(hier, nodes).plans(TUTTI_ALL_REDUCE, variant).status();
    EXPECT_EQ(status.code(), Code::kUnsupported);
    return std::string(status.text());
  };
  EXPECT_THAT(text({0, 0, 0}, 0), HasSubstr("two machines or more"));
  EXPECT_THAT(text({0, 0, 1}, 0), HasSubstr("equal numbers of ranks"));
  EXPECT_THAT(text({0, 1, 2}, 0), HasSubstr("ring, tree and direct do the same"));
  EXPECT_THAT(text({0, 0, 1, 1}, 1), HasSubstr("three machines or more"));
  EXPECT_THAT(text({0, 0, 1, 1}, 2), HasSubstr("three machines or more"));
  EXPECT_THAT(text({0, 0, 1, 1}, hier.variant("tree")), HasSubstr("three machines or more"));
  const Status uneven = Connected(hier, {0, 0, 1}).plans(TUTTI_ALL_TO_ALL, 0).status();
  EXPECT_EQ(uneven.code(), Code::kUnsupported);
  EXPECT_THAT(uneven.text(), HasSubstr("equal numbers of ranks"));
}

}  // namespace
}  // namespace tutti::test
