// SPDX-License-Identifier: Apache-2.0
// The plans that a communicator proves before it runs them, and its messages about all remaining plans.
#include "backend/plans.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "log/log.h"
#include "tutti/sdk/plan_builder.h"
#include "unit/plan_support.h"

namespace tutti::test {
namespace {

using backend::Plans;
using sdk::Buffer;
using sdk::PlanBuilder;
using testing::HasSubstr;
using testing::SizeIs;

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
  void SetUp() override {
    file_ = fmt::format("{}/tutti-plans-{}.log", testing::TempDir(), getpid());
    ASSERT_TRUE(log::configure(log::Level::kWarn, file_).ok());
  }
  void TearDown() override {
    ASSERT_TRUE(log::configure(log::Level::kWarn, "").ok());
    std::filesystem::remove(file_);
  }

  Status verify(const Flawed& flawed, uint32_t channels, uint32_t rank = 0, int times = 1) {
    tuner::Choices choices;
    program::Instance instance(const_cast<Flawed*>(&flawed), [](void*) {});
    choices.algorithms.emplace_back(program::AlgorithmPlugin{"flawed", &kOps, nullptr}, std::move(instance));
    const Plans plans({.rank = rank, .rank_count = flawed.ranks}, choices);
    Status status;
    for (int i = 0; i < times; ++i) {
      const auto root = static_cast<uint32_t>(i);
      status = plans.verify({.algorithm = 0, .channels = channels}, Collective::kBroadcast, root, false, 2);
    }
    return status;
  }

  std::vector<std::string> warnings() const {
    std::ifstream in(file_);
    std::vector<std::string> lines;
    for (std::string line; std::getline(in, line);) lines.push_back(line);
    return lines;
  }

  static constexpr tutti_algorithm_ops kOps = {sizeof(tutti_algorithm_ops), 0,          nullptr, nullptr, nullptr,
                                               [](void*) { return 4u; },    variant_of, plan_of, nullptr, nullptr};
  std::string file_;
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

TEST_F(PlansTest, proves_hundreds_of_ranks) {
  for (const uint32_t ranks : {65u, 300u, backend::kMaxProvedRanks}) {
    EXPECT_TRUE(verify({.ranks = ranks, .channel = kNoChannel}, 1).ok()) << ranks;
    EXPECT_EQ(verify({.ranks = ranks, .channel = 0}, 1).code(), Code::kFailedPrecondition) << ranks;
  }
  EXPECT_THAT(warnings(), SizeIs(0));
}

TEST_F(PlansTest, says_once_that_more_ranks_run_without_a_proof) {
  EXPECT_TRUE(verify({.ranks = backend::kMaxProvedRanks + 1}, 2, 0, 3).ok());
  ASSERT_THAT(warnings(), SizeIs(1));
  EXPECT_THAT(warnings()[0], HasSubstr("the plan of flawed for broadcast runs without a proof: a proof handles up to "
                                       "1024 ranks, not 1025; prove it ahead of the job with 'tutti plan verify "
                                       "--collective broadcast --algorithm flawed --ranks 1025'"));
}

TEST_F(PlansTest, says_so_on_rank_0_only) {
  EXPECT_TRUE(verify({.ranks = backend::kMaxProvedRanks + 1}, 1, 1).ok());
  EXPECT_THAT(warnings(), SizeIs(0));
}

TEST_F(PlansTest, says_once_that_plans_with_more_messages_run_without_a_proof) {
  const Flawed large{.ranks = 5, .channel = 0, .repeats = program::kMaxSteps};
  EXPECT_TRUE(verify(large, 1, 0, 2).ok());
  ASSERT_THAT(warnings(), SizeIs(1));
  EXPECT_THAT(warnings()[0], HasSubstr("a proof handles up to 4194304 sends and receives of all ranks"));
}

}  // namespace
}  // namespace tutti::test
