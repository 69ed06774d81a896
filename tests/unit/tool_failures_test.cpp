// SPDX-License-Identifier: Apache-2.0
// How the tool says why its ranks failed: each text once, with its ranks, the cause before its consequences.
#include "tools/failures.h"

#include <gmock/gmock.h>

#include <set>
#include <string>
#include <thread>
#include <vector>

namespace tutti::tools {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

Failure failure(int rank, int time, const char* text) {
  return {rank, std::chrono::steady_clock::time_point(std::chrono::microseconds(time)), text};
}

TEST(Failures, OneTextIsOneLine) {
  EXPECT_THAT(lines_of({failure(3, 4, "no"), failure(0, 2, "no"), failure(2, 1, "no"), failure(1, 3, "no")}),
              ElementsAre("ranks 0-3: no"));
  EXPECT_THAT(lines_of({failure(2, 0, "no")}), ElementsAre("rank 2: no"));
  EXPECT_THAT(lines_of({}), IsEmpty());
}

TEST(Failures, TheFirstTextIsThatOfTheFirstRankToFail) {
  EXPECT_THAT(lines_of({failure(0, 50, "rank 2 is lost"), failure(1, 30, "rank 2 is lost"), failure(2, 10, "the cause"),
                        failure(3, 40, "else")}),
              ElementsAre("rank 2: the cause", "ranks 0,1: rank 2 is lost", "rank 3: else"));
}

TEST(Failures, ARankThatIsToldHasTheCauseOfTheTeller) {
  EXPECT_THAT(lines_of({failure(1, 10, "not found: no plugin"), failure(0, 20, "not found: rank 1: no plugin"),
                        failure(2, 30, "not found: rank 1: no network")}),
              ElementsAre("ranks 0,1: not found: rank 1: no plugin", "rank 2: not found: rank 1: no network"));
  EXPECT_THAT(lines_of({failure(0, 1, "lost: rank 2 (pid 7): gone"), failure(1, 2, "lost: rank 2: gone"),
                        failure(2, 3, "lost: rank ")}),
              ElementsAre("rank 0: lost: rank 2 (pid 7): gone", "rank 1: lost: rank 2: gone", "rank 2: lost: rank "));
}

TEST(Failures, TheTellerIsNamedWhoeverFailsLast) {
  EXPECT_THAT(lines_of({failure(0, 10, "not found: rank 1: no plugin"), failure(1, 20, "not found: no plugin")}),
              ElementsAre("ranks 0,1: not found: rank 1: no plugin"));
}

TEST(LoggedLines, BelongToTheRankThatWroteThemFirst) {
  LoggedLines lines;
  EXPECT_TRUE(lines.claim(1, "a"));
  EXPECT_FALSE(lines.claim(0, "a"));
  EXPECT_FALSE(lines.claim(2, "a"));
  EXPECT_TRUE(lines.claim(1, "a"));
  EXPECT_TRUE(lines.claim(0, "b"));
  EXPECT_FALSE(lines.claim(1, "b"));
}

TEST(LoggedLines, HaveOneOwnerWhoeverIsFaster) {
  LoggedLines lines;
  constexpr int kRanks = 4;
  constexpr int kLines = 300;
  std::vector<std::vector<int>> claimed(kRanks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      for (int i = 0; i < kLines; ++i) {
        if (lines.claim(rank, "line " + std::to_string(i))) claimed[static_cast<size_t>(rank)].push_back(i);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::multiset<int> all;
  for (const auto& own : claimed) all.insert(own.begin(), own.end());
  EXPECT_EQ(all.size(), size_t{kLines});
  for (int i = 0; i < kLines; ++i) EXPECT_EQ(all.count(i), 1u);
}

TEST(LoggedLines, AreAllWrittenWhenThereAreTooMany) {
  LoggedLines lines;
  for (int i = 0; i < 2000; ++i) EXPECT_TRUE(lines.claim(0, std::to_string(i)));
  EXPECT_TRUE(lines.claim(1, "another"));
}

}  // namespace
}  // namespace tutti::tools
