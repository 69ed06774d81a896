// SPDX-License-Identifier: Apache-2.0
// Ranks that meet without the remaining ranks, without the hub of their communicator, and after a failed attempt. Ranks
// are threads; the result is an id, so no GPU is needed.
#include "nccl/meeting.h"

#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <numeric>

#include "unit/bootstrap_group.h"

namespace tutti::nccl {
namespace {

using bootstrap::Bootstrap;

const Rendezvous kRendezvous{"", std::chrono::seconds(20)};

/// A communicator's ranks as far as meeting goes.
struct Ranks {
  explicit Ranks(int count) : doors(static_cast<size_t>(count)) {
    const bootstrap::Group group = bootstrap::make_group(count);
    bootstrap::in_ranks(count, [&](int rank) {
      Bootstrap& hub = *group[static_cast<size_t>(rank)];
      const Gather gather = [&](std::span<const std::byte> mine) { return hub.all_gather(mine, bootstrap::soon()); };
      const Status opened = doors[static_cast<size_t>(rank)].open(gather, rank, kRendezvous);
      EXPECT_TRUE(opened.ok()) << opened.to_string();
    });
  }  // the hub ends here: it is not needed to meet again

  /// All members meet; each with the color and key that `wish` gives it. Their seats, by rank.
  std::map<int, Seat> meet(const std::vector<int>& members, const std::function<std::pair<int, int>(int)>& wish) {
    std::vector<Seat> seats(members.size());
    bootstrap::in_ranks(static_cast<int>(members.size()), [&](int i) {
      const auto [color, key] = wish(members[static_cast<size_t>(i)]);
      const auto choose = [&](const Gather& gather, size_t place) -> Status {
        EXPECT_EQ(place, static_cast<size_t>(i));
        TUTTI_ASSIGN(seats[place], take_seat(gather, place, color, key, kRendezvous));
        return {};
      };
      const Status met = doors[static_cast<size_t>(members[static_cast<size_t>(i)])].meet(members, kRendezvous, choose);
      EXPECT_TRUE(met.ok()) << met.to_string();
    });
    std::map<int, Seat> by_rank;
    for (size_t i = 0; i < members.size(); ++i) by_rank[members[i]] = seats[i];
    return by_rank;
  }

  std::vector<Doors> doors;
};

/// As many ranks as there are meet at the id and greet each other.
void expect_usable(const std::vector<Seat>& seats) {
  bootstrap::in_ranks(static_cast<int>(seats.size()), [&](int i) {
    const Seat& seat = seats[static_cast<size_t>(i)];
    auto joined = Bootstrap::join(seat.id, seat.rank, seat.size, bootstrap::soon());
    ASSERT_TRUE(joined.ok()) << joined.status().to_string();
    EXPECT_TRUE((*joined)->barrier(bootstrap::soon()).ok());
  });
}

TEST(Meeting, SomeRanksShrinkAgainAndAgain) {
  Ranks ranks(5);
  const auto all_in_one = [](int rank) { return std::pair(0, rank); };
  for (const std::vector<int>& members : {std::vector{1, 2, 4}, {1, 4}, {1, 4}}) {
    const auto seats = ranks.meet(members, all_in_one);
    std::vector<Seat> present;
    for (size_t i = 0; i < members.size(); ++i) {
      present.push_back(seats.at(members[i]));
      EXPECT_EQ(present[i].rank, static_cast<int>(i));
      EXPECT_EQ(present[i].size, static_cast<int>(members.size()));
      EXPECT_EQ(present[i].id, present[0].id);
    }
    expect_usable(present);
  }
}

TEST(Meeting, ColorsPartAndKeysOrder) {
  Ranks ranks(5);
  // 0 and 3 in reversed order, 1 and 4 with equal keys, 2 joins none.
  const auto wish = [](int rank) { return std::pair(rank == 2 ? -1 : rank % 3, rank % 3 == 0 ? -rank : 7); };
  const auto seats = ranks.meet({0, 1, 2, 3, 4}, wish);
  EXPECT_EQ(seats.at(2).size, 0);
  EXPECT_EQ(seats.at(3).rank, 0);
  EXPECT_EQ(seats.at(0).rank, 1);
  EXPECT_EQ(seats.at(1).rank, 0);
  EXPECT_EQ(seats.at(4).rank, 1);
  EXPECT_NE(seats.at(0).id, seats.at(1).id);
  expect_usable({seats.at(0), seats.at(3)});
  expect_usable({seats.at(1), seats.at(4)});
}

TEST(Meeting, AfterOneThatFailedAtTheNextDoor) {
  Ranks ranks(4);
  const Rendezvous impatient{"", std::chrono::milliseconds(300)};
  // Rank 3 is expected and does not come.
  bootstrap::in_ranks(3, [&](int rank) {
    const std::vector<int> members{0, 1, 2, 3};
    const auto nothing = [](const Gather&, size_t) { return Status(); };
    const Status met = ranks.doors[static_cast<size_t>(rank)].meet(members, impatient, nothing);
    EXPECT_FALSE(met.ok());
    EXPECT_NE(met.to_string().find('3'), std::string::npos) << met.to_string();
  });
  const auto seats = ranks.meet({0, 1, 2}, [](int rank) { return std::pair(0, -rank); });
  EXPECT_EQ(seats.at(2).rank, 0);
  expect_usable({seats.at(0), seats.at(1), seats.at(2)});
}

TEST(Meeting, WhoeverWasLeftOutIsTold) {
  Ranks ranks(3);
  ranks.meet({0, 1}, [](int rank) { return std::pair(0, rank); });
  // Rank 2 knows doors that are closed now.
  const Rendezvous impatient{"", std::chrono::milliseconds(300)};
  const std::vector<int> members{0, 1, 2};
  const Status met = ranks.doors[2].meet(members, impatient, [](const Gather&, size_t) { return Status(); });
  EXPECT_FALSE(met.ok());
}

}  // namespace
}  // namespace tutti::nccl
