// SPDX-License-Identifier: Apache-2.0
// The standby hub: the process of the hub dies, is stopped, or ends. The ranks go on, or learn which rank is lost.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <condition_variable>
#include <mutex>
#include <sstream>

#include "bootstrap/lineup.h"
#include "unit/bootstrap_group.h"

namespace tutti::bootstrap {
namespace {

using testing::HasSubstr;

std::string text_of(const Status& status) {
  return std::string(status.text());
}

/// Makes the id for all, and stays.
TEST(DISABLED_Child, Serves) {
  say_to_parent(make_id().to_string());
  wait_for_parent();
}

/// Makes the id and joins as rank 0 of as many as it is told. Leaves when it is released.
TEST(DISABLED_Child, ServesAsRankZero) {
  const UniqueId id = make_id();
  say_to_parent(id.to_string());
  const auto mine = Bootstrap::join(id, 0, std::stoi(child_argument()), soon());
  ASSERT_TRUE(mine.ok()) << mine.status().to_string();
  say_to_parent("joined");
  wait_for_parent();
  mine.value()->announce({5, "has done call 5", {}});
}

/// Joins as a rank of an id: "rank count id". Makes barriers until one fails, and tells the text.
TEST(DISABLED_Child, MakesBarriers) {
  std::istringstream argument(child_argument());
  int rank = 0, count = 0;
  std::string meeting;
  argument >> rank >> count >> meeting;
  const auto id = UniqueId::from_string(meeting);
  ASSERT_TRUE(id.ok());
  const auto mine = Bootstrap::join(*id, rank, count, soon());
  ASSERT_TRUE(mine.ok()) << mine.status().to_string();
  say_to_parent("joined");
  Status status;
  while (status.ok()) status = mine.value()->barrier(soon());
  say_to_parent(text_of(status));
  wait_for_parent();
}

std::string rank_of(int rank, int count, const std::string& id) {
  return std::to_string(rank) + ' ' + std::to_string(count) + ' ' + id;
}

/// Ranks of an id in this process, from `first` on. Ranks of other processes join at the same time.
Group join_from(int first, int count, const UniqueId& id) {
  Group group(static_cast<size_t>(count - first));
  in_ranks(count - first, [&](int i) {
    auto joined = Bootstrap::join(id, first + i, count, soon());
    EXPECT_TRUE(joined.ok()) << joined.status().to_string();
    if (joined.ok()) group[static_cast<size_t>(i)] = *std::move(joined);
  });
  return group;
}

/// A child with rank 0 and the hub, and the other ranks here.
struct Job {
  explicit Job(int count)
      : first("DISABLED_Child.ServesAsRankZero", std::to_string(count)),
        id(UniqueId::from_string(first.hear()).value()),
        others(join_from(1, count, id)) {
    EXPECT_EQ(first.hear(), "joined");
  }
  Child first;
  UniqueId id;
  Group others;
};

TEST(LineupTest, PrefersAnotherHostThenTheLowestRank) {
  const Place hub = {"a", "a pid 1", 1};
  const Place near = {"a", "a pid 2", 2};
  const Place far = {"b", "b pid 3", 3};
  EXPECT_EQ(line_up(hub, std::vector{hub, hub}).standby_rank(), -1);
  EXPECT_EQ(line_up(hub, std::vector{hub, near, near}).standby_rank(), 1);
  EXPECT_EQ(line_up(hub, std::vector{hub, near, far, far}).standby_rank(), 2);
  EXPECT_EQ(line_up(hub, std::vector{far, near, hub}).standby_rank(), 0);
  const Lineup lineup = line_up(hub, std::vector{hub, far, hub, far});
  EXPECT_EQ(to_text(lineup.primary), "ranks 0,2 (a pid 1)");
  EXPECT_EQ(to_text(lineup.standby), "ranks 1,3 (b pid 3)");
  EXPECT_EQ(to_text(line_up(hub, std::vector{far}).primary), "no rank (a pid 1)");
  const auto decoded = decode_lineup(encode(lineup), 4);
  ASSERT_TRUE(decoded.ok());
  EXPECT_EQ(decoded->primary.ranks, lineup.primary.ranks);
  EXPECT_EQ(decoded->standby.ranks, lineup.standby.ranks);
  EXPECT_EQ(decoded->standby.origin, "b pid 3");
  EXPECT_FALSE(decode_lineup(encode(lineup), 3).ok());
  EXPECT_FALSE(decode_lineup(to_bytes("nonsense"), 4).ok());
}

TEST(Standby, DeathOfTheHubsProcessNamesItsRank) {
  Job job(4);
  std::vector<std::future<FailureReport>> failures;
  for (const auto& member : job.others) failures.push_back(next_failure(*member));
  auto waiting = std::async(std::launch::async, [&] { return job.others[1]->barrier(soon()); });
  job.first.kill();
  const base::Time killed = base::Clock::now();
  for (auto& failure : failures) {
    const FailureReport report = wait_for(failure);
    EXPECT_EQ(report.kind, FailureKind::kPeerLost);
    EXPECT_EQ(report.rank, 0);
    EXPECT_THAT(report.text,
                testing::MatchesRegex("rank 0 \\(.* pid .*\\) is lost: its process ended without leaving"));
  }
  EXPECT_LT(base::Clock::now() - killed, std::chrono::seconds(5));
  EXPECT_THAT(text_of(waiting.get()), HasSubstr("rank 0"));
  EXPECT_THAT(texts_of(job.others[0]->query({}, soon())), testing::ElementsAre("lost", "", "", ""));
}

TEST(Standby, DeathOfTheStandbysProcessNamesItsRank) {
  const UniqueId id = make_id();
  Child child("DISABLED_Child.MakesBarriers", rank_of(1, 3, id.to_string()));
  auto last = std::async(std::launch::async, [&] { return Bootstrap::join(id, 2, 3, soon()); });
  const auto first = Bootstrap::join(id, 0, 3, soon());
  ASSERT_TRUE(first.ok()) << first.status().to_string();
  const auto other = last.get();
  EXPECT_EQ(child.hear(), "joined");
  auto failure = next_failure(**first);
  child.kill();
  EXPECT_THAT(wait_for(failure).text, HasSubstr("rank 1"));
  EXPECT_THAT(text_of(other.value()->barrier(soon())), HasSubstr("its process ended without leaving"));
}

/// The hub's process has no rank: no rank is lost with it.
void expect_standby_serves(const std::function<void(Child&)>& end) {
  Child child("DISABLED_Child.Serves", "");
  const auto id = UniqueId::from_string(child.hear());
  ASSERT_TRUE(id.ok()) << id.status().to_string();
  const Group group = make_group(*id, 3);
  in_ranks(3, [&](int rank) {
    Bootstrap& mine = *group[static_cast<size_t>(rank)];
    for (int call = 0; call < 20; ++call) {
      if (rank == 0 && call == 10) end(child);
      const auto gathered = mine.all_gather(to_bytes(std::to_string(100 * call + rank)), soon());
      ASSERT_TRUE(gathered.ok()) << gathered.status().to_string();
      for (int other = 0; other < 3; ++other)
        EXPECT_EQ(to_text((*gathered)[static_cast<size_t>(other)]), std::to_string(100 * call + other));
    }
  });
  EXPECT_THAT(texts_of(group[1]->query({}, soon())), testing::ElementsAre("", "", ""));
  for (const auto& member : group) EXPECT_FALSE(member->failure());
  group[2]->post_abort("enough");
  EXPECT_EQ(group[0]->barrier(soon()).code(), Code::kAborted);
}

TEST(Standby, ServesWhenALauncherDies) {
  expect_standby_serves([](Child& child) { child.kill(); });
}

TEST(Standby, ServesWhenALauncherEnds) {
  expect_standby_serves([](Child& child) {
    child.release();
    EXPECT_EQ(child.wait(), 0);
  });
}

/// Rank 0 leaves and its process ends in good order; later departures and deaths are told all the same.
TEST(Standby, TellsOfDeparturesAfterTheHubHasEnded) {
  Job job(4);
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<int> departed;
  job.others[0]->set_callbacks({.on_failure = {}, .answer = {}, .on_departure = [&](const Departure& departure) {
                                  const std::lock_guard lock(mutex);
                                  departed.push_back(departure.rank);
                                  changed.notify_all();
                                }});
  const auto wait_for_departures = [&](size_t count) {
    std::unique_lock lock(mutex);
    changed.wait_for(lock, std::chrono::seconds(60), [&] { return departed.size() >= count; });
  };
  job.first.release();
  EXPECT_EQ(job.first.wait(), 0);
  wait_for_departures(1);
  job.others[1]->announce({7, "has done call 7", {}});
  wait_for_departures(2);
  const std::lock_guard lock(mutex);
  EXPECT_EQ(departed, (std::vector{0, 2}));
  EXPECT_FALSE(job.others[0]->failure());
  EXPECT_THAT(text_of(job.others[2]->barrier(soon())), HasSubstr("has left"));
  EXPECT_THAT(texts_of(job.others[0]->query({}, soon())), testing::ElementsAre("left", "", "left", ""));
}

TEST(Standby, AnswersWhileTheHubIsStopped) {
  Job job(3);
  job.others[0]->set_callbacks(
      {.on_failure = {}, .answer = [](std::span<const std::byte>) { return to_bytes("works"); }, .on_departure = {}});
  job.first.stop();
  const auto answers = job.others[1]->query({}, base::time_in(base::Milliseconds(200)));
  ASSERT_TRUE(answers.ok()) << answers.status().to_string();
  EXPECT_THAT(texts_of(answers), testing::ElementsAre("no answer", "works", ""));
  const Status late = job.others[1]->barrier(base::time_in(base::Milliseconds(200)));
  EXPECT_EQ(late.code(), Code::kTimeout);
  EXPECT_THAT(text_of(late), HasSubstr("barrier: ranks 0,1 of 3 did not call it within 200 ms"));
  EXPECT_FALSE(job.others[0]->failure());
  job.first.resume();
}

/// Two ranks that do not share the hub's process: each is told of the other's death by the hub that is left.
TEST(Standby, ServesRanksInManyProcesses) {
  Child serving("DISABLED_Child.Serves", "");
  const std::string id = serving.hear();
  std::vector<std::unique_ptr<Child>> ranks;
  for (int rank = 0; rank < 4; ++rank)
    ranks.push_back(std::make_unique<Child>("DISABLED_Child.MakesBarriers", rank_of(rank, 4, id)));
  for (const auto& rank : ranks) EXPECT_EQ(rank->hear(), "joined");
  serving.kill();
  ranks[2]->kill();
  for (const size_t rank : {0u, 1u, 3u}) EXPECT_THAT(ranks[rank]->hear(), HasSubstr("rank 2 ("));
}

}  // namespace
}  // namespace tutti::bootstrap
