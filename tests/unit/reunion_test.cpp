// SPDX-License-Identifier: Apache-2.0
// Ranks that meet again, also after a meeting that failed.
#include "bootstrap/reunion.h"

#include <gtest/gtest.h>

#include <array>
#include <barrier>
#include <memory>
#include <vector>

#include "unit/bootstrap_group.h"

namespace tutti::bootstrap {
namespace {

constexpr base::Milliseconds kLoss{60000};

/// Runs `body` in one thread for each of 3 ranks that know the places of all.
void in_ranks_that_meet(const std::function<void(int rank, Reunion& reunion, std::barrier<>& all)>& body) {
  constexpr int kRanks = 3;
  std::barrier all(kRanks);
  std::vector<UniqueId> places(kRanks);
  in_ranks(kRanks, [&](int rank) {
    const auto reunion = Reunion::open(rank, "=lo");
    ASSERT_TRUE(reunion.ok()) << reunion.status().to_string();
    places[static_cast<size_t>(rank)] = (*reunion)->place();
    all.arrive_and_wait();
    (*reunion)->learn(places);
    body(rank, **reunion, all);
    all.arrive_and_wait();  // no place closes before
  });
}

TEST(Reunion, MeetsAgainAtNewPlaces) {
  in_ranks_that_meet([](int, Reunion& reunion, std::barrier<>&) {
    const std::array members = {0, 1, 2};
    for (int meeting = 0; meeting < 5; ++meeting) {  // more than the ranks have places at first
      const auto met = reunion.meet(members, soon(), kLoss);
      ASSERT_TRUE(met.ok()) << met.status().to_string();
      const Status renewed = reunion.renew(**met, members, soon());
      ASSERT_TRUE(renewed.ok()) << renewed.to_string();
    }
  });
}

/// Rank 2 leaves between the meeting and the renewal. The other ranks then meet at the place of rank 1, which is the
/// earlier one.
TEST(Reunion, MeetsAgainAfterARenewalThatFailed) {
  in_ranks_that_meet([](int rank, Reunion& reunion, std::barrier<>& all) {
    const std::array everyone = {0, 1, 2};
    const std::array remaining = {0, 1};
    {
      const auto met = reunion.meet(everyone, soon(), kLoss);
      ASSERT_TRUE(met.ok()) << met.status().to_string();
      all.arrive_and_wait();
      if (rank == 2) return;
      EXPECT_FALSE(reunion.renew(**met, everyone, soon()).ok());
    }
    for (int meeting = 0; meeting < 3; ++meeting) {
      const auto met = reunion.meet(remaining, soon(), kLoss);
      ASSERT_TRUE(met.ok()) << met.status().to_string();
      const Status renewed = reunion.renew(**met, remaining, soon());
      ASSERT_TRUE(renewed.ok()) << renewed.to_string();
    }
  });
}

}  // namespace
}  // namespace tutti::bootstrap
