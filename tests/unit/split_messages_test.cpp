// SPDX-License-Identifier: Apache-2.0
// Messages of several chunks become messages of one chunk, and the plans stay right.
#include "program/passes/split_messages.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "program/describe.h"
#include "program/verify/verify.h"
#include "unit/plan_support.h"
#include "unit/required.h"

namespace tutti::test {
namespace {

using program::Plan;
using sdk::Buffer;
using sdk::PlanBuilder;
using testing::ElementsAre;

/// The steps of a split plan as text, without the head.
std::vector<std::string> steps_of(const Plan& plan) {
  const Plan split = required(program::split_messages(plan));
  EXPECT_TRUE(program::validate(split.view()).ok()) << program::validate(split.view()).to_string();
  EXPECT_TRUE(split.ranges.empty());
  EXPECT_EQ(split.message_chunks, 1u);
  EXPECT_EQ(split.scratch_chunks, plan.scratch_chunks);
  std::vector<std::string> steps;
  for (const tutti_plan_step& step : split.steps) {
    std::string text =
        fmt::format("{}:{}>{}:{}", step.source, step.source_chunk, step.destination, step.destination_chunk);
    for (const tutti_plan_peer& peer : split.recv(step)) text += fmt::format(" r{}.{}", peer.rank, peer.chunk);
    for (const tutti_plan_peer& peer : split.send(step)) text += fmt::format(" s{}.{}", peer.rank, peer.chunk);
    if ((step.flags & TUTTI_STEP_GATHER) != 0) text += step.gather_buffer == 0 ? " gather" : " gather to scratch";
    if ((step.flags & TUTTI_STEP_SCATTER) != 0) text += " scatter";
    if ((step.flags & TUTTI_STEP_FINAL) != 0) text += " final";
    steps.push_back(text);
  }
  return steps;
}

TEST(SplitMessages, MakesAStepOfEachChunkOfAFold) {
  const Plan plan = write_plan(TUTTI_ALL_REDUCE, 3, 1, 4, [](PlanBuilder& of) {
    of.scratch(4).message_chunks(3);
    of.step().recv(0).recv(2).own(Buffer::kInput, 3).to_scratch(3).chunks(2, 2, 2);
    of.step().recv(0).own(Buffer::kScratch, 0).final().to_output(0).send(2);
    of.step().recv(2).relay(1).chunks(3).send(0);
  });
  EXPECT_THAT(steps_of(plan), ElementsAre("1:3>3:3 r0.0 r2.0", "1:1>3:1 r0.0 r2.0", "3:0>2:0 r0.0 s2.0 final",
                                          "0:1>0:0 r2.0 s0.0", "0:2>0:0 r2.0 s0.0", "0:3>0:0 r2.0 s0.0"));
}

TEST(SplitMessages, PutsAllSendsOfAnExchangeBeforeItsReceives) {
  const Plan plan = write_plan(TUTTI_ALL_TO_ALL, 4, 0, 1, [](PlanBuilder& of) {
    of.scratch(4).message_chunks(2);
    of.step().own(Buffer::kInput, 0).to_scratch(0).chunks(2, 1, 2).scatter(1, 2).gather(1, 1).gather_to_scratch();
    of.step().own(Buffer::kInput, 0).to_output(0).gather(2, 1).send(2);
    of.step().gather(3, 2).chunks(2, 0, 1);
  });
  EXPECT_THAT(steps_of(plan),
              ElementsAre("1:0>3:0 s1.2 scatter", "1:1>3:2 s1.3 scatter", "0:0>0:0 r1.1 gather to scratch",
                          "0:0>0:0 r1.3 gather to scratch", "1:0>2:0 s2.0 gather", "0:0>0:0 r2.1 gather",
                          "0:0>0:0 r3.2 gather", "0:0>0:0 r3.3 gather"));
}

/// Over two ranks. The exchange goes round: rank 0 gets its message after rank 1 has all of its chunks.
TEST(SplitMessages, KeepsTheRuleThatSendsDoNotWaitForReceives) {
  std::vector<Plan> plans = write_plans(TUTTI_ALL_GATHER, 2, 2, [](PlanBuilder& of, uint32_t rank) {
    of.message_chunks(2);
    if (rank == 0) of.step().own(Buffer::kInput, 0).chunks(2).to_output(0).send(1).gather(1, 2);
    if (rank == 1) of.step().recv(0).to_output(0).chunks(2);
    if (rank == 1) of.step().own(Buffer::kInput, 0).to_output(2).chunks(2).send(0);
  });
  for (Plan& plan : plans) {
    ASSERT_TRUE(program::has_long_messages(plan));
    plan = required(program::split_messages(plan));
    EXPECT_FALSE(program::has_long_messages(plan));
  }
  for (const bool in_place : {false, true}) {
    const Status proof = program::verify(plans, {2, in_place});
    EXPECT_TRUE(proof.ok()) << proof.to_string();
  }
}

/// With so many slots that no message waits for one.
TEST(SplitMessages, KeepsAllPlansRight) {
  for (const Sample& sample : samples({2, 4, 6, 9, 12}, false)) {
    if (!program::has_long_messages(sample.plans[0])) continue;
    std::vector<Plan> plans;
    for (const Plan& plan : sample.plans) plans.push_back(required(program::split_messages(plan)));
    const Status proof = program::verify(plans, {1000, false});
    EXPECT_TRUE(proof.ok()) << sample.name << ": " << proof.to_string();
  }
}

}  // namespace
}  // namespace tutti::test
