// SPDX-License-Identifier: Apache-2.0
// Which programs are of one hop, and where their messages come from and go to.
#include "program/passes/fuse_one_hop.h"

#include <gmock/gmock.h>

#include "backend/cuda/launch_builder.h"
#include "program/lower.h"
#include "unit/plan_support.h"
#include "unit/program_calls.h"
#include "unit/required.h"

namespace tutti::test {
namespace {

using testing::ElementsAre;

const tutti_slot_layout kLayout = layout_of(8, 4096, 1);

program::Program program_of(const std::string& name, uint32_t ranks, uint32_t rank, bool in_place = false) {
  const auto programs = backend::lower_channels({plans_of(name, ranks)}, in_place, false, kLayout);
  EXPECT_TRUE(programs.ok()) << programs.status().to_string();
  return programs->front().at(rank);
}
std::optional<tutti_cuda_one_hop> find(const std::string& name, uint32_t ranks, uint32_t rank, bool in_place = false) {
  return program::one_hop(program_of(name, ranks, rank, in_place));
}

std::vector<uint64_t> sent(const tutti_cuda_one_hop& hop) {
  std::vector<uint64_t> at;
  for (uint32_t i = 0; i < hop.send_count; ++i) at.push_back(hop.sends[i].at);
  return at;
}
std::vector<uint64_t> received(const tutti_cuda_one_hop& hop) {
  std::vector<uint64_t> at;
  for (uint32_t i = 0; i < hop.recv_count; ++i) at.push_back(hop.receives[i].at);
  return at;
}

TEST(OneHop, AllReduceFoldsWhatAllSend) {
  const auto hop = find("direct one-shot all_reduce", 4, 2);
  ASSERT_TRUE(hop);
  EXPECT_THAT(sent(*hop), ElementsAre(0, 0, 0));
  EXPECT_EQ(hop->scatters, 0);
  EXPECT_EQ(hop->own, TUTTI_CUDA_OWN_FOLDED);
  EXPECT_EQ(hop->folds, 1);
  EXPECT_EQ(hop->own_position, 2);
  EXPECT_THAT(std::vector<int>(hop->recv_ranks, hop->recv_ranks + 3), ElementsAre(0, 1, 3)) << "as they are folded";
}

TEST(OneHop, ReduceScatterSendsEachItsOwn) {
  const auto hop = find("direct one-shot reduce_scatter", 4, 1);
  ASSERT_TRUE(hop);
  for (uint32_t i = 0; i < hop->send_count; ++i) EXPECT_EQ(hop->sends[i].at, hop->send_ranks[i]);
  EXPECT_EQ(hop->send_count, 3);
  EXPECT_EQ(hop->scatters, 1);
  EXPECT_EQ(hop->own_from, 1u);
  EXPECT_EQ(hop->own_to, 0u);
  EXPECT_EQ(hop->folds, 1);
}

TEST(OneHop, AllGatherKeepsItsOwnUnlessItIsThere) {
  const auto hop = find("direct one-shot all_gather", 4, 3);
  ASSERT_TRUE(hop);
  EXPECT_EQ(hop->own, TUTTI_CUDA_OWN_KEPT);
  EXPECT_EQ(hop->own_to, 3u);
  EXPECT_EQ(hop->folds, 0);
  EXPECT_THAT(received(*hop), testing::UnorderedElementsAre(0, 1, 2));
  EXPECT_TRUE(find("direct one-shot all_gather", 4, 3, true));
}

TEST(OneHop, StepsMayFollowEachOther) {
  const auto hop = find("direct shifted all_to_all", 4, 0);
  ASSERT_TRUE(hop);
  EXPECT_EQ(hop->send_count, 3);
  EXPECT_EQ(hop->recv_count, 3);
  EXPECT_EQ(hop->scatters, 1);
}

TEST(OneHop, RanksMaySendOrReceiveAlone) {
  const auto root = find("direct one-shot broadcast", 4, 0);
  ASSERT_TRUE(root);
  EXPECT_EQ(root->send_count, 3);
  EXPECT_EQ(root->recv_count, 0);
  EXPECT_EQ(root->own, TUTTI_CUDA_OWN_KEPT);
  const auto leaf = find("direct one-shot reduce", 4, 3);
  ASSERT_TRUE(leaf);
  EXPECT_EQ(leaf->send_count, 1);
  EXPECT_EQ(leaf->own, TUTTI_CUDA_OWN_UNUSED);
}

TEST(OneHop, WhatPassesOnHasMore) {
  EXPECT_FALSE(find("direct two-shot all_reduce", 4, 0));
  EXPECT_FALSE(find("ring  all_reduce", 4, 0));
  EXPECT_FALSE(find("ring  all_gather", 4, 0));
  EXPECT_FALSE(find("tree pipelined all_reduce", 4, 0));
}

TEST(OneHop, PeersAreLimited) {
  EXPECT_TRUE(find("direct one-shot all_reduce", TUTTI_CUDA_MAX_HOPS + 1, 0));
  EXPECT_FALSE(find("direct one-shot all_reduce", TUTTI_CUDA_MAX_HOPS + 2, 0));
}

/// A launch of a reduce_scatter on one rank of 3, whose blocks have `bytes` bytes.
tutti_cuda_launch launch_of(uint64_t bytes, uint32_t threads = 512, uint32_t rank = 1) {
  static uint8_t slots[2][3];
  tutti_cuda_launch launch{};
  const program::Program program = program_of("direct one-shot reduce_scatter", 3, rank);
  launch.program_count = 1;
  launch.thread_count = threads;
  launch.rank = rank;
  launch.rank_count = 3;
  launch.block_bytes = bytes;
  launch.cut = program::cut(bytes, 1, program, kLayout);
  for (uint32_t peer = 0; peer < 3; ++peer) {
    launch.links[peer].to = &slots[0][peer];
    launch.links[peer].from = &slots[1][peer];
  }
  program::set_one_hop(program, launch);
  return launch;
}

TEST(OneHop, IsPutIntoLaunches) {
  const tutti_cuda_launch launch = launch_of(24);
  const tutti_cuda_one_hop& hop = launch.one_hop;
  ASSERT_EQ(hop.send_count, 2);
  ASSERT_EQ(hop.recv_count, 2);
  for (uint32_t i = 0; i < 2; ++i) {
    EXPECT_EQ(hop.sends[i].at, 24u * hop.send_ranks[i]);
    EXPECT_EQ(hop.sends[i].slots, launch.links[hop.send_ranks[i]].to);
    EXPECT_EQ(hop.receives[i].slots, launch.links[hop.recv_ranks[i]].from);
  }
  EXPECT_EQ(hop.own_from, 24u);
  EXPECT_EQ(hop.is_aligned, 1);
  EXPECT_EQ(launch_of(20).one_hop.is_aligned, 0) << "the second block begins at byte 20";
}

TEST(OneHop, IsAlignedOnlyIfAllThatItSendsIs) {
  const tutti_cuda_launch launch = launch_of(20, 512, 0);
  ASSERT_EQ(launch.one_hop.own_from, 0u) << "its own block is aligned";
  EXPECT_EQ(launch.one_hop.is_aligned, 0) << "the blocks for ranks 1 and 2 begin at bytes 20 and 40";
  EXPECT_EQ(launch_of(16, 512, 0).one_hop.is_aligned, 1);
}

TEST(OneHop, LoopsRunStepByStep) {
  EXPECT_EQ(launch_of(4096).one_hop.send_count, 2);
  EXPECT_EQ(launch_of(4097).one_hop.send_count, 0);
  EXPECT_EQ(launch_of(4096, 256).one_hop.send_count, 0) << "threads with two places each would wait between them";
}

/// A plan of rank 0 of 2 that receives block 1 and keeps its own, in this order, at `kept`.
std::optional<tutti_cuda_one_hop> keep_after_receiving(uint32_t kept) {
  const program::Plan plan = write_plan(TUTTI_ALL_GATHER, 2, 0, 1, [&](sdk::PlanBuilder& builder) {
    builder.step().recv(1).to_output(1);
    builder.step().own(sdk::Buffer::kInput, 0).to_output(kept).send(1);
  });
  return program::one_hop(required(program::lower(plan, false)));
}

TEST(OneHop, WhatIsReceivedFirstMayNotBeOverwritten) {
  EXPECT_TRUE(keep_after_receiving(0));
  EXPECT_FALSE(keep_after_receiving(1));
}

/// Its two chunks go to two ranks, so that no connection has more than one message.
TEST(OneHop, HasBlocksOfOneChunk) {
  const auto find_with = [](uint32_t chunks) {
    const program::Plan plan = write_plan(TUTTI_ALL_GATHER, 3, 0, chunks, [&](sdk::PlanBuilder& builder) {
      builder.step().own(sdk::Buffer::kInput, 0).send(1);
      builder.step().own(sdk::Buffer::kInput, chunks - 1).send(2);
    });
    const program::Program program = required(program::lower(plan, false));
    EXPECT_EQ(program.messages, 1u);
    EXPECT_EQ(program.stages, 1u);
    return program::one_hop(program);
  };
  EXPECT_TRUE(find_with(1));
  EXPECT_FALSE(find_with(2));
}

/// The kernels of one hop know no scratch buffer.
TEST(OneHop, HasNoScratchBuffer) {
  const auto find = [](const std::function<void(sdk::PlanBuilder&)>& write) {
    return program::one_hop(required(program::lower(write_plan(TUTTI_ALL_TO_ALL, 2, 0, 1, write), false)));
  };
  using sdk::Buffer;
  EXPECT_TRUE(find([](auto& plan) { plan.step().own(Buffer::kInput, 1).scatter(1, 1).gather(1, 1); }));
  EXPECT_FALSE(find([](auto& plan) {
    plan.scratch(2).step().own(Buffer::kInput, 1).scatter(1, 1).gather(1, 1).gather_to_scratch();
  }));
  EXPECT_FALSE(find([](auto& plan) { plan.scratch(1).step().own(Buffer::kInput, 1).to_scratch(0).send(1); }));
  EXPECT_FALSE(find([](auto& plan) { plan.scratch(1).step().recv(1).to_scratch(0); }));
}

TEST(OneHop, SendsTheBlockThatAStepNames) {
  const program::Plan plan = write_plan(TUTTI_ALL_TO_ALL, 2, 0, 1, [](sdk::PlanBuilder& builder) {
    builder.step().own(sdk::Buffer::kInput, 1).send(1);
    builder.step().recv(1).to_output(1);
  });
  const auto hop = program::one_hop(required(program::lower(plan, false)));
  ASSERT_TRUE(hop);
  EXPECT_THAT(sent(*hop), ElementsAre(1));
}

}  // namespace
}  // namespace tutti::test
