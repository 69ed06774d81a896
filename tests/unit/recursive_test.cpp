// SPDX-License-Identifier: Apache-2.0
// Scratch memory and messages of several chunks: the algorithms of examples/algo-recursive are proved by the verifier
// and run on numbers by the reference, for all numbers of ranks up to 33.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <random>

#include "backend/limits.h"
#include "program/file/algorithm.h"
#include "program/lower.h"
#include "program/passes/split_messages.h"
#include "program/verify/verify.h"
#include "tuner/plan_check.h"
#include "tuner/selector.h"
#include "unit/plan_reference.h"
#include "unit/plan_support.h"
#include "unit/required.h"

namespace tutti::test {
namespace {

using program::Plan;

enum Variant : uint32_t { kBruck, kHalving, kHierarchical, kVariants };

class Recursive : public testing::Test {
 protected:
  uint32_t collective(uint32_t variant) const { return variant == 0 ? TUTTI_ALL_GATHER : TUTTI_ALL_REDUCE; }
  std::vector<Plan> plans(uint32_t variant, uint32_t ranks, uint32_t nodes) {
    Connected connected(algorithm_, split(ranks, nodes));
    return required(connected.plans(collective(variant), variant));
  }
  std::string name(uint32_t variant, uint32_t ranks, uint32_t nodes) const {
    return fmt::format("variant {}, {} ranks on {} machines", variant, ranks, nodes);
  }

