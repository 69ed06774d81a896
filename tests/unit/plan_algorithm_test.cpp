// SPDX-License-Identifier: Apache-2.0
// Plan files as algorithms: the plans of every root, the cost, what is declined.
#include "program/file/algorithm.h"

#include <gmock/gmock.h>

#include "program/cost.h"
#include "program/verify/verify.h"
#include "unit/plan_support.h"
#include "unit/required.h"

namespace tutti::test {
namespace {

using program::Plan;

constexpr uint32_t kChannels = 3;

program::FileAlgorithm algorithm_of(const std::vector<Plan>& plans, const NodeOfRank& nodes) {
  tutti_topology topology = topology_of(nodes);
  return program::algorithm_of({"some", "", plans}, "some.yaml", kChannels, topology);
}

Result<Plan> ask(const program::FileAlgorithm& algorithm, uint32_t collective, uint32_t rank, uint32_t channel,
                 uint32_t root) {
  return program::collect(*algorithm.plugin.ops, algorithm.instance.get(),
                          {sizeof(tutti_plan_request), collective, rank, channel, root, 0});
}

TEST(FileAlgorithm, HasPlansForEveryRootAndChannel) {
  for (const uint32_t ranks : {1u, 2u, 3u, 6u}) {
    for (const Sample& sample : samples({ranks}, true)) {
      const program::FileAlgorithm algorithm = algorithm_of(sample.plans, split(ranks, 1));
      const auto collective = static_cast<uint32_t>(sample.plans[0].collective);
      const uint32_t roots = program::has_root(sample.plans[0].collective) ? ranks : 1;
      for (uint32_t root = 0; root < roots; ++root) {
        std::vector<Plan> plans;
        for (uint32_t rank = 0; rank < ranks; ++rank)
          plans.push_back(required(ask(algorithm, collective, rank, 2, root)));
        EXPECT_EQ(plans[0].channel, 2u);
        EXPECT_EQ(plans[0].root, root);
        const Status proof = program::verify(plans);
        EXPECT_TRUE(proof.ok()) << sample.name << ", moved to root " << root << ": " << proof.to_string();
        if (root == sample.plans[0].root) {
          for (Plan& plan : plans) plan.channel = 0;
          EXPECT_EQ(plans, sample.plans) << sample.name;
        }
      }
    }
  }
}

TEST(FileAlgorithm, MovesPlansByTheDistanceOfTheRoots) {
  const std::vector<Plan> plans = plans_of("direct one-shot gather", 4);
  const program::FileAlgorithm algorithm = algorithm_of(plans, split(4, 1));
  const Plan root = required(ask(algorithm, TUTTI_GATHER, 3, 0, 3));
  ASSERT_EQ(root.rank, 3u);
  for (const tutti_plan_step& step : root.steps) {
    for (const tutti_plan_peer& peer : root.recv(step)) EXPECT_EQ(peer.chunk, peer.rank) << "blocks stand by rank";
  }
}

TEST(FileAlgorithm, DeclinesWhatTheFileHasNot) {
  const program::FileAlgorithm algorithm = algorithm_of(plans_of("ring  all_reduce", 3), split(3, 1));
  EXPECT_EQ(ask(algorithm, TUTTI_ALL_GATHER, 0, 0, 0).status().code(), Code::kUnsupported);
  EXPECT_EQ(ask(algorithm, TUTTI_ALL_REDUCE, 3, 0, 0).status().code(), Code::kUnsupported);
  EXPECT_EQ(algorithm.plugin.ops->channel_count(algorithm.instance.get()), kChannels);
  const program::FileAlgorithm other = algorithm_of(plans_of("ring  all_reduce", 3), split(4, 1));
  tutti_algorithm_cost cost{};
  EXPECT_EQ(other.plugin.ops->cost(other.instance.get(), TUTTI_ALL_REDUCE, 0, &cost), TUTTI_UNSUPPORTED);
}

TEST(PlanCost, CountsARing) {
  constexpr uint32_t kRanks = 6;
  const NodeOfRank nodes = split(kRanks, 2);
  const tutti_topology topology = topology_of(nodes);
  Algorithm ring("ring");
  Connected connected(ring, nodes);
  const auto cost = required(program::cost_of(required(connected.plans(TUTTI_ALL_REDUCE, 0)), topology));
  const uint32_t hops = 2 * (kRanks - 1);
  EXPECT_EQ(cost.hops[TUTTI_LINK_P2P] + cost.hops[TUTTI_LINK_NETWORK], hops);
  EXPECT_GT(cost.hops[TUTTI_LINK_NETWORK], 0u) << "two of the six links leave a machine";
  EXPECT_EQ(cost.messages[TUTTI_LINK_NETWORK], hops);
  EXPECT_NEAR(cost.wire[TUTTI_LINK_P2P], static_cast<double>(hops) / kRanks, 1e-9);
  EXPECT_NEAR(cost.wire[TUTTI_LINK_NETWORK], static_cast<double>(hops) / kRanks, 1e-9);
  EXPECT_EQ(cost.fan, 1u);
  EXPECT_GT(cost.memory, cost.wire[TUTTI_LINK_P2P]);
}

TEST(PlanCost, CountsTheLongestPathAndTheWidestStep) {
  constexpr uint32_t kRanks = 5;
  const NodeOfRank nodes = split(kRanks, 1);
  const auto cost = required(program::cost_of(plans_of("direct one-shot all_reduce", kRanks), topology_of(nodes)));
  EXPECT_EQ(cost.hops[TUTTI_LINK_P2P], 1u);
  EXPECT_EQ(cost.messages[TUTTI_LINK_P2P], kRanks - 1);
  EXPECT_NEAR(cost.wire[TUTTI_LINK_P2P], kRanks - 1, 1e-9);
  EXPECT_EQ(cost.fan, kRanks - 1);
}

/// The hops of all-reduce plans of one chunk inside a machine.
uint32_t hops_of(uint32_t ranks, const std::function<void(sdk::PlanBuilder&, uint32_t rank)>& write) {
  std::vector<Plan> plans;
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    plans.push_back(write_plan(TUTTI_ALL_REDUCE, ranks, rank, 1, [&](sdk::PlanBuilder& plan) { write(plan, rank); }));
  }
  const NodeOfRank nodes = split(ranks, 1);
  return required(program::cost_of(plans, topology_of(nodes))).hops[TUTTI_LINK_P2P];
}

TEST(PlanCost, AnEarlyMessageShortensNoPath) {
  const auto write = [](sdk::PlanBuilder& plan, uint32_t rank) {
    if (rank == 0) plan.step().own(sdk::Buffer::kInput, 0).send(1).send(2);
    if (rank == 1) plan.step().recv(0).own(sdk::Buffer::kInput, 0).send(2);
    if (rank != 2) return;
    plan.step().recv(1).to_output(0);
    plan.step().recv(0).to_output(0);
  };
  EXPECT_EQ(hops_of(3, write), 2u);
}

TEST(PlanCost, SendsOfAGatherStepDoNotWaitForItsReceives) {
  const auto write = [](sdk::PlanBuilder& plan, uint32_t rank) {
    if (rank == 1) {
      plan.step().own(sdk::Buffer::kInput, 0).send(0).gather(0, 0);
    } else {
      plan.step().own(sdk::Buffer::kInput, 0).send(1);
      plan.step().recv(1).to_output(0);
    }
  };
  EXPECT_EQ(hops_of(2, write), 1u);
}

TEST(PlanCost, FailsWherePlansDeadlock) {
  std::vector<Plan> plans;
  for (uint32_t rank = 0; rank < 2; ++rank) {
    plans.push_back(write_plan(TUTTI_ALL_REDUCE, 2, rank, 1, [&](sdk::PlanBuilder& plan) {
      plan.step().recv(1 - rank).own(sdk::Buffer::kInput, 0).final().to_output(0).send(1 - rank);
    }));
  }
  const NodeOfRank nodes = split(2, 1);
  EXPECT_THAT(std::string(program::cost_of(plans, topology_of(nodes)).status().text()), testing::HasSubstr("deadlock"));
}

}  // namespace
}  // namespace tutti::test
