// SPDX-License-Identifier: Apache-2.0
// The plans that a communicator proves before it runs them, and the plans that it refuses.
#include "backend/plans.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include "tutti/sdk/plan_builder.h"
#include "unit/plan_support.h"

namespace tutti::test {
namespace {

using backend::Plans;
using sdk::Buffer;
using sdk::PlanBuilder;
using testing::HasSubstr;

/// A broadcast by the root alone, but on one channel the last rank does not receive.
struct Flawed {
  uint32_t ranks = 2;
  uint32_t channel = 0;
  uint32_t repeats = 1;  ///< steps that say the same, for plans with many messages
};

int32_t plan_of(void* instance, const tutti_plan_request* request, const tutti_plan_sink* sink) {
  const auto& flawed = *static_cast<const Flawed*>(instance);
  PlanBuilder plan(*request, flawed.ranks);
  for (uint32_t i = 0; i < flawed.repeats; ++i) {
    PlanBuilder::Step& step = plan.step().to_output(0);
    if (request->rank != request->root) {
      const bool receives = request->rank + 1 < flawed.ranks || request->channel != flawed.channel;
      receives ? step.recv(request->root) : step.own(Buffer::kOutput, 0);
      continue;
    }
    step.own(Buffer::kInput, 0);
    for (uint32_t rank = 0; rank < flawed.ranks; ++rank) {
      if (rank != request->root) step.send(rank);
    }
  }
  return plan.emit(*sink);
}

int32_t variant_of(void* /*self*/, uint32_t index, tutti_str* name, uint64_t* collectives) {
  if (index > 0) return TUTTI_NOT_FOUND;
  *name = {"", 0};
  *collectives = 1u << TUTTI_BROADCAST;
  return TUTTI_OK;
}

class PlansTest : public testing::Test {
 protected:
  static Status verify(const Flawed& flawed, uint32_t channels, bool proves = true) {
    tuner::Choices choices;
    program::Instance instance(const_cast<Flawed*>(&flawed), [](void*) {});
    choices.algorithms.emplace_back(program::AlgorithmPlugin{"flawed", &kOps, nullptr}, std::move(instance));
    const Plans plans({.rank = 0, .rank_count = flawed.ranks, .verify = proves}, choices);
    return plans.verify({.algorithm = 0, .channels = channels}, Collective::kBroadcast, 0, false, 2);
  }

  static constexpr tutti_algorithm_ops kOps = {sizeof(tutti_algorithm_ops), 0,          nullptr, nullptr, nullptr,
                                               [](void*) { return 4u; },    variant_of, plan_of, nullptr, nullptr};
};

constexpr uint32_t kNoChannel = 99;

TEST_F(PlansTest, proves_every_channel) {
  EXPECT_TRUE(verify({.ranks = 4, .channel = kNoChannel}, 4).ok());
  for (uint32_t channel = 0; channel < 4; ++channel) {
    const Status status = verify({.ranks = 4, .channel = channel}, 4);
    EXPECT_EQ(status.code(), Code::kFailedPrecondition);
    EXPECT_THAT(status.text(), HasSubstr(fmt::format("wrong plan for broadcast, channel {}", channel)));
  }
  EXPECT_TRUE(verify({.ranks = 4, .channel = 3}, 3).ok()) << "it does not run that one";
}

TEST_F(PlansTest, proves_thousands_of_ranks) {
  for (const uint32_t ranks : {65u, 300u, 4096u}) {
    EXPECT_TRUE(verify({.ranks = ranks, .channel = kNoChannel}, 1).ok()) << ranks;
    EXPECT_EQ(verify({.ranks = ranks, .channel = 0}, 1).code(), Code::kFailedPrecondition) << ranks;
  }
}

TEST_F(PlansTest, refuses_plans_that_are_too_large_for_a_proof) {
  const Flawed large{.ranks = 5, .channel = kNoChannel, .repeats = program::kMaxSteps};
  const Status status = verify(large, 1);
  EXPECT_EQ(status.code(), Code::kUnsupported);
  EXPECT_EQ(status.text(),
            "the plan of flawed for broadcast cannot be proved on 5 ranks: an exact proof handles up to 4194304 sends "
            "and receives of all ranks, and there are more; a collective with a root has no rotation; choose another "
            "algorithm, or set check.plans to false if 'tutti plan verify --collective broadcast --algorithm flawed "
            "--ranks 5' finds the plan right");
  EXPECT_TRUE(verify(large, 1, false).ok()) << "check.plans is off";
}

}  // namespace
}  // namespace tutti::test
