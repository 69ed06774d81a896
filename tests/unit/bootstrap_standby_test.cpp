// SPDX-License-Identifier: Apache-2.0
// The standby hub: the process of the hub dies, is stopped, or ends. The ranks go on, or learn which rank is lost.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <array>
#include <condition_variable>
#include <future>
#include <mutex>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "bootstrap/lineup.h"
#include "bootstrap/process.h"
#include "log/log.h"
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
  const RankProcess hub = {"a", "a pid 1", 1};
  const RankProcess near = {"a", "a pid 2", 2};
  const RankProcess far = {"b", "b pid 3", 3};
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
  const auto answers = job.others[1]->query({}, base::time_in(base::Milliseconds(2000)));
  ASSERT_TRUE(answers.ok()) << answers.status().to_string();
  EXPECT_THAT(texts_of(answers), testing::ElementsAre("no answer", "works", ""));
  const Status late = job.others[1]->barrier(base::time_in(base::Milliseconds(1000)));
  EXPECT_EQ(late.code(), Code::kTimeout);
  EXPECT_THAT(text_of(late),
              testing::ContainsRegex("barrier: ranks 0,1 of 3 did not call it within (1 s|9[0-9][0-9] ms)$"));
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

/// A hub in the process of rank 1, as far as rank 0 sees it: the test says what it knows.
class PretendedStandby {
 public:
  PretendedStandby() : listener_(base::listen_on(base::SocketAddress::parse("127.0.0.1:0").value()).value()) {}
  std::string address() const { return base::local_address(listener_).to_string(); }
  Stranger accept() const {
    pollfd readable = {.fd = listener_.get(), .events = POLLIN, .revents = 0};
    EXPECT_EQ(::poll(&readable, 1, 60000), 1);
    return Stranger(base::Fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)));
  }

 private:
  base::Fd listener_;
};

/// Rank 0 of three and the primary, in this process. The two other ranks are pretended.
struct PretendedRanks {
  PretendedRanks() : standby_rank(id), other(id) {
    Hello hello = hello_to(id, 1, 3);
    hello.process = process_token() + 1;
    standby_rank.join(id, hello);
    other.join(id, 2, 3);
  }
  void call(Operation operation, int root, const Bytes& bytes) const {
    const Header header = {
        .kind = Kind::kCall, .code = static_cast<uint16_t>(operation), .id = 1, .rank = root, .timeout_ms = 60000};
    standby_rank.say(header, bytes);
    other.say(header, {});
  }
  UniqueId id = make_id();
  Stranger standby_rank;
  Stranger other;
};

/// Rank 1 dies. The standby knows, the primary does not know yet. Rank 0 is told, and leaves. The primary tells rank 2
/// of the death, not that rank 0 has left.
TEST(Standby, ARankThatLeavesBecauseOfAFailureTellsThePrimary) {
  const PretendedRanks ranks;
  const PretendedStandby standby;
  auto joining = std::async(std::launch::async, [&] { return Bootstrap::join(ranks.id, 0, 3, soon()); });
  for (const Stranger* rank : {&ranks.standby_rank, &ranks.other})
    ASSERT_EQ(rank->hear(Kind::kReply).header.kind, Kind::kReply) << "all have joined";
  ranks.call(Operation::kBroadcast, 1, pack(std::array{to_bytes(standby.address())}));
  std::optional<Stranger> rank_0 = standby.accept();
  rank_0->admit(endpoint_of(ranks.id).value().secret);
  ranks.call(Operation::kAllGather, 0, {});
  auto mine = joining.get();
  ASSERT_TRUE(mine.ok()) << mine.status().to_string();

  ranks.other.say(
      {.kind = Kind::kCall, .code = static_cast<uint16_t>(Operation::kBarrier), .id = 2, .timeout_ms = 60000}, {});
  constexpr auto kLost = static_cast<uint16_t>(FailureKind::kPeerLost);
  rank_0->say({.kind = Kind::kFailure, .code = kLost, .rank = 1}, to_bytes("rank 1 (a pid 1) is lost"));
  EXPECT_EQ(text_of((*mine)->barrier(soon())), "rank 1 (a pid 1) is lost");
  (*mine)->announce({0, "has made no call", {}});
  auto leaving = std::async(std::launch::async, [&] { mine->reset(); });
  EXPECT_EQ(rank_0->hear(Kind::kLeave).header.kind, Kind::kLeave);
  rank_0.reset();

  for (int call = 0; call < 2; ++call) EXPECT_EQ(ranks.other.hear(Kind::kReply).header.id, 1u);
  const Frame told = ranks.other.hear();
  EXPECT_EQ(told.header.kind, Kind::kFailure);
  EXPECT_EQ(told.header.rank, 1);
  EXPECT_EQ(to_text(told.payload), "rank 1 (a pid 1) is lost");
  EXPECT_EQ(to_text(ranks.other.hear(Kind::kReply).payload), "rank 1 (a pid 1) is lost");
}

/// Rank 1 says that it cannot start a standby.
class WithoutStandby : public testing::Test {
 protected:
  WithoutStandby() {
    log::set_filter([this](log::Level level, int, std::string_view text) {
      if (level == log::Level::kWarn) warnings_.emplace_back(text);
      return false;
    });
    auto joining = std::async(std::launch::async, [&] { return Bootstrap::join(ranks_.id, 0, 3, soon()); });
    hear_replies();
    ranks_.call(Operation::kBroadcast, 1, pack(std::array{Bytes(), to_bytes("no interface")}));
    hear_replies();
    ranks_.call(Operation::kAllGather, 0, {});
    auto joined = joining.get();
    EXPECT_TRUE(joined.ok()) << joined.status().to_string();
    if (joined.ok()) mine_ = *std::move(joined);
  }
  ~WithoutStandby() override { log::set_filter(nullptr); }
  void hear_replies() const {
    for (const Stranger* rank : {&ranks_.standby_rank, &ranks_.other})
      EXPECT_EQ(rank->hear(Kind::kReply).header.kind, Kind::kReply);
  }

  PretendedRanks ranks_;
  std::unique_ptr<Bootstrap> mine_;
  std::vector<std::string> warnings_;
};

TEST_F(WithoutStandby, TheFirstCallWarns) {
  EXPECT_THAT(warnings_, testing::IsEmpty());
  for (int call = 0; call < 2; ++call) {
    ranks_.call(Operation::kBarrier, 0, {});
    EXPECT_TRUE(mine_->barrier(soon()).ok());
  }
  EXPECT_THAT(warnings_, testing::ElementsAre(HasSubstr("cannot reach a standby hub in the process of rank 1 (")));
  EXPECT_THAT(warnings_[0], HasSubstr("it did not start: no interface. All go on without it"));
}

TEST_F(WithoutStandby, ARankThatLeavesForThisCauseIsAFailureAlone) {
  ranks_.standby_rank.say({.kind = Kind::kLeave}, {});
  EXPECT_THAT(text_of(mine_->barrier(soon())), HasSubstr("rank 1 has left"));
  EXPECT_THAT(warnings_, testing::IsEmpty());
}

}  // namespace
}  // namespace tutti::bootstrap
