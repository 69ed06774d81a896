// SPDX-License-Identifier: Apache-2.0
// Strands lowered for kernels: each has its range of steps, its waits, and the ranks to which it signals free slots.
#include "program/lower_strands.h"

#include <gmock/gmock.h>

#include "backend/cuda/launch_builder.h"
#include "program/lower.h"
#include "tutti/sdk/plan_builder.h"
#include "unit/plan_support.h"
#include "unit/program_calls.h"
#include "unit/required.h"

namespace tutti::test {
namespace {

using program::Plan;
using sdk::Buffer;
using sdk::PlanBuilder;
using testing::HasSubstr;

/// Strand 0 has steps 0 to 2, strand 1 steps 3 and 4, strand 2 step 5.
Plan three_strands() {
  return write_plan(TUTTI_ALL_GATHER, 4, 0, 1, [](PlanBuilder& plan) {
    plan.step().own(Buffer::kInput, 0).to_output(0);
    plan.step().recv(1).to_output(1);
    plan.step().recv(1).to_output(2);
    plan.strand();
    plan.step().recv(2).after(0);
    plan.step().own(Buffer::kOutput, 1).send(2).after(0).after(1).after(5);
    plan.strand();
    plan.step().own(Buffer::kOutput, 0).send(1).after(0);
  });
}

/// Steps of a strand that are complete before a step begins.
uint32_t awaited(const program::Strands& strands, uint32_t step, uint32_t strand) {
  return static_cast<uint32_t>(strands.after[step] >> 8 * strand & 0xff);
}

TEST(LowerStrands, HasARangeOfStepsForEachStrand) {
  const program::Strands strands = program::lower_strands(three_strands());
  ASSERT_EQ(strands.strand_count, 3u);
  EXPECT_EQ(strands.strands[0].first_step, 0);
  EXPECT_EQ(strands.strands[0].step_count, 3);
  EXPECT_EQ(strands.strands[1].first_step, 3);
  EXPECT_EQ(strands.strands[1].step_count, 2);
  EXPECT_EQ(strands.strands[2].first_step, 5);
  EXPECT_EQ(strands.strands[2].step_count, 1);
}

TEST(LowerStrands, WaitsForTheLastStepOfEachStrand) {
  const program::Strands strands = program::lower_strands(three_strands());
  for (const uint32_t step : {0u, 1u, 2u}) EXPECT_EQ(strands.after[step], 0u);
  EXPECT_EQ(awaited(strands, 3, 0), 1u);
  EXPECT_EQ(awaited(strands, 4, 0), 2u) << "of steps 0 and 1, the later one";
  EXPECT_EQ(awaited(strands, 4, 1), 0u);
  EXPECT_EQ(awaited(strands, 4, 2), 1u);
  EXPECT_EQ(awaited(strands, 5, 0), 1u);
}

TEST(LowerStrands, OnlyAwaitedStepsSignal) {
  const program::Program program = required(program::lower(three_strands(), false));
  EXPECT_EQ(program.strand_count, 3u);
  for (const uint32_t step : {0u, 1u, 2u, 3u, 4u, 5u}) {
    const bool is_awaited = step == 0 || step == 1 || step == 5;
    EXPECT_EQ((program.steps[step].flags & TUTTI_CUDA_STEP_SIGNAL) != 0, is_awaited) << step;
  }
}

/// Each rank gets the signal from one strand: that which receives from it, or the first.
TEST(LowerStrands, OneStrandSignalsEachRank) {
  const program::Strands strands = program::lower_strands(three_strands());
  EXPECT_EQ(strands.strands[0].sources, ~uint64_t{1 << 2});
  EXPECT_EQ(strands.strands[1].sources, uint64_t{1 << 2});
  EXPECT_EQ(strands.strands[2].sources, 0u);
}

TEST(LowerStrands, APlanWithoutStrandsIsOneStrand) {
  const Plan plan = write_plan(TUTTI_BROADCAST, 2, 0, 1,
                               [](PlanBuilder& of) { of.step().own(Buffer::kInput, 0).to_output(0).send(1); });
  const program::Strands strands = program::lower_strands(plan);
  EXPECT_EQ(strands.strand_count, 1u);
  EXPECT_EQ(strands.strands[0].step_count, 1);
  EXPECT_EQ(strands.strands[0].sources, ~uint64_t{0});
  EXPECT_EQ(required(program::lower(plan, false)).strand_count, 0u);
}

/// A step is ordered after steps of its own strand alone: waits order it after steps of other strands.
TEST(LowerStrands, OrdersStepsOfAStrandAlone) {
  const auto plan_of = [](bool in_strands) {
    return write_plan(TUTTI_BROADCAST, 2, 0, 1, [&](PlanBuilder& plan) {
      plan.step().own(Buffer::kInput, 0).to_output(0);
      if (in_strands) plan.strand();
      auto&& step = plan.step().own(Buffer::kOutput, 0).send(1);
      if (in_strands) step.after(0);
    });
  };
  for (const bool in_strands : {false, true}) {
    const program::Program program = required(program::lower(plan_of(in_strands), false));
    EXPECT_EQ((program.steps[1].flags & TUTTI_CUDA_STEP_AFTER) != 0, !in_strands);
  }
}

TEST(LowerStrands, LoopsDoNotOverlap) {
  for (const bool in_strands : {false, true}) {
    const auto plans = write_plans(TUTTI_BROADCAST, 2, 1, [&](PlanBuilder& plan, uint32_t rank) {
      if (rank == 1) plan.step().recv(0).to_output(0);
      if (rank == 1) return;
      plan.step().own(Buffer::kInput, 0).send(1);
      if (in_strands) plan.strand();
      plan.step().own(Buffer::kInput, 0).to_output(0);
    });
    const tutti_slot_layout layout = layout_of(16, 4096, 8, 1);
    const auto programs = required(backend::lower_channels({plans}, false, true, layout));
    for (const program::Program& program : programs[0]) EXPECT_EQ(program.stages, in_strands ? 1u : 2u);
    EXPECT_EQ(backend::is_large(2, {programs[0].data(), 1}), in_strands);
    const bool stores = programs[0][0].peers[0].to_output != 0;
    EXPECT_EQ(stores, !in_strands) << "kernels for strands store nothing to outputs of peers";
  }
}

/// Ranks of which some have strands, and some have none.
backend::ChannelPlans mixed(uint32_t strands) {
  return {write_plans(TUTTI_SEND_RECV, 2, 1, [&](PlanBuilder& plan, uint32_t rank) {
    for (uint32_t i = 0; i < (rank == 0 ? strands : 1); ++i) {
      if (i > 0) plan.strand();
      plan.step().own(Buffer::kInput, 0);
    }
  })};
}

TEST(ChooseStrands, RunsListsIfAPlanBesideStrandsIsTooLong) {
  const auto with_list = [](uint32_t steps) {
    backend::ChannelPlans plans = mixed(3);
    plans.push_back(write_plans(TUTTI_SEND_RECV, 2, 1, [&](PlanBuilder& plan, uint32_t rank) {
      for (uint32_t i = 0; i < (rank == 1 ? steps : 1); ++i) plan.step().own(Buffer::kInput, 0);
    }));
    return plans;
  };
  EXPECT_EQ(backend::choose_strands(with_list(255), true, 64, 64).ctas, 3u);
  const backend::StrandChoice lists = backend::choose_strands(with_list(256), true, 64, 64);
  EXPECT_EQ(lists.ctas, 1u);
  EXPECT_EQ(lists.why_lists, "kernels run up to 255 steps beside strands, and the plan of rank 1 has 256");
  EXPECT_EQ(program::why_in_lists(with_list(256).back()), "") << "without strands";
  const auto long_strands = write_plans(TUTTI_SEND_RECV, 2, 1, [](PlanBuilder& plan, uint32_t) {
    for (uint32_t i = 0; i < 256; ++i) plan.step().own(Buffer::kInput, 0);
    plan.strand();
    plan.step().own(Buffer::kInput, 0);
  });
  EXPECT_EQ(program::why_in_lists(long_strands),
            "kernels run up to 255 steps beside strands, and the plan of rank 0 has 257");
}

TEST(ChooseStrands, GivesEachStrandACta) {
  const backend::StrandChoice choice = backend::choose_strands(mixed(3), true, 64, 64);
  EXPECT_EQ(choice.ctas, 3u);
  EXPECT_EQ(choice.why_lists, "");
  const auto own = backend::strands_of_rank(mixed(3), 0);
  ASSERT_EQ(own.size(), 1u);
  EXPECT_EQ(backend::ctas_of_channel(own), 3u);
  EXPECT_TRUE(backend::strands_of_rank(mixed(3), 1).empty()) << "a rank without strands runs as always";
  EXPECT_EQ(backend::ctas_of_channel({}), 0u);
}

/// All strands of all channels run at the same time, in whole clusters if they fill one.
TEST(ChooseStrands, LimitsChannels) {
  const auto channels = [](uint32_t strands, uint32_t most_ctas, uint32_t strand_ctas) {
    return backend::choose_strands(mixed(strands), true, most_ctas, strand_ctas).channels;
  };
  EXPECT_EQ(channels(1, 62, 16), 62u);
  EXPECT_EQ(channels(8, 64, 64), 8u);
  EXPECT_EQ(channels(3, 64, 64), 20u) << "not 21";
  EXPECT_EQ(channels(3, 64, 16), 4u) << "not 5";
  EXPECT_EQ(channels(3, 64, 10), 3u);
  EXPECT_EQ(channels(3, 8, 64), 2u);
  EXPECT_EQ(channels(3, 64, 2), 64u) << "lists";
}

/// The waits of strands lie beside the programs, so equal programs may differ in waits.
TEST(ChooseStrands, KeepsAProgramForEachChannel) {
  for (const uint32_t strands : {1u, 2u}) {
    const backend::ChannelPlans plans = {mixed(strands)[0], mixed(strands)[0]};
    const auto programs = required(backend::lower_channels(plans, false, false, layout_of(16, 4096, 8, 1)));
    const auto own = backend::programs_of_rank(programs, 0);
    EXPECT_EQ(own.size(), strands == 1 ? 1u : 2u);
    const auto of_rank = backend::strands_of_rank(plans, 0);
    EXPECT_EQ(of_rank.size(), strands == 1 ? 0u : own.size());
  }
}

TEST(ChooseStrands, SaysWhyPlansRunAsLists) {
  EXPECT_EQ(backend::choose_strands(mixed(1), false, 64, 64).why_lists, "");
  EXPECT_EQ(backend::choose_strands(mixed(2), false, 64, 64).why_lists, "the protocol runs no strands");
  EXPECT_EQ(backend::choose_strands(mixed(8), true, 4, 64).why_lists,
            "a plan has 8 strands, and the GPUs hold 4 CTAs of a launch at once");
  EXPECT_EQ(backend::choose_strands(mixed(8), true, 64, 7).why_lists,
            "a plan has 8 strands, and the GPUs hold 7 CTAs of a launch at once");
  EXPECT_EQ(backend::choose_strands(mixed(8), true, 64, 8).why_lists, "");
  EXPECT_EQ(backend::choose_strands(mixed(1), true, 64, 0).why_lists, "") << "no strands wait for each other";
  EXPECT_EQ(backend::choose_strands(mixed(9), true, 64, 64).why_lists,
            "kernels run up to 8 strands, and the plan of rank 0 has 9");
  EXPECT_EQ(backend::choose_strands(mixed(9), true, 64, 64).ctas, 1u);
  auto long_messages = mixed(2);
  for (Plan& plan : long_messages[0]) plan.message_chunks = 2;
  EXPECT_THAT(backend::choose_strands(long_messages, true, 64, 64).why_lists, HasSubstr("several chunks"));
}

}  // namespace
}  // namespace tutti::test
