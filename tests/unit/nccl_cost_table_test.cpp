// SPDX-License-Identifier: Apache-2.0
// The cost table of NCCL's tuner plugins: what a changed, bad or unchanged cell does to the candidates.
#include "tuner-nccl/cost_table.h"

#include <gtest/gtest.h>

#include <limits>
#include <string_view>
#include <vector>

namespace tutti::tuner_nccl {
namespace {

tutti_candidate candidate(std::string_view algorithm, std::string_view protocol, double us) {
  tutti_candidate made{};
  made.algorithm = {algorithm.data(), algorithm.size()};
  made.protocol = {protocol.data(), protocol.size()};
  made.predicted_us = us;
  made.max_channels = 4;
  made.channels = 2;
  return made;
}

constexpr std::size_t kTreeLl = 0;
constexpr std::size_t kRingSimple = 5;

std::vector<tutti_candidate> sample() {
  return {candidate("ring", "simple", 10), candidate("ring", "simple", 12), candidate("tree", "ll", 20),
          candidate("hier", "simple", 30), candidate("ring", "ll", -1)};
}

CostTable fill_from(std::vector<tutti_candidate>& list) {
  const auto pointers = sdk::pointers_to(list);
  return fill(sdk::Candidates(pointers));
}

void apply_to(std::vector<tutti_candidate>& list, const CostTable& before, const CostTable& after, int channels) {
  const auto pointers = sdk::pointers_to(list);
  apply(before, after, channels, sdk::Candidates(pointers));
}

TEST(NcclCostTable, CellsHoldTheSmallestTime) {
  auto candidates = sample();
  const CostTable table = fill_from(candidates);
  for (std::size_t cell = 0; cell < table.size(); ++cell) {
    const float expected = cell == kRingSimple ? 10.0F : cell == kTreeLl ? 20.0F : kIgnored;
    EXPECT_EQ(table[cell], expected) << cell;
  }
}

TEST(NcclCostTable, UnchangedTableLeavesTheChoice) {
  auto candidates = sample();
  const CostTable table = fill_from(candidates);
  apply_to(candidates, table, table, 0);
  EXPECT_EQ(candidates[1].predicted_us, 12);
  EXPECT_EQ(candidates[0].predicted_us, 10);
  EXPECT_EQ(candidates[0].channels, 2U);
}

TEST(NcclCostTable, ForcedCellWinsAndChannelsAreLimited) {
  auto candidates = sample();
  const CostTable before = fill_from(candidates);
  CostTable after = before;
  after[kTreeLl] = 0;
  apply_to(candidates, before, after, 64);
  EXPECT_EQ(candidates[2].predicted_us, 0);
  EXPECT_EQ(candidates[2].channels, 4U);
  EXPECT_EQ(candidates[3].channels, 2U);  // NCCL has no name for it
  EXPECT_EQ(candidates[4].predicted_us, -1);
}

TEST(NcclCostTable, BadCellsExcludeTheirCandidates) {
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), -7.0F, kIgnored}) {
    auto candidates = sample();
    const CostTable before = fill_from(candidates);
    CostTable after = before;
    after[kRingSimple] = bad;
    apply_to(candidates, before, after, -3);
    EXPECT_EQ(candidates[0].predicted_us, -1) << bad;
    EXPECT_EQ(candidates[1].predicted_us, -1) << bad;
    EXPECT_EQ(candidates[2].predicted_us, 20) << bad;
    EXPECT_EQ(candidates[0].channels, 2U) << bad;
  }
}

TEST(NcclCostTable, IgnoredCellsCannotBeRevived) {
  auto candidates = sample();
  const CostTable before = fill_from(candidates);
  CostTable after = before;
  after[3] = 0;  // ring with LL, which the host excludes
  apply_to(candidates, before, after, 0);
  EXPECT_EQ(candidates[4].predicted_us, -1);
}

}  // namespace
}  // namespace tutti::tuner_nccl
