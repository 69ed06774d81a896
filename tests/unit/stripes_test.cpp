// SPDX-License-Identifier: Apache-2.0
// Messages as launches: the CTAs that take them, their order, and the plans that they replace.
#include "backend/cuda/stripes.h"

#include <gmock/gmock.h>

#include <functional>
#include <map>
#include <optional>

#include "backend/limits.h"
#include "unit/plan_support.h"
#include "unit/program_calls.h"

namespace tutti::test {
namespace {

using backend::Hop;
using backend::Message;
using testing::ElementsAre;

std::vector<uint32_t> peers_of(const tutti_cuda_launch& launch) {
  std::vector<uint32_t> peers;
  for (uint32_t i = 0; i < launch.message_count; ++i) peers.push_back(launch.messages[i].peer);
  return peers;
}

tutti_cuda_launch launch_of(uint32_t rank, uint32_t rank_count) {
  tutti_cuda_launch launch{};
  launch.rank = rank;
  launch.rank_count = rank_count;
  return launch;
}

const tutti_slot_layout kLayout = layout_of(8, 512, 4);

TEST(Messages, GoByDistance) {
  tutti_cuda_launch launch = launch_of(2, 4);
  const std::vector<Message> messages = {{TUTTI_CUDA_KEEP, 2, 8, 1},
                                         {TUTTI_CUDA_RECEIVE, 0, 100, 2},
                                         {TUTTI_CUDA_SEND, 1, 300, 3},
                                         {TUTTI_CUDA_SEND, 3, 200, 2},
                                         {TUTTI_CUDA_RECEIVE, 1, 50, 1}};
  const auto places = backend::lay_out(messages, kLayout, 32, launch);
  ASSERT_TRUE(places.ok());
  EXPECT_THAT(*places, ElementsAre(4, 3, 1, 0, 2));
  EXPECT_THAT(peers_of(launch), ElementsAre(3, 1, 1, 0, 2));
  EXPECT_EQ(launch.messages[1].bytes, 300u);
  EXPECT_EQ(launch.messages[1].stripe_count, 3);
  EXPECT_THAT(launch.kind_ctas, ElementsAre(8, 3, 1)) << "whole clusters, where there are as many stripes";
  EXPECT_EQ(launch.cta_count, 12u);
}

TEST(Messages, ShareTheCtasThereAre) {
  tutti_cuda_launch launch = launch_of(0, 8);
  std::vector<Message> messages;
  for (uint32_t peer = 1; peer < 8; ++peer) messages.push_back({TUTTI_CUDA_SEND, peer, 1 << 20, 16});
  ASSERT_TRUE(backend::lay_out(messages, kLayout, 32, launch).ok());
  EXPECT_THAT(launch.kind_ctas, ElementsAre(32, 0, 0));
}

TEST(Messages, OfALaunchAreLimited) {
  tutti_cuda_launch launch = launch_of(0, 64);
  std::vector<Message> messages;
  for (uint32_t peer = 1; peer <= TUTTI_CUDA_MAX_MESSAGES + 1; ++peer)
    messages.push_back({TUTTI_CUDA_SEND, peer, 8, 1});
  const auto places = backend::lay_out(messages, kLayout, 32, launch);
  EXPECT_EQ(places.status().code(), Code::kUnsupported);
  EXPECT_EQ(std::string(places.status().text()), "more than 32 messages with different peers in one group");
}

/// The hops of all ranks together move the data that the collective demands.
void check_hops(const std::vector<program::Plan>& plans) {
  const auto ranks = static_cast<uint32_t>(plans.size());
  std::vector<std::vector<Hop>> hops;
  for (const program::Plan& plan : plans) {
    const auto of_rank = backend::hops_of(plan);
    ASSERT_TRUE(of_rank.has_value());
    hops.push_back(*of_rank);
  }
  const bool is_gather = plans[0].collective == Collective::kAllGather;
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    std::vector<int> output(ranks, -1);  // content of each block: rank × ranks + block of its input
    for (const Hop& hop : hops[rank]) {
      if (hop.kind == TUTTI_CUDA_KEEP) output[hop.to] = static_cast<int>(rank * ranks + hop.from);
      if (hop.kind != TUTTI_CUDA_RECEIVE) continue;
      for (const Hop& sent : hops[hop.peer]) {
        if (sent.kind != TUTTI_CUDA_SEND || sent.peer != rank) continue;
        output[hop.to] = static_cast<int>(hop.peer * ranks + sent.from);
      }
    }
    for (uint32_t block = 0; block < ranks; ++block) {
      EXPECT_EQ(output[block], static_cast<int>(block * ranks + (is_gather ? 0 : rank)));
    }
  }
}

TEST(Hops, AreThoseOfPlansThatGoFromPeerToPeer) {
  for (const Sample& sample : samples({2, 3, 5, 8}, false)) {
    SCOPED_TRACE(sample.name);
    const size_t ranks = sample.plans.size();
    const Collective collective = sample.plans[0].collective;
    const bool all_alike = collective == Collective::kAllGather || collective == Collective::kAllToAll;
    const bool shifted = sample.name.starts_with("direct shifted");
    if (shifted && all_alike) {
      check_hops(sample.plans);
    } else if (!all_alike || ranks > 2) {
      for (const program::Plan& plan : sample.plans) EXPECT_FALSE(backend::hops_of(plan).has_value());
    } else {
      const bool first = backend::hops_of(sample.plans[0]).has_value();
      EXPECT_EQ(backend::hops_of(sample.plans[1]).has_value(), first);
      if (first) check_hops(sample.plans);
    }
  }
}

/// The hops of rank 0's plan of an all-gather.
std::optional<std::vector<Hop>> hops_of(uint32_t ranks, uint32_t chunks,
                                        const std::function<void(sdk::PlanBuilder&)>& write) {
  return backend::hops_of(write_plan(TUTTI_ALL_GATHER, ranks, 0, chunks, write));
}

TEST(Hops, AreOfPlansThatSendWholeBlocks) {
  const auto send_own = [](sdk::PlanBuilder& plan) { plan.step().own(sdk::Buffer::kInput, 0).to_output(0).send(1); };
  EXPECT_TRUE(hops_of(2, 1, send_own));
  EXPECT_FALSE(hops_of(2, 2, send_own)) << "the block has a second chunk";
}

TEST(Hops, OfManyRanksAreInSeveralLaunches) {
  for (const uint32_t ranks : {66u, 81u, 82u, 200u}) {
    SCOPED_TRACE(ranks);
    const std::vector<program::Plan> plans = plans_of("direct shifted all_to_all", ranks);
    ASSERT_TRUE(backend::runs_as_messages(plans[0]));
    check_hops(plans);
    std::map<std::pair<uint32_t, uint32_t>, size_t> sent, received;  // by sender and receiver: the launch
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      const std::vector<Hop> hops = *backend::hops_of(plans[rank]);
      const auto parts = backend::in_parts(hops, rank, ranks);
      size_t kept = 0;
      for (size_t part = 0; part < parts.size(); ++part) {
        EXPECT_FALSE(parts[part].empty());
        EXPECT_LE(parts[part].size(), TUTTI_CUDA_MAX_MESSAGES);
        for (const Hop& hop : parts[part]) {
          if (hop.kind == TUTTI_CUDA_KEEP) ++kept;
          if (hop.kind == TUTTI_CUDA_SEND) sent[{rank, hop.peer}] = part;
          if (hop.kind == TUTTI_CUDA_RECEIVE) received[{hop.peer, rank}] = part;
        }
      }
      EXPECT_EQ(kept, 1u);
    }
    EXPECT_EQ(sent.size(), size_t{ranks} * (ranks - 1));
    EXPECT_EQ(sent, received) << "both ends in the same launch";
  }
}

