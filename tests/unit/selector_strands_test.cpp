// SPDX-License-Identifier: Apache-2.0
// Plans with strands as candidates on GPUs.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <functional>
#include <utility>

#include "backend/limits.h"
#include "program/file/algorithm.h"
#include "tutti/sdk/plan_builder.h"
#include "unit/selector_support.h"

namespace tutti::test {
namespace {

using testing::HasSubstr;
using testing::Not;
using tuner::Selector;

/// Strands on GPUs.
class SelectorStrandsTest : public SelectorTest {
 protected:
  /// One algorithm, of which rank r has `strands(r)` strands, and a protocol that runs strands.
  tuner::Choices choices_of(const std::function<uint32_t(uint32_t rank)>& strands) {
    program::PlanFile file{"strands", "", {}};
    file.plans = write_plans(TUTTI_ALL_REDUCE, kRanks, 1, [&](sdk::PlanBuilder& plan, uint32_t rank) {
      for (uint32_t i = 0; i < strands(rank); ++i) {
        if (i > 0) plan.strand();
        plan.step().own(sdk::Buffer::kInput, 0);
      }
    });
    auto made = program::algorithm_of(std::move(file), "strands", 1, topology_of(split(kRanks, 1)));
    tuner::Choices on_gpus = choices(kRanks, {});
    on_gpus.algorithms.emplace_back(made.plugin, std::move(made.instance));
    on_gpus.back_end = &backend::gpu_back_end();
    on_gpus.protocols.front().properties.strands = 1;
    return on_gpus;
  }
};

/// Plans of up to 8 strands run as strands, by protocols that do so.
TEST_F(SelectorStrandsTest, says_why_strands_run_as_a_list) {
  const tuner::Question call = {Collective::kAllReduce, DataType::kFloat32, ReduceOp::kSum, kLarge, false};
  for (const uint32_t strands : {1u, 2u, 9u}) {
    tuner::Choices on_gpus = choices_of([&](uint32_t) { return strands; });
    on_gpus.protocols.push_back(protocol("plain", 0, 1, 1));
    selector_ = std::make_unique<Selector>(config_, std::move(on_gpus));
    const std::string many = "strands run as a list: kernels run up to 8 strands, and the plan of rank 0 has 9";
    const auto says = [](const std::string& text) -> testing::Matcher<std::string> {
      if (text.empty()) return Not(HasSubstr("a list"));
      return HasSubstr(text);
    };
    EXPECT_THAT(verdict(call, "strands × simple"), says(strands == 9 ? many : "")) << strands;
    const std::string none = "strands run as a list: the protocol runs no strands";
    EXPECT_THAT(verdict(call, "strands × plain"), says(strands > 1 ? none : "")) << strands;
  }
}

/// Strands wait for each other, so a GPU must hold all of them.
TEST_F(SelectorStrandsTest, says_that_gpus_have_no_room_for_strands) {
  const tuner::Question call = {Collective::kAllReduce, DataType::kFloat32, ReduceOp::kSum, kLarge, false};
  for (const uint32_t room : {0u, 2u, 3u}) {
    tuner::Choices on_gpus = choices_of([](uint32_t rank) { return rank == 1 ? 3u : 1u; });
    on_gpus.protocols.front().strand_ctas = room;
    selector_ = std::make_unique<Selector>(config_, std::move(on_gpus));
    const std::string text =
        fmt::format("strands run as a list: a plan has 3 strands, and the GPUs hold {} CTAs of a launch at once", room);
    EXPECT_EQ(verdict(call, "strands × simple").find(text) != std::string::npos, room < 3) << room;
  }
}

}  // namespace
}  // namespace tutti::test
