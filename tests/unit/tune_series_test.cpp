// SPDX-License-Identifier: Apache-2.0
// The measurements that `tutti tune` leaves out.
#include <gmock/gmock.h>

#include "tools/tune/series.h"

namespace tutti::test {
namespace {

using tune::Series;

Series series_of(size_t sizes) {
  return Series("all_reduce", std::vector<check::Problem>(sizes));
}

TEST(TuneSeries, EndsAfterTwoSlowerStepsToMoreChannels) {
  Series series = series_of(2);
  series.add(0, {0, 1}, 10);
  series.add(0, {0, 2}, 12);
  EXPECT_TRUE(series.worth(0, {0, 4}));
  series.add(0, {0, 4}, 14);
  EXPECT_FALSE(series.worth(0, {0, 8}));
  EXPECT_FALSE(series.worth(0, {0, 16}));
  EXPECT_TRUE(series.worth(0, {1, 8})) << "another candidate's channels say nothing";
  EXPECT_TRUE(series.worth(1, {0, 8})) << "nor do those at another size";
}

TEST(TuneSeries, AStepWithinTheNoiseIsNoSlowerOne) {
  Series series = series_of(1);
  series.add(0, {0, 1}, 10);
  series.add(0, {0, 2}, 12);
  series.add(0, {0, 4}, 12.3);
  series.add(0, {0, 8}, 15);
  EXPECT_TRUE(series.worth(0, {0, 16}));
}

TEST(TuneSeries, OfThoseThatAreAsFastTheOneWithTheFewestChannelsIsTaken) {
  Series series = series_of(1);
  series.add(0, {0, 32}, 10);
  series.add(0, {0, 8}, 10.06);
  series.add(0, {1, 4}, 10.09);
  series.add(0, {1, 1}, 10.2);
  EXPECT_EQ(series.thriftiest(0).run, (tune::Run{1, 4}));
}

TEST(TuneSeries, ABorderIsWhereTimesCross) {
  check::Problem problem;
  problem.type = DataType::kUint8;
  problem.rank_count = 2;
  std::vector<check::Problem> problems(2, problem);
  problems[0].count = 1000;
  problems[1].count = 4000;
  Series series("all_reduce", problems);
  const tune::Run small{0, 1};
  const tune::Run large{1, 1};
  series.add(0, small, 10);
  series.add(1, large, 20);
  EXPECT_EQ(series.border(0, small, 1, large), 2000u) << "half way: nothing else is known";
  series.add(0, large, 12);
  EXPECT_EQ(series.border(0, small, 1, large), 2000u);
  series.add(1, small, 24);
  EXPECT_EQ(series.border(0, small, 1, large), 2000u) << "2 ahead, then 4 behind: a third of the way";
  series.add(1, small, 38);
  EXPECT_EQ(series.border(0, small, 1, large), 1300u);
  series.add(1, small, 20);
  EXPECT_EQ(series.border(0, small, 1, large), 3999u) << "what was measured at 4000 holds there";
  series.add(0, large, 10);
  EXPECT_EQ(series.border(0, small, 1, large), 2000u) << "as fast at both";
}

TEST(TuneSeries, WhoIsFarBehindAndFallsFurtherIsOut) {
  Series series = series_of(5);
  for (size_t size = 0; size < 5; ++size) series.add(size, {0, 1}, 10);
  ASSERT_TRUE(series.worth(0, {1, 1}));
  series.add(0, {1, 1}, 20);
  ASSERT_TRUE(series.worth(1, {1, 1}));
  series.add(1, {1, 1}, 40);
  for (size_t size = 2; size < 5; ++size) EXPECT_FALSE(series.worth(size, {1, 1})) << size;
}

TEST(TuneSeries, ARunWhoseTimeStaysFlatIsNotOutForGood) {
  Series series = series_of(4);
  const double best_us[] = {2.65, 2.6, 9, 27};
  const double flat_us[] = {7.9, 8, 8.2, 16.6};
  for (size_t size = 0; size < 4; ++size) series.add(size, {0, 1}, best_us[size]);
  series.add(0, {1, 1}, flat_us[0]);
  ASSERT_TRUE(series.worth(1, {1, 1}));
  series.add(1, {1, 1}, flat_us[1]);
  EXPECT_FALSE(series.worth(2, {1, 1})) << "more than three times as slow as the fastest";
  ASSERT_TRUE(series.worth(3, {1, 1})) << "the time did not grow from the first size to the second";
  series.add(3, {1, 1}, flat_us[3]);
  EXPECT_EQ(series.thriftiest(3).run, (tune::Run{1, 1}));
}

TEST(TuneSeries, WhoCatchesUpSitsOutOneSize) {
  Series series = series_of(4);
  for (size_t size = 0; size < 4; ++size) series.add(size, {0, 1}, 10);
  series.add(0, {1, 1}, 80);
  EXPECT_FALSE(series.worth(1, {1, 1})) << "eight times the best, and nothing says where it goes";
  ASSERT_TRUE(series.worth(2, {1, 1}));
  series.add(2, {1, 1}, 40);
  EXPECT_FALSE(series.worth(3, {1, 1}));
}

TEST(TuneSeries, WhatIsWrongGoesAloneAndWhatCannotRunTakesMoreChannelsAlong) {
  Series series = series_of(2);
  series.drop({0, 2});
  series.drop_from({1, 2});
  EXPECT_TRUE(series.worth(1, {0, 1}));
  EXPECT_FALSE(series.worth(1, {0, 2}));
  EXPECT_TRUE(series.worth(1, {0, 4}));
  EXPECT_TRUE(series.worth(1, {1, 1}));
  EXPECT_FALSE(series.worth(1, {1, 2}));
  EXPECT_FALSE(series.worth(1, {1, 4}));
}

TEST(TuneSeries, RanksWhatWasMeasured) {
  Series series = series_of(1);
  series.add(0, {2, 1}, 30);
  series.add(0, {0, 4}, 10);
  series.add(0, {1, 1}, 20);
  const auto ranked = series.ranked(0);
  ASSERT_EQ(ranked.size(), 3u);
  EXPECT_EQ(ranked.front().run, (tune::Run{0, 4}));
  EXPECT_EQ(ranked.back().time_us, 30);
  EXPECT_EQ(series.sample_count(), 3u);
}

}  // namespace
}  // namespace tutti::test
