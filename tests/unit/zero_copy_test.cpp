// SPDX-License-Identifier: Apache-2.0
// Which steps keep their value: peers may read it where it lies only if no later step overwrites it.
#include "program/passes/zero_copy.h"

#include <gmock/gmock.h>

#include "program/passes/alias.h"
#include "unit/plan_support.h"

namespace tutti::test {
namespace {

using sdk::Buffer;
using sdk::PlanBuilder;
using testing::ElementsAre;

std::vector<bool> stable_steps(program::Plan plan, bool in_place) {
  program::mark_stable(plan, in_place);
  std::vector<bool> stable;
  for (const tutti_plan_step& step : plan.steps) stable.push_back((step.flags & TUTTI_STEP_STABLE) != 0);
  return stable;
}

TEST(Stable, AllGatherInPlaceKeepsWhatItSends) {
  // The input is block 2 of the output; the message of rank 0 arrives in block 0.
  const program::Plan plan = write_plan(TUTTI_ALL_GATHER, 3, 2, 1, [](PlanBuilder& builder) {
    builder.step().own(Buffer::kInput, 0).to_output(2).send(0).send(1);
    builder.step().recv(0).to_output(0);
    builder.step().recv(1).to_output(1);
  });
  EXPECT_THAT(stable_steps(plan, true), ElementsAre(true, true, true));
  EXPECT_THAT(stable_steps(plan, false), ElementsAre(true, true, true));
}

TEST(Stable, AllGatherInPlaceOverwritesTheBlockThatIsTheInput) {
  const program::Plan plan = write_plan(TUTTI_ALL_GATHER, 3, 2, 1, [](PlanBuilder& builder) {
    builder.step().own(Buffer::kInput, 0).send(0);
    builder.step().recv(1).to_output(2);
  });
  EXPECT_THAT(stable_steps(plan, true), ElementsAre(false, true));
  EXPECT_THAT(stable_steps(plan, false), ElementsAre(true, true)) << "the input is elsewhere";
}

TEST(Stable, ReduceScatterInPlaceOverwritesItsOwnBlockOnly) {
  // Two chunks per block; the output is block 1 of the input, so chunks 2 and 3 of it.
  const program::Plan plan = write_plan(TUTTI_REDUCE_SCATTER, 2, 1, 2, [](PlanBuilder& builder) {
    for (uint32_t chunk = 0; chunk < 4; ++chunk) builder.step().own(Buffer::kInput, chunk).send(0);
    builder.step().recv(0).to_output(1);
  });
  EXPECT_THAT(stable_steps(plan, true), ElementsAre(true, true, true, false, true));
  EXPECT_THAT(stable_steps(plan, false), ElementsAre(true, true, true, true, true));
}

TEST(Stable, AllReduceInPlaceSharesAllChunks) {
  const program::Plan plan = write_plan(TUTTI_ALL_REDUCE, 2, 0, 2, [](PlanBuilder& builder) {
    builder.step().own(Buffer::kInput, 0).send(1);
    builder.step().own(Buffer::kInput, 1).send(1);
    builder.step().recv(1).to_output(1);
  });
  EXPECT_THAT(stable_steps(plan, true), ElementsAre(true, false, true));
  EXPECT_THAT(stable_steps(plan, false), ElementsAre(true, true, true));
}

TEST(Stable, AValueThatALaterStepReplacesIsNot) {
  const program::Plan plan = write_plan(TUTTI_ALL_REDUCE, 2, 0, 1, [](PlanBuilder& builder) {
    builder.step().recv(1).to_output(0).send(1);
    builder.step().recv(1).send(1).relay(0);
    builder.step().recv(1).to_output(0);
  });
  EXPECT_THAT(stable_steps(plan, false), ElementsAre(false, false, true)) << "what is passed on is kept nowhere";
}

TEST(Stable, ReceivesOfAGatherStepFollowItsSends) {
  const program::Plan plan = write_plan(TUTTI_ALL_GATHER, 2, 0, 1, [](PlanBuilder& builder) {
    builder.step().own(Buffer::kInput, 0).send(1).gather(1, 0);
  });
  EXPECT_THAT(stable_steps(plan, true), ElementsAre(false));
  EXPECT_THAT(stable_steps(plan, false), ElementsAre(true));
}

TEST(Stable, AScatterStepIsIfAllItsChunksAre) {
  const program::Plan plan = write_plan(TUTTI_ALL_REDUCE, 3, 0, 3, [](PlanBuilder& builder) {
    builder.step().own(Buffer::kInput, 0).scatter(1, 1).scatter(2, 2);
    builder.step().recv(1).to_output(0);
    builder.step().own(Buffer::kInput, 0).scatter(1, 1).scatter(2, 2);
    builder.step().recv(2).to_output(2);
  });
  EXPECT_THAT(stable_steps(plan, true), ElementsAre(false, true, false, true));
  EXPECT_THAT(stable_steps(plan, false), ElementsAre(true, true, true, true));
}

TEST(Stable, AScatterStepIsNotIfOneOfItsChunksIsNot) {
  for (const uint32_t overwritten : {1u, 2u}) {
    const program::Plan plan = write_plan(TUTTI_ALL_REDUCE, 3, 0, 3, [&](PlanBuilder& builder) {
      builder.step().own(Buffer::kInput, 0).scatter(1, 1).scatter(2, 2);
      builder.step().recv(1).to_output(overwritten);
    });
    EXPECT_THAT(stable_steps(plan, true), ElementsAre(false, true)) << "chunk " << overwritten;
  }
}

TEST(Stable, ScratchAndListsAreNot) {
  const program::Plan plan = write_plan(TUTTI_ALL_REDUCE, 2, 0, 2, [](PlanBuilder& builder) {
    builder.scratch(2).message_chunks(2);
    builder.step().recv(1).to_scratch(0);
    builder.step().own(Buffer::kScratch, 0).send(1);
    builder.step().own(Buffer::kInput, 0).chunks(2).send(1);
  });
  EXPECT_THAT(stable_steps(plan, false), ElementsAre(false, false, false)) << "the next loop overwrites scratch chunks";
}

TEST(Places, OfScratchAreNoPlacesOfOtherBuffers) {
  const program::Plan plan =
      write_plan(TUTTI_REDUCE_SCATTER, 3, 1, 2, [](PlanBuilder& builder) { builder.scratch(2); });
  for (const bool in_place : {false, true}) {
    EXPECT_EQ(program::place_of(plan, in_place, TUTTI_BUFFER_INPUT, 5), 7u);
    EXPECT_EQ(program::place_of(plan, in_place, TUTTI_BUFFER_SCRATCH, 0), 8u);
  }
  EXPECT_EQ(program::place_of(plan, true, TUTTI_BUFFER_INPUT, 3), 1u) << "chunk 1 of the own block is the output's";
  EXPECT_EQ(program::place_count(plan), 10u);
}

}  // namespace
}  // namespace tutti::test
