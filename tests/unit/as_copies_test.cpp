// SPDX-License-Identifier: Apache-2.0
// Plans as copies: the contents of outputs after the copies, and plans that consist of more than copies.
#include "program/passes/as_copies.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <map>
#include <set>

#include "unit/plan_support.h"

namespace tutti::test {
namespace {

using program::Copies;
using program::Copy;
using program::Plan;
using testing::ElementsAre;
using testing::HasSubstr;

/// A block of an input: whose, and which.
using Block = std::pair<uint32_t, uint32_t>;
/// By rank and block of its output.
using Outputs = std::map<Block, Block>;

/// The outputs that the collective demands. In place, the own block of all_gather's output is its input, and stays.
Outputs wanted(const Plan& plan, bool in_place) {
  Outputs outputs;
  for (uint32_t rank = 0; rank < plan.rank_count; ++rank) {
    for (uint32_t block = 0; block < plan.output_blocks; ++block) {
      Block from = {block, 0};
      if (plan.collective == Collective::kAllToAll) from = {block, rank};
      if (plan.collective == Collective::kBroadcast) from = {plan.root, 0};
      if (plan.collective == Collective::kScatter) from = {plan.root, rank};
      const bool rooted = plan.collective == Collective::kBroadcast || plan.collective == Collective::kScatter;
      if (plan.collective == Collective::kGather && rank != plan.root) continue;
      const bool stays = in_place && from.first == rank && (!rooted || rank == plan.root);
      if (!stays) outputs[{rank, block}] = from;
    }
  }
  return outputs;
}

/// The outputs after the copies of all ranks. Each block is written once, by the announced rank.
Outputs copied(const std::vector<Plan>& plans, bool in_place) {
  Outputs outputs;
  std::map<uint32_t, std::set<uint32_t>> writers;
  std::vector<Copies> all;
  for (uint32_t rank = 0; rank < plans.size(); ++rank) {
    auto copies = program::copies(plans, rank, in_place);
    EXPECT_TRUE(copies.ok()) << copies.status().to_string();
    if (!copies.ok()) return outputs;
    for (const Copy& copy : copies->list) {
      EXPECT_NE(copy.peer, rank);
      EXPECT_TRUE(outputs.emplace(Block{copy.peer, copy.to}, Block{rank, copy.from}).second);
      writers[copy.peer].insert(rank);
    }
    if (copies->own) {
      EXPECT_TRUE(outputs.emplace(Block{rank, copies->own->to}, Block{rank, copies->own->from}).second);
    }
    all.push_back(*std::move(copies));
  }
  for (uint32_t rank = 0; rank < plans.size(); ++rank) {
    const auto& expected = writers[rank];
    EXPECT_EQ(all[rank].peers, std::vector<uint32_t>(expected.begin(), expected.end()));
  }
  return outputs;
}

uint32_t variant_of(const Algorithm& algorithm, const std::string& name) {
  const auto variants = algorithm.variants();
  for (uint32_t v = 0; v < variants.size(); ++v) {
    if (variants[v].name == name) return v;
  }
  ADD_FAILURE() << "no variant " << name;
  return 0;
}

TEST(Copies, of_direct_plans_do_what_the_collective_demands) {
  const Algorithm direct("direct");
  for (const char* const name : {"one-shot", "shifted"}) {
    const uint32_t variant = variant_of(direct, name);
    for (const uint32_t collective :
         {TUTTI_ALL_GATHER, TUTTI_ALL_TO_ALL, TUTTI_BROADCAST, TUTTI_SCATTER, TUTTI_GATHER}) {
      if (!direct.variants()[variant].can(collective)) continue;
      for (const uint32_t ranks : {1u, 2u, 3u, 4u, 8u}) {
        for (const uint32_t root : {0u, ranks - 1}) {
          Connected connected(direct, split(ranks, 1));
          const auto plans = connected.plans(collective, variant, root);
          ASSERT_TRUE(plans.ok());
          for (const bool in_place : {false, true}) {
            if (in_place && collective == TUTTI_ALL_TO_ALL) continue;
            SCOPED_TRACE(fmt::format("{} of collective {}, {} ranks, root {}, in place {}", name, collective, ranks,
                                     root, in_place));
            EXPECT_EQ(copied(*plans, in_place), wanted(plans->front(), in_place));
          }
        }
      }
    }
  }
}

TEST(Copies, go_to_the_nearest_rank_first) {
  const Algorithm direct("direct");
  Connected connected(direct, split(4, 1));
  const auto peers = [&](uint32_t collective, const char* variant, uint32_t rank) {
    const auto plans = connected.plans(collective, variant_of(direct, variant), 0);
    std::vector<uint32_t> order;
    const auto copies = program::copies(*plans, rank, false);
    EXPECT_TRUE(copies.ok());
    for (const Copy& copy : copies->list) order.push_back(copy.peer);
    return order;
  };
  EXPECT_THAT(peers(TUTTI_ALL_GATHER, "shifted", 2), ElementsAre(3, 0, 1));
  EXPECT_THAT(peers(TUTTI_ALL_TO_ALL, "one-shot", 3), ElementsAre(0, 1, 2));
  EXPECT_THAT(peers(TUTTI_BROADCAST, "one-shot", 0), ElementsAre(1, 2, 3));
  EXPECT_THAT(peers(TUTTI_BROADCAST, "one-shot", 1), ElementsAre());
}

TEST(Copies, are_not_all_of_other_plans) {
  const Algorithm direct("direct");
  const Algorithm ring("ring");
  Connected over_direct(direct, split(3, 1));
  Connected over_ring(ring, split(3, 1));
  const auto refused = [](Connected& connected, uint32_t collective, uint32_t variant) {
    const auto plans = connected.plans(collective, variant);
    EXPECT_TRUE(plans.ok());
    const auto copies = program::copies(*plans, 0, false);
    EXPECT_EQ(copies.status().code(), Code::kUnsupported);
    return std::string(copies.status().text());
  };
  EXPECT_THAT(refused(over_direct, TUTTI_ALL_REDUCE, 0), HasSubstr("it reduces"));
  EXPECT_THAT(refused(over_ring, TUTTI_ALL_GATHER, 0), HasSubstr("rank 0 is more than copies"));
  EXPECT_THAT(refused(over_ring, TUTTI_BROADCAST, 0), HasSubstr("is more than copies"));
}

TEST(Copies, of_what_a_peer_may_overwrite_are_refused) {
  const Algorithm direct("direct");
  Connected connected(direct, split(2, 1));
  const auto plans = connected.plans(TUTTI_ALL_TO_ALL, variant_of(direct, "shifted"));
  EXPECT_THAT(std::string(program::copies(*plans, 0, true).status().text()), HasSubstr("what it has to send"));
}

std::string refusal(const std::vector<Plan>& plans, Code code) {
  const auto copies = program::copies(plans, 0, false);
  EXPECT_EQ(copies.status().code(), code);
  return std::string(copies.status().text());
}

TEST(Copies, are_of_whole_blocks) {
  const auto broadcast = [](uint32_t chunks) {
    std::vector<Plan> plans;
    for (const uint32_t rank : {0u, 1u}) {
      plans.push_back(write_plan(TUTTI_BROADCAST, 2, rank, chunks, [&](sdk::PlanBuilder& plan) {
        for (uint32_t chunk = 0; chunk < chunks; ++chunk) {
          if (rank == 0) plan.step().own(sdk::Buffer::kInput, chunk).send(1);
          if (rank == 1) plan.step().recv(0).to_output(chunk);
        }
      }));
    }
    return plans;
  };
  EXPECT_TRUE(program::copies(broadcast(1), 0, false).ok());
  EXPECT_THAT(refusal(broadcast(2), Code::kUnsupported), HasSubstr("it cuts blocks"));
}

TEST(Copies, are_at_most_one_of_the_own_blocks) {
  const auto keep = [](uint32_t blocks) {
    return std::vector<Plan>{write_plan(TUTTI_ALL_TO_ALL, 2, 0, 1, [&](sdk::PlanBuilder& plan) {
      for (uint32_t block = 0; block < blocks; ++block) {
        plan.step().own(sdk::Buffer::kInput, block).to_output(block);
      }
    })};
  };
  EXPECT_TRUE(program::copies(keep(1), 0, false).ok());
  EXPECT_THAT(refusal(keep(2), Code::kUnsupported), HasSubstr("it copies several blocks of its own"));
}

TEST(Copies, need_a_receive_for_every_message) {
  std::vector<Plan> plans;
  for (const uint32_t rank : {0u, 1u}) {
    plans.push_back(write_plan(TUTTI_ALL_TO_ALL, 2, rank, 1, [&](sdk::PlanBuilder& plan) {
      if (rank == 1) return static_cast<void>(plan.step().recv(0).to_output(0));
      for (const uint32_t block : {0u, 1u}) plan.step().own(sdk::Buffer::kInput, block).send(1);
    }));
  }
  EXPECT_EQ(refusal(plans, Code::kInternal), "rank 1 has no receive for message 1 of rank 0");
}

}  // namespace
}  // namespace tutti::test
