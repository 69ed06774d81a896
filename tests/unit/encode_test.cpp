// SPDX-License-Identifier: Apache-2.0
// Programs as the host runs them: they say what the plan says, also where kernels have limits.
#include "program/encode.h"

#include <gmock/gmock.h>

#include "program/passes/zero_copy.h"
#include "unit/plan_support.h"

namespace tutti::test {
namespace {

using program::Plan;
using program::Program;
using sdk::Buffer;
using sdk::PlanBuilder;
using testing::ElementsAre;

std::vector<uint32_t> ranks_of(std::span<const tutti_program_peer> peers) {
  std::vector<uint32_t> ranks;
  for (const tutti_program_peer& peer : peers) ranks.push_back(peer.rank);
  return ranks;
}

TEST(Encode, HasNoLimitsOfKernels) {
  constexpr uint32_t kRanks = 700;
  constexpr uint32_t kRank = 600;
  const Plan plan = write_plan(TUTTI_REDUCE_SCATTER, kRanks, kRank, 300, [](PlanBuilder& builder) {
    for (uint32_t i = 0; i < 300; ++i) builder.step().own(Buffer::kInput, 650 * 300 + i).send(650);
    auto&& fold = builder.step().own(Buffer::kInput, kRank * 300 + 299).final().to_output(299);
    for (uint32_t peer = 0; peer < kRanks; ++peer) {
      if (peer != kRank) fold.recv(peer);
    }
  });
  const Program program = program::encode(plan);
  ASSERT_EQ(program.steps.size(), 301u);
  EXPECT_EQ(program.chunks, 300u);
  EXPECT_EQ(program.messages, 300u) << "to rank 650";
  EXPECT_EQ(program.peers[299].message, 299u);
  const tutti_program_step& fold = program.steps.back();
  EXPECT_EQ(fold.own_position, kRank);
  EXPECT_EQ(fold.source_block, kRank);
  EXPECT_EQ(fold.source_chunk, 299u);
  EXPECT_EQ(fold.destination_block, 0u);
  EXPECT_EQ(fold.destination_chunk, 299u);
  EXPECT_EQ(fold.recv_begin, 300u);
  EXPECT_EQ(program.recv(fold).back().rank, kRanks - 1);
}

/// The plan stores equal lists of peers once. Connections need an entry for each direction.
TEST(Encode, GivesEachSendAndReceiveAnEntry) {
  const Plan plan = write_plan(TUTTI_ALL_REDUCE, 3, 1, 2, [](PlanBuilder& builder) {
    builder.step().own(Buffer::kInput, 0).send(0).send(2);
    builder.step().recv(0).recv(2).own(Buffer::kInput, 0).final().to_output(0);
    builder.step().own(Buffer::kOutput, 0).send(0).send(2);
  });
  ASSERT_EQ(plan.peers.size(), 2u);
  const Program program = program::encode(plan);
  EXPECT_EQ(program.peers.size(), 6u);
  EXPECT_THAT(ranks_of(program.send(program.steps[0])), ElementsAre(2, 0)) << "the next rank first";
  EXPECT_THAT(ranks_of(program.recv(program.steps[1])), ElementsAre(0, 2)) << "in the order of the fold";
  EXPECT_EQ(program.steps[1].own_position, 1u);
  EXPECT_THAT(ranks_of(program.send(program.steps[2])), ElementsAre(2, 0));
  EXPECT_EQ(program.send(program.steps[2])[0].message, 1u) << "the second message to the rank";
}

TEST(Encode, KeepsExchangesInTheOrderOfTheirAuthor) {
  const Plan plan = write_plan(TUTTI_ALL_TO_ALL, 3, 2, 2, [](PlanBuilder& builder) {
    builder.scratch(5);
    auto&& step = builder.step().own(Buffer::kInput, 4).to_output(4).scatter(1, 3).scatter(0, 0);
    step.gather(1, 3).gather(0, 0).gather_to_scratch();
  });
  const Program program = program::encode(plan);
  const tutti_program_step& step = program.steps.front();
  EXPECT_EQ(step.flags, TUTTI_STEP_GATHER | TUTTI_STEP_SCATTER | TUTTI_STEP_TO_SCRATCH);
  EXPECT_EQ(step.own_position, 0u) << "an exchange folds nothing";
  EXPECT_EQ(program.scratch_chunks, 5u);
  for (const auto& peers : {program.recv(step), program.send(step)}) {
    EXPECT_THAT(ranks_of(peers), ElementsAre(1, 0));
    EXPECT_EQ(peers[0].block, 1u);
    EXPECT_EQ(peers[0].chunk, 1u);
    EXPECT_EQ(peers[1].block, 0u);
    EXPECT_EQ(peers[1].chunk, 0u);
  }
}

TEST(Encode, KeepsMessagesOfSeveralChunksAndStableValues) {
  Plan plan = write_plan(TUTTI_ALL_GATHER, 2, 0, 4, [](PlanBuilder& builder) {
    builder.message_chunks(2);
    builder.step().own(Buffer::kInput, 0).to_output(0).send(1);
    builder.step().recv(1).to_output(4).chunks(2);
  });
  program::mark_stable(plan, false);
  const Program program = program::encode(plan);
  EXPECT_EQ(program.message_chunks, 2u);
  ASSERT_EQ(program.ranges.size(), 2u);
  EXPECT_EQ(program.ranges[0].count, 1u);
  EXPECT_EQ(program.ranges[1].count, 2u);
  EXPECT_EQ(program.steps[0].flags & TUTTI_STEP_STABLE, TUTTI_STEP_STABLE);
  const tutti_program view = program.view();
  EXPECT_EQ(view.struct_size, sizeof view);
  EXPECT_EQ(view.ranges, program.ranges.data());
  EXPECT_EQ(view.step_count, 2u);
  EXPECT_EQ(view.peer_count, 2u);
  EXPECT_EQ(view.input_blocks, 1u);
  EXPECT_EQ(view.output_blocks, 2u);
}

TEST(Encode, NamesNoRangesWhereEachStepHasOneChunk) {
  const Plan plan = write_plan(TUTTI_ALL_GATHER, 2, 0, 1,
                               [](PlanBuilder& builder) { builder.step().own(Buffer::kInput, 0).send(1); });
  EXPECT_EQ(program::encode(plan).view().ranges, nullptr);
}

}  // namespace
}  // namespace tutti::test
