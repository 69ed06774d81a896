// SPDX-License-Identifier: Apache-2.0
// Scratch memory and messages of several chunks: the algorithms of examples/algo-recursive are proved by the verifier
// and run on numbers by the reference, for all numbers of ranks up to 33.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <random>

#include "program/file/algorithm.h"
#include "program/lower.h"
#include "program/verify/verify.h"
#include "unit/plan_reference.h"
#include "unit/plan_support.h"
#include "unit/required.h"

namespace tutti::test {
namespace {

using program::Plan;

constexpr uint32_t kVariants = 3;

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

TEST_F(Recursive, DoesNotRunInKernels) {
  EXPECT_EQ(program::check_kernel_limits(plans(1, 4, 1)[0]).text(), "needs a scratch buffer; this back end runs none");
  EXPECT_EQ(program::check_kernel_limits(plans(0, 4, 1)[0]).text(),
            "needs messages of several chunks; this back end runs none");
  EXPECT_TRUE(program::check_kernel_limits(plans(0, 2, 1)[0]).ok());
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