  Algorithm algorithm_{"recursive", "examples"};
};

TEST_F(Recursive, IsProvedUpTo33Ranks) {
  for (uint32_t ranks = 1; ranks <= 33; ++ranks) {
    for (const uint32_t nodes : {1u, 2u, 3u, 5u, ranks}) {
      if (nodes > ranks) continue;
      for (uint32_t variant = 0; variant < kVariants; ++variant) {
        const std::vector<Plan> plans = this->plans(variant, ranks, nodes);
        for (const uint32_t slots : {1u, 2u}) {
          for (const bool in_place : {false, true}) {
            const Status proof = program::verify(plans, {slots, in_place});
            EXPECT_TRUE(proof.ok()) << name(variant, ranks, nodes) << ": " << proof.to_string();
          }
        }
      }
    }
  }
}

TEST_F(Recursive, GivesTheRightNumbers) {
  const uint64_t seed = std::random_device{}();
  for (uint32_t ranks = 1; ranks <= 33; ++ranks) {
    const uint32_t nodes = 1 + ranks / 4;
    for (uint32_t variant = 0; variant < kVariants; ++variant) {
      for (const bool in_place : {false, true}) {
        Reference reference(plans(variant, ranks, nodes), {.slots = 1, .in_place = in_place, .loops = 2}, seed);
        EXPECT_EQ(reference.run(), "") << name(variant, ranks, nodes) << ", in place " << in_place << ", seed " << seed;
      }
    }
  }
}

TEST_F(Recursive, SendsLongMessages) {
  // Bruck over 6 ranks sends 1, 2 and 2 blocks: 3 messages, where a ring sends 5.
  const Plan bruck = plans(0, 6, 1)[4];
  EXPECT_EQ(bruck.message_chunks, 2u);
  ASSERT_EQ(bruck.steps.size(), 7u);
  EXPECT_EQ(bruck.ranges[5].count, 2u);
  const Plan halving = plans(1, 8, 1)[0];
  EXPECT_EQ(halving.message_chunks, 4u);
  EXPECT_EQ(halving.scratch_chunks, 8u);
}

/// A program has one chunk in each step. Its numbers count for the limits.
TEST_F(Recursive, RunsInKernelsInTheFormOfOneChunk) {
  EXPECT_EQ(program::check_kernel_limits(plans(kBruck, 4, 1)[0]).text(),
            "needs messages of several chunks; this back end runs none");
  const tuner::BackEnd& gpus = backend::gpu_back_end();
  for (uint32_t ranks = 2; ranks <= 64; ranks += ranks < 33 ? 1 : 31) {
    for (uint32_t variant = 0; variant < kVariants; ++variant) {
      const std::vector<Plan> all = plans(variant, ranks, 1 + ranks / 4);
      for (const Plan& plan : all) ASSERT_EQ(gpus.runs(plan).text(), "") << name(variant, ranks, 1 + ranks / 4);
      if (!program::has_long_messages(all[0])) continue;
      EXPECT_EQ(gpus.runs_together(all).text(), "") << name(variant, ranks, 1 + ranks / 4);
    }
  }
  EXPECT_TRUE(gpus.runs_small(plans(kBruck, 16, 1)[0]).ok());
  EXPECT_EQ(gpus.runs_small(plans(kBruck, 33, 1)[0]).text(), "needs 65 steps; this protocol runs up to 64");
  EXPECT_EQ(gpus.runs_small(plans(kHalving, 8, 1)[0]).text(), "needs a scratch buffer; this protocol runs none");
}

/// Runs each plan alone, but not those of all ranks together.
class RefusesTogether : public tuner::BackEnd {
 public:
  Status takes(uint32_t /*rank_count*/) const override { return {}; }
  Status runs(const Plan& /*plan*/) const override { return {}; }
  Status runs_together(std::span<const Plan> all_ranks) const override {
    return {Code::kUnsupported, fmt::format("does not like {} plans", all_ranks.size())};
  }
  std::string why_lists(std::span<const Plan> /*all_ranks*/) const override { return {}; }
  Status takes_small(uint32_t /*rank_count*/) const override { return {}; }
  Status runs_small(const Plan& /*plan*/) const override { return {}; }
};

TEST_F(Recursive, IsExcludedIfTheBackEndDoesNotRunAllPlansTogether) {
  const NodeOfRank nodes = split(4, 1);
  const tutti_topology topology = topology_of(nodes);
  const program::AlgorithmPlugin plugin{"recursive", &algorithm_.ops(), algorithm_.self()};
  const RefusesTogether back_end;
  tuner::Choices choices;
  choices.algorithms.emplace_back(plugin, required(program::search_and_connect(plugin, topology)));
  choices.ranks = 4;
  choices.back_end = &back_end;
  tuner::PlanCheck check(choices);
  EXPECT_EQ(check.answer(0, kBruck, Collective::kAllGather).why_not, "does not like 4 plans");
  EXPECT_EQ(check.answer(0, kHierarchical, Collective::kAllReduce).why_not, "does not like 4 plans");
}

TEST_F(Recursive, IsRefusedByKernelsBeyondTheirLimits) {
  const auto why_not = [](uint32_t chunks, uint32_t scratch) {
    return std::string(backend::gpu_back_end()
                           .runs(write_plan(TUTTI_ALL_REDUCE, 2, 0, chunks,
                                            [&](sdk::PlanBuilder& plan) {
                                              plan.scratch(scratch).message_chunks(chunks);
                                              plan.step().own(sdk::Buffer::kInput, 0).chunks(chunks).send(1);
                                            }))
                           .text());
  };
  EXPECT_EQ(why_not(20, 65535 * 20), "");
  EXPECT_EQ(why_not(20, 65535 * 20 + 1), "needs 65536 blocks of scratch memory; this back end runs up to 65535");
  EXPECT_EQ(why_not(65535, 0), "");
  EXPECT_EQ(why_not(65536, 0), "needs 65536 steps; this back end runs up to 65535");
}

TEST_F(Recursive, RoundTripsAsFiles) {
  for (uint32_t variant = 0; variant < kVariants; ++variant) {
    for (const uint32_t ranks : {2u, 3u, 7u, 8u}) {
      const program::PlanFile file = {"recursive", "some", plans(variant, ranks, 1 + ranks / 4)};
      for (const std::string& text : {program::to_yaml(file), program::to_json(file)}) {
        const auto back = program::parse_file(text, "plan");
        ASSERT_TRUE(back.ok()) << back.status().to_string() << '\n' << text;
        EXPECT_EQ(*back, file) << text;
      }
    }
  }
}

/// Small damage to a right set of plans: the verifier and the reference must agree on what is left.
TEST_F(Recursive, IsJudgedAsByTheReference) {
  const uint64_t seed = std::random_device{}();
  std::mt19937_64 random(seed);
  uint32_t right = 0;
  uint32_t wrong = 0;
  for (int round = 0; round < 1500; ++round) {
    const auto ranks = static_cast<uint32_t>(2 + random() % 7);
    std::vector<Plan> plans = this->plans(static_cast<uint32_t>(random() % kVariants), ranks, 1 + ranks / 4);
    Plan& plan = plans[random() % ranks];
    if (plan.steps.empty()) continue;
    const size_t at = random() % plan.steps.size();
    tutti_plan_step& step = plan.steps[at];
    const auto small = [&](uint32_t value) { return value + static_cast<uint32_t>(random() % 3) - 1; };
    switch (random() % 7) {
      case 0:
        step.source_chunk = small(step.source_chunk);
        break;
      case 1:
        step.destination_chunk = small(step.destination_chunk);
        break;
      case 2:
        if (!plan.ranges.empty()) plan.ranges[at].count = small(plan.ranges[at].count);
        break;
      case 3:
        if (!plan.ranges.empty()) plan.ranges[at].source_stride = small(plan.ranges[at].source_stride);
        break;
      case 4:
        if (!plan.ranges.empty()) plan.ranges[at].destination_stride = small(plan.ranges[at].destination_stride);
        break;
      case 5:
        step.source = static_cast<uint8_t>(random() % 4);
        break;
      default:
        step.destination = static_cast<uint8_t>(random() % 4);
    }
    for (const bool in_place : {false, true}) {
      const Status proof = program::verify(plans, {.slots = 1, .in_place = in_place});
      const std::string number = Reference(plans, {.slots = 1, .in_place = in_place, .loops = 2}, seed).run();
      EXPECT_EQ(proof.ok(), number.empty()) << proof.to_string() << " / " << number << ", seed " << seed;
      proof.ok() ? ++right : ++wrong;
      if (HasFailure()) return;
    }
  }
  EXPECT_GT(right, 50u);
  EXPECT_GT(wrong, 50u);
}

}  // namespace
}  // namespace tutti::test
