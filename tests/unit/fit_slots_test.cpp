// SPDX-License-Identifier: Apache-2.0
// Steps get an order for few slots where they need one, and stay as they are where they do not.
#include "program/passes/fit_slots.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "program/passes/split_messages.h"
#include "program/verify/verify.h"
#include "unit/plan_support.h"
#include "unit/required.h"

namespace tutti::test {
namespace {

using program::Plan;
using sdk::Buffer;
using sdk::PlanBuilder;
using testing::ElementsAre;

/// "s1 s1 r1": the sends and receives of a plan whose steps have one message each.
std::string messages_of(const Plan& plan) {
  std::string text;
  for (const tutti_plan_step& step : plan.steps) {
    for (const tutti_plan_peer& peer : plan.recv(step)) text += fmt::format(" r{}", peer.rank);
    for (const tutti_plan_peer& peer : plan.send(step)) text += fmt::format(" s{}", peer.rank);
  }
  return text.empty() ? text : text.substr(1);
}

/// Two ranks that exchange blocks of five chunks. Each sends all, then receives.
std::vector<Plan> pair_of(uint32_t chunks) {
  return write_plans(TUTTI_ALL_GATHER, 2, chunks, [&](PlanBuilder& of, uint32_t rank) {
    for (uint32_t i = 0; i < chunks; ++i) of.step().own(Buffer::kInput, i).to_output(rank * chunks + i).send(1 - rank);
    for (uint32_t i = 0; i < chunks; ++i) of.step().recv(1 - rank).to_output((1 - rank) * chunks + i);
  });
}

TEST(FitSlots, ReceivesBetweenSendsWhereSlotsAreFew) {
  const std::vector<Plan> fit = required(program::fit_slots(pair_of(5), 2));
  EXPECT_EQ(messages_of(fit[0]), "s1 s1 r1 s1 r1 s1 r1 s1 r1 r1");
  EXPECT_EQ(messages_of(fit[1]), "s0 s0 r0 s0 r0 s0 r0 s0 r0 r0");
  for (const uint32_t slots : {2u, 3u}) {
    const Status proof = program::verify(fit, {slots, true});
    EXPECT_TRUE(proof.ok()) << proof.to_string();
  }
  EXPECT_FALSE(program::verify(pair_of(5), {4, false}).ok()) << "the plans before need five slots";
}

TEST(FitSlots, ChangesNothingWhereSlotsSuffice) {
  EXPECT_EQ(required(program::fit_slots(pair_of(5), 5)), pair_of(5));
}

/// Rank 1 answers when it has all. Rank 0 must not receive earlier.
TEST(FitSlots, LetsARankWaitWhosePeerTakesItsMessages) {
  const std::vector<Plan> plans = write_plans(TUTTI_ALL_REDUCE, 2, 3, [](PlanBuilder& of, uint32_t rank) {
    of.scratch(3);
    if (rank == 0) {
      for (uint32_t i = 0; i < 3; ++i) of.step().own(Buffer::kInput, i).send(1);
      for (uint32_t i = 0; i < 3; ++i) of.step().recv(1).to_output(i);
      return;
    }
    for (uint32_t i = 0; i < 3; ++i) of.step().recv(0).own(Buffer::kInput, i).final().to_output(i);
    for (uint32_t i = 0; i < 3; ++i) of.step().own(Buffer::kOutput, i).send(0);
  });
  EXPECT_EQ(required(program::fit_slots(plans, 1)), plans);
}

/// The received chunk overwrites what is still to be sent.
TEST(FitSlots, OvertakesNoStepThatUsesTheSameMemory) {
  const std::vector<Plan> plans = write_plans(TUTTI_ALL_REDUCE, 2, 1, [](PlanBuilder& of, uint32_t rank) {
    of.scratch(2);
    of.step().own(Buffer::kInput, 0).to_scratch(0).send(1 - rank);
    of.step().own(Buffer::kScratch, 0).send(1 - rank);
    of.step().recv(1 - rank).to_scratch(0);
    of.step().recv(1 - rank).own(Buffer::kInput, 0).final().to_output(0);
  });
  const Status refused = program::fit_slots(plans, 1).status();
  EXPECT_EQ(refused.code(), Code::kUnsupported);
  EXPECT_EQ(refused.text(), "needs more than 1 messages of one chunk under way from rank 0 to rank 1");
  EXPECT_EQ(required(program::fit_slots(plans, 2)), plans);
}

/// Ranks 0 and 1 fill each other's slots. Rank 2 would take messages of rank 0 in another order.
TEST(FitSlots, KeepsTheOrderOfMessagesOnAConnection) {
  const std::vector<Plan> plans = write_plans(TUTTI_ALL_GATHER, 2, 2, [](PlanBuilder& of, uint32_t rank) {
    const uint32_t peer = 1 - rank;
    for (uint32_t i = 0; i < 2; ++i) of.step().own(Buffer::kInput, i).to_output(rank * 2 + i).send(peer);
    of.step().recv(peer).to_output(peer * 2);
    of.step().recv(peer).to_output(peer * 2 + 1);
  });
  const std::vector<Plan> fit = required(program::fit_slots(plans, 1));
  for (const Plan& plan : fit) {
    std::vector<uint32_t> sent, received;
    for (const tutti_plan_step& step : plan.steps) {
      if (step.send_count > 0) sent.push_back(step.source_chunk);
      if (step.recv_count > 0) received.push_back(step.destination_chunk % 2);
    }
    EXPECT_THAT(sent, ElementsAre(0, 1));
    EXPECT_THAT(received, ElementsAre(0, 1));
  }
  EXPECT_TRUE(program::verify(fit, {1, false}).ok());
}

/// Every plan with long messages, with the fewest slots that kernels have, and with more.
TEST(FitSlots, MakesAllPlansFit) {
  size_t fitted = 0;
  for (const Sample& sample : samples({4, 6, 9, 12}, false)) {
    if (!program::has_long_messages(sample.plans[0])) continue;
    std::vector<Plan> plans;
    for (const Plan& plan : sample.plans) plans.push_back(required(program::split_messages(plan)));
    for (const uint32_t slots : {program::kLeastSlots, 4u, 8u}) {
      const std::vector<Plan> fit = required(program::fit_slots(plans, slots));
      const Status proof = program::verify(fit, {slots, false});
      EXPECT_TRUE(proof.ok()) << sample.name << ", " << slots << " slots: " << proof.to_string();
      ++fitted;
    }
  }
  EXPECT_GT(fitted, 0u);
}

}  // namespace
}  // namespace tutti::test