TEST(Hops, RunAsMessagesWhereAProgramHasTooManyConnections) {
  EXPECT_FALSE(backend::runs_as_messages(plans_of("direct shifted all_to_all", 64)[0])) << "all ranks have numbers";
  EXPECT_TRUE(backend::runs_as_messages(plans_of("direct shifted all_to_all", 66)[0]));
  EXPECT_FALSE(backend::runs_as_messages(plans_of("ring  all_gather", 66)[0])) << "two connections";
  EXPECT_FALSE(backend::runs_as_messages(plans_of("direct shifted gather", 66)[0])) << "ranks have different parts";
}

/// All ranks run as messages, or none does.
TEST(Hops, OfSomeRanksAloneAreRefused) {
  const tuner::BackEnd& gpus = backend::gpu_back_end();
  std::vector<program::Plan> plans = plans_of("direct shifted all_gather", 66);
  EXPECT_EQ(gpus.runs_together(plans).text(), "");
  for (const program::Plan& plan : plans) EXPECT_EQ(gpus.runs(plan).text(), "");
  plans[3] = plans_of("ring  all_gather", 66)[3];
  EXPECT_EQ(gpus.runs_together(plans).text(),
            "the plan of a rank needs more than 63 connections, and the plan of rank 3 has other steps than single "
            "sends and receives of whole blocks");
}

TEST(Hops, AreNotOfOneRank) {
  EXPECT_FALSE(hops_of(1, 1, [](sdk::PlanBuilder& plan) { plan.step().own(sdk::Buffer::kInput, 0).to_output(0); }));
}

}  // namespace
}  // namespace tutti::test
