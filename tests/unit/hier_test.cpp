// SPDX-License-Identifier: Apache-2.0
// Hierarchies of machines: which the algorithm `hier` takes, and why it declines the rest.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <map>

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
      if (hier.variants()[variant].name == "doubling") {
        EXPECT_THAT(plans.status().text(), HasSubstr("needs 4, 8, 16, ... machines"));
        continue;
      }
      if (hier.variants()[variant].name == "bruck") {
        EXPECT_THAT(plans.status().text(), HasSubstr("from four machines on"));
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
    for (const uint32_t slots : {1u, 2u}) {
      EXPECT_TRUE(verify(*plans, {.slots = slots}).ok()) << verify(*plans, {.slots = slots}).to_string();
    }
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      const auto messages = messages_of((*plans)[rank]);
      EXPECT_EQ(messages.size(), machines - 1 + ranks / machines - 1);
      for (const auto& [peer, count] : messages) {
        EXPECT_EQ(count, nodes[peer] == nodes[rank] ? inside : 1) << rank << " to " << peer << " of " << ranks;
      }
    }
  }
}

/// Bruck's all-to-all sends one message to a counterpart in each round.
TEST(Hier, PassesBlocksOnInLogarithmicRounds) {
  const Algorithm hier("hier");
  const auto blocks = [](uint32_t machines, uint32_t positions) {
    NodeOfRank nodes;
    for (uint32_t rank = 0; rank < machines * positions; ++rank) nodes.push_back(rank / positions);
    return nodes;
  };
  std::vector<NodeOfRank> layouts = {{0, 1, 2, 3, 0, 1, 2, 3}, {3, 1, 0, 2}, {0, 1, 1, 0, 2, 3, 3, 2, 0, 1, 2, 3}};
  for (const uint32_t machines : {4u, 5u, 6u, 7u, 8u, 9u, 16u, 17u}) layouts.push_back(blocks(machines, 1));
  for (const uint32_t machines : {4u, 5u, 7u, 8u, 9u}) layouts.push_back(blocks(machines, 3));
  for (const NodeOfRank& nodes : layouts) {
    const uint32_t machines = *std::max_element(nodes.begin(), nodes.end()) + 1;
    const auto plans = Connected(hier, nodes).plans(TUTTI_ALL_TO_ALL, hier.variant("bruck"));
    ASSERT_TRUE(plans.ok()) << plans.status().to_string();
    for (const uint32_t slots : {1u, 2u}) {
      EXPECT_TRUE(verify(*plans, {.slots = slots}).ok()) << verify(*plans, {.slots = slots}).to_string();
    }
    for (uint32_t rank = 0; rank < nodes.size(); ++rank) {
      uint32_t between = 0;
      for (const auto& [peer, count] : messages_of((*plans)[rank])) between += nodes[peer] == nodes[rank] ? 0 : count;
      EXPECT_EQ(between, std::bit_width(machines - 1)) << machines << " machines";
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
  EXPECT_THAT(text({0, 1, 2}, 0), HasSubstr("ring and direct do the same"));
  EXPECT_THAT(text({0, 0, 1, 1}, 1), HasSubstr("needs 4, 8, 16, ... machines"));
  EXPECT_THAT(text({0, 0, 1, 1}, 2), HasSubstr("three machines or more"));
  const Status uneven = Connected(hier, {0, 0, 1}).plans(TUTTI_ALL_TO_ALL, 0).status();
  EXPECT_EQ(uneven.code(), Code::kUnsupported);
  EXPECT_THAT(uneven.text(), HasSubstr("equal numbers of ranks"));
}

}  // namespace
}  // namespace tutti::test
