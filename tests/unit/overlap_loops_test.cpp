// SPDX-License-Identifier: Apache-2.0
// The pass overlap_loops, on programs of plans that are written by hand.
#include "program/passes/overlap_loops.h"

#include <gmock/gmock.h>

#include "program/encode.h"
#include "tutti/sdk/plan_builder.h"
#include "unit/plan_support.h"
#include "unit/program_calls.h"

namespace tutti::test {
namespace {

using program::Program;
using program::Programs;
using sdk::Buffer;
using sdk::PlanBuilder;
using testing::AllOf;
using testing::Each;
using testing::Field;

constexpr uint32_t kOverlaps = 1;
const tutti_slot_layout kRoomy = layout_of(64, 1024, 2, kOverlaps);

/// The programs of one channel, ready for the pass. `write` writes the plan of a rank.
Programs programs_of(uint32_t collective, uint32_t ranks, const std::function<void(PlanBuilder&, uint32_t)>& write) {
  Programs programs(1);
  for (const program::Plan& plan : write_plans(collective, ranks, 1, write)) {
    programs[0].push_back(program::encode(plan));
  }
  program::even_messages(programs);
  return programs;
}

/// Rank 0 sends to rank 1, which sends to rank 2, and so on.
Programs chain(uint32_t ranks) {
  return programs_of(TUTTI_BROADCAST, ranks, [&](PlanBuilder& builder, uint32_t rank) {
    auto&& step = builder.step();
    if (rank == 0) {
      step.own(Buffer::kInput, 0);
    } else {
      step.recv(rank - 1);
    }
    step.to_output(0);
    if (rank + 1 < ranks) step.send(rank + 1);
  });
}

void expect_one_stage(const Programs& programs) {
  for (const Program& program : programs[0]) {
    EXPECT_EQ(program.stages, 1u);
    EXPECT_EQ(program.lag, 0u);
    EXPECT_THAT(program.steps,
                Each(AllOf(Field(&tutti_program_step::stage, 0), Field(&tutti_program_step::recv_stage, 0))));
    EXPECT_THAT(program.peers, Each(Field(&tutti_program_peer::lag, 0)));
  }
}

TEST(OverlapLoops, GivesEachHopAStage) {
  Programs programs = chain(4);
  program::overlap_loops(programs, kRoomy);
  for (uint32_t rank = 0; rank < 4; ++rank) {
    const Program& program = programs[0][rank];
    EXPECT_EQ(program.stages, 4u);
    EXPECT_EQ(program.lag, 1u);
    EXPECT_EQ(program.steps[0].stage, rank);
    EXPECT_EQ(program.steps[0].recv_stage, rank);
    for (const tutti_program_peer& from : program.recv(program.steps[0])) EXPECT_EQ(from.lag, 1u);
  }
}

/// A step that exchanges sends before it has received.
TEST(OverlapLoops, ExchangesSendInAnEarlierStageThanTheyReceive) {
  Programs programs = programs_of(TUTTI_ALL_TO_ALL, 2, [](PlanBuilder& builder, uint32_t rank) {
    builder.step().own(Buffer::kInput, rank).to_output(rank).scatter(1 - rank, 1 - rank).gather(1 - rank, 1 - rank);
  });
  program::overlap_loops(programs, kRoomy);
  for (const Program& program : programs[0]) {
    EXPECT_EQ(program.stages, 2u);
    EXPECT_EQ(program.steps[0].stage, 0u);
    EXPECT_EQ(program.steps[0].recv_stage, 1u);
  }
}

TEST(OverlapLoops, DependsOnTheKernelsOfTheProtocol) {
  Programs programs = chain(3);
  program::overlap_loops(programs, layout_of(64, 1024, 2));
  expect_one_stage(programs);
}

TEST(OverlapLoops, StrandsDoNotOverlap) {
  Programs programs = chain(3);
  programs[0][1].strand_count = 2;
  program::overlap_loops(programs, kRoomy);
  expect_one_stage(programs);
}

/// The two messages of each loop may be under way beside those of the loop before.
TEST(OverlapLoops, SlotsHoldTheMessagesUnderWay) {
  Programs programs = chain(3);
  program::overlap_loops(programs, layout_of(2, 1024, 2, kOverlaps));
  EXPECT_EQ(programs[0][0].stages, 3u);
  EXPECT_EQ(program::chunk_slots(programs[0][0], layout_of(2, 1024, 2, kOverlaps)), 1u);
  program::overlap_loops(programs, layout_of(1, 1024, 1, kOverlaps));
  expect_one_stage(programs);
}

TEST(OverlapLoops, TakesUpTo64Stages) {
  Programs most = chain(64);
  program::overlap_loops(most, kRoomy);
  EXPECT_EQ(most[0][0].stages, 64u);
  Programs more = chain(65);
  program::overlap_loops(more, kRoomy);
  expect_one_stage(more);
}

/// Rank 1 receives the second message of rank 0 only after an answer of rank 2.
TEST(OverlapLoops, RefusesDifferentLagsOfAConnection) {
  Programs programs = programs_of(TUTTI_BROADCAST, 3, [](PlanBuilder& builder, uint32_t rank) {
    if (rank == 0) {
      builder.step().own(Buffer::kInput, 0).to_output(0).send(1);
      builder.step().own(Buffer::kOutput, 0).send(1);
    } else if (rank == 1) {
      builder.step().recv(0).to_output(0).send(2);
      builder.step().recv(2).to_output(0);
      builder.step().recv(0).to_output(0);
    } else {
      builder.step().recv(1).to_output(0).send(1);
    }
  });
  program::overlap_loops(programs, kRoomy);
  expect_one_stage(programs);
}

TEST(OverlapLoops, WithoutMessagesThereIsOneStage) {
  Programs programs = programs_of(TUTTI_ALL_REDUCE, 1, [](PlanBuilder& builder, uint32_t) {
    builder.step().own(Buffer::kInput, 0).final().to_output(0);
  });
  program::overlap_loops(programs, kRoomy);
  expect_one_stage(programs);
}

}  // namespace
}  // namespace tutti::test
