// SPDX-License-Identifier: Apache-2.0
// The result tree: ranks pass long results on. A parent that is silent, lost or wrong costs no result.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <cstring>
#include <latch>
#include <list>
#include <sstream>
#include <thread>

#include "bootstrap/branch.h"
#include "bootstrap/knock.h"
#include "bootstrap/lineup.h"
#include "bootstrap/process.h"
#include "bootstrap/seal.h"
#include "unit/bootstrap_group.h"

namespace tutti::bootstrap {
namespace {

constexpr int kRanks = 64;
constexpr int kLeader = 32;  // the lowest rank of the second host
constexpr size_t kPartBytes = 300;

static_assert(kRanks >= static_cast<int>(kLeastRanksOfTree));
static_assert(kRanks * kPartBytes >= kLeastBytesForTree);

std::string host_of(int rank) {
  return rank < kLeader ? "near" : "far";
}

/// Bytes that differ by rank, call and place.
Bytes part_of(int rank, int call) {
  Bytes part(kPartBytes + static_cast<size_t>(rank));
  for (size_t i = 0; i < part.size(); ++i)
    part[i] = static_cast<std::byte>(static_cast<size_t>(rank * 7 + call * 31) + i * i);
  return part;
}

testing::AssertionResult is_whole(const Result<Gathered>& gathered, int count, int call) {
  if (!gathered.ok()) return testing::AssertionFailure() << gathered.status().to_string();
  for (int rank = 0; rank < count; ++rank)
    if (!std::ranges::equal((*gathered)[static_cast<size_t>(rank)], part_of(rank, call)))
      return testing::AssertionFailure() << "wrong bytes of rank " << rank << " in call " << call;
  return testing::AssertionSuccess();
}

Result<std::unique_ptr<Bootstrap>> join_at(const UniqueId& id, int rank, int count, const std::string& host) {
  return Bootstrap::join(id, rank, count, soon(), Bootstrap::kPeerLoss, {.interfaces = {}, .host = host});
}

std::vector<RankProcess> ranks_on(int hosts, int each) {
  std::vector<RankProcess> ranks;
  for (int rank = 0; rank < hosts * each; ++rank) {
    const std::string host = "host" + std::to_string(rank / each);
    ranks.push_back({host, host + " pid", static_cast<uint64_t>(rank)});
  }
  return ranks;
}

TEST(ResultTree, SmallGroupsAndOneHostHaveNone) {
  for (const auto& ranks : {ranks_on(2, 31), ranks_on(1, 200)}) {
    for (const BranchRole& role : branch_roles("host0", ranks)) {
      EXPECT_EQ(role.parent, -1);
      EXPECT_TRUE(role.children.empty());
    }
  }
}

TEST(ResultTree, EachRankHasOneWayFromThePrimary) {
  constexpr int kHosts = 500, kEach = 4;
  const auto roles = branch_roles("host0", ranks_on(kHosts, kEach));
  int from_primary = 0;
  for (int rank = 0; rank < kHosts * kEach; ++rank) {
    const BranchRole& role = roles[static_cast<size_t>(rank)];
    EXPECT_LE(role.children.size(), kTreeFanOut + kEach - 1);
    for (const int child : role.children) EXPECT_EQ(roles[static_cast<size_t>(child)].parent, rank);
    int steps = 1;
    for (int above = role.parent; above >= 0; above = roles[static_cast<size_t>(above)].parent) ++steps;
    EXPECT_LE(steps, 4) << "8 + 64 + 512 hosts are reached in three steps, their further ranks in four";
    if (rank % kEach != 0 && rank >= kEach) {
      EXPECT_EQ(role.parent, rank / kEach * kEach) << "the leader of its host";
    }
    if (role.parent < 0) ++from_primary;
  }
  EXPECT_EQ(from_primary, kEach + static_cast<int>(kTreeFanOut));
}

TEST(ResultTree, TravelsInALineup) {
  Lineup lineup;
  lineup.primary.ranks = {0};
  lineup.branch = {5, {7, 9}};
  auto decoded = decode_lineup(encode(lineup), 10);
  ASSERT_TRUE(decoded.ok());
  EXPECT_EQ(decoded->branch.parent, 5);
  EXPECT_EQ(decoded->branch.children, (std::vector{7, 9}));
  EXPECT_FALSE(decode_lineup(encode(lineup), 9).ok());
  lineup.branch = {-1, {}};
  decoded = decode_lineup(encode(lineup), 10);
  ASSERT_TRUE(decoded.ok());
  EXPECT_EQ(decoded->branch.parent, -1);
}

/// A connection to the hub for each rank. The test says all that the ranks say.
struct PretendedRanks {
  PretendedRanks() {
    for (int rank = 0; rank < kRanks; ++rank) {
      Hello hello = hello_to(id, rank, kRanks);
      std::strncpy(hello.host.data(), host_of(rank).c_str(), hello.host.size());
      ranks.emplace_back(id).join(id, hello);
    }
    for (const Stranger& rank : ranks) EXPECT_EQ(rank.hear(Kind::kReply).header.code, 0);
  }
  void call(uint32_t id_of_call, Operation operation, const Bytes& bytes) const {
    for (const Stranger& rank : ranks)
      rank.say({.kind = Kind::kCall, .code = static_cast<uint16_t>(operation), .id = id_of_call, .timeout_ms = 60000},
               bytes);
  }
  UniqueId id = make_id();
  std::vector<Stranger> ranks;
};

TEST(TreeOfAHub, LeaveLongResultsToTheParent) {
  const PretendedRanks job;
  const Stranger& child = job.ranks[kLeader + 1];
  child.say({.kind = Kind::kParent, .id = 70}, {});
  const Bytes place = pack(std::array{to_bytes("127.0.0.1:9")});
  job.ranks[kLeader].say({.kind = Kind::kBranch}, place);
  const Frame told = child.hear();
  EXPECT_EQ(told.header.kind, Kind::kReply);
  EXPECT_EQ(told.header.id, 70u);
  EXPECT_EQ(told.payload, place);

  child.say({.kind = Kind::kAttach}, {});
  job.call(1, Operation::kAllGather, Bytes(kPartBytes));
  EXPECT_EQ(job.ranks[kLeader].hear().header.id, 1u);
  job.call(2, Operation::kBarrier, {});
  EXPECT_EQ(child.hear(Kind::kReply).header.id, 2u) << "result 1 is the parent's business, and result 2 is short";

  job.call(3, Operation::kAllGather, Bytes(kPartBytes));
  for (const uint32_t id : {1u, 2u, 3u}) EXPECT_EQ(job.ranks[kLeader + 2].hear().header.id, id) << "without kAttach";
  child.say({.kind = Kind::kDetach, .id = 3}, {});
  const Frame held = child.hear();
  EXPECT_EQ(held.header.id, 3u);
  EXPECT_EQ(held.payload.size(), kRanks * (sizeof(uint32_t) + kPartBytes));
  job.call(4, Operation::kAllGather, Bytes(kPartBytes));
  EXPECT_EQ(child.hear().header.id, 4u);

  child.say({.kind = Kind::kAttach}, {});
  job.call(5, Operation::kAllGather, Bytes(kPartBytes));
  for (const uint32_t id : {4u, 5u}) EXPECT_EQ(job.ranks[kLeader + 2].hear().header.id, id);
  child.say({.kind = Kind::kDetach}, {});
  job.call(6, Operation::kBarrier, {});
  EXPECT_EQ(child.hear().header.id, 6u) << "the rank has got result 5 from its parent";
}

TEST(TreeOfAHub, TellsOfAResultThatIsOverdue) {
  const PretendedRanks job;
  const Stranger& child = job.ranks[kLeader + 1];
  child.say({.kind = Kind::kAttach}, {});
  job.call(1, Operation::kAllGather, Bytes(kPartBytes));
  EXPECT_EQ(job.ranks[0].hear().header.id, 1u);
  job.ranks[0].say(
      {.kind = Kind::kCall, .code = static_cast<uint16_t>(Operation::kBarrier), .id = 2, .timeout_ms = 600}, {});
  const Frame overdue = child.hear();
  EXPECT_EQ(overdue.header.kind, Kind::kOverdue);
  EXPECT_EQ(overdue.header.id, 1u);
  child.say({.kind = Kind::kDetach, .id = 1}, to_bytes("silent"));
  EXPECT_EQ(child.hear().header.id, 1u);
}

TEST(TreeOfAHub, LoseARankThatSaysWhatItMayNot) {
  for (const Kind kind : {Kind::kBranch, Kind::kParent, Kind::kAttach, Kind::kDetach}) {
    const PretendedRanks job;
    job.ranks[1].say({.kind = kind}, {});  // on the host of the hub: without parent and children
    EXPECT_TRUE(job.ranks[1].hears_end());
    EXPECT_THAT(to_text(job.ranks[0].hear(Kind::kFailure).payload), testing::HasSubstr("it sent what no rank sends"));
  }
}

/// The argument of a child process with several ranks.
std::string as_argument(int first, int count, int all, const std::string& host, const std::string& id) {
  return std::to_string(first) + ' ' + std::to_string(count) + ' ' + std::to_string(all) + ' ' + host + ' ' + id;
}

/// All ranks but the leader of the second host are here. The test plays the leader.
class PretendedLeader : public testing::Test {
 protected:
  PretendedLeader() : listener_(base::listen_on(base::SocketAddress::parse("127.0.0.1:0").value()).value()) {}

  /// Lets all ranks make two calls. `serve` plays the leader once its children have come, and the leader has said its
  /// part of the first call. If `waits`, no rank makes the second call before all ranks have the first result.
  void run(bool waits, const std::function<void()>& serve) {
    std::latch first_results(waits ? kRanks - 1 : 0);
    join();
    std::thread leader([&] {
      take_children();
      call(1);
      serve();
      call(2);
      const Frame second = hub_->hear(Kind::kReply);
      EXPECT_EQ(second.header.id, 2u);
      pass_on(2, second.payload);
    });
    in_ranks(kRanks, [&](int rank) {
      if (rank == kLeader) return;
      const auto mine = join_at(id_, rank, kRanks, host_of(rank));
      ASSERT_TRUE(mine.ok()) << mine.status().to_string();
      EXPECT_TRUE(is_whole((*mine)->all_gather(part_of(rank, 1), soon()), kRanks, 1)) << rank;
      if (waits) first_results.arrive_and_wait();
      EXPECT_TRUE(is_whole((*mine)->all_gather(part_of(rank, 2), soon()), kRanks, 2)) << rank;
    });
    leader.join();
  }

  void pass_on(uint32_t call, const Bytes& result) const {
    for (const Stranger& child : children_) child.say({.kind = Kind::kResult, .id = call}, result);
  }

  void call(int number) const { hub_->say(header_of(number), sealed_part(number)); }

  static Header header_of(int number) {
    return {.kind = Kind::kCall,
            .code = static_cast<uint16_t>(Operation::kAllGather),
            .id = static_cast<uint32_t>(number),
            .timeout_ms = 60000};
  }

  Bytes sealed_part(int number) const {
    return Seal::create(endpoint_of(id_).value().secret)
        .value()
        ->close(part_of(kLeader, number), {static_cast<uint32_t>(number), kLeader})
        .value();
  }

  void join() { hub_.emplace(joined(id_)); }

  static Stranger joined(const UniqueId& id) {
    Stranger leader(id);
    Hello hello = hello_to(id, kLeader, kRanks);
    std::strncpy(hello.host.data(), "far", hello.host.size());
    leader.join(id, hello);
    return leader;
  }

  /// Waits with all ranks for a standby hub, and reaches it. Needs calls 1 and 2 of the group.
  Stranger reach_standby(int standby_rank) const {
    Header broadcast = header_of(101);
    broadcast.code = static_cast<uint16_t>(Operation::kBroadcast);
    broadcast.rank = standby_rank;
    hub_->say(broadcast, {});
    const auto told = unpack(hub_->hear(Kind::kReply).payload).value();
    const std::string secret = id_.to_string().substr(id_.to_string().rfind(':'));
    Stranger standby = joined(UniqueId::from_string(to_text(told.front()) + secret).value());
    hub_->say(header_of(102), {});
    EXPECT_EQ(hub_->hear(Kind::kReply).header.id, 102u);
    return standby;
  }

  /// Returns when all ranks have joined and all children have come.
  void take_children() {
    ASSERT_EQ(hub_->hear(Kind::kReply).header.code, 0);
    hub_->say({.kind = Kind::kBranch}, pack(std::array{to_bytes(base::local_address(listener_).to_string())}));
    for (int child = kLeader + 1; child < kRanks; ++child) {
      pollfd readable = {.fd = listener_.get(), .events = POLLIN, .revents = 0};
      ASSERT_EQ(::poll(&readable, 1, 60000), 1);
      children_.emplace_back(base::Fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)));
      children_.back().admit(Branch::secret_of(endpoint_of(id_).value().secret, kLeader).value());
    }
  }

  UniqueId id_ = make_id();
  const base::Fd listener_;
  std::optional<Stranger> hub_;
  std::list<Stranger> children_;
};

/// The second call waits for the first results, so the hub has no reason to send them itself.
TEST_F(PretendedLeader, PassesResultsOn) {
  run(true, [&] {
    const Frame result = hub_->hear(Kind::kReply);
    pass_on(100, Bytes(kLeastBytesForTree));  // no call of this number is open
    pass_on(1, result.payload);
    pass_on(1, Bytes(kLeastBytesForTree));  // a second result of a call changes nothing
  });
}

TEST_F(PretendedLeader, WhenLostCostsNothing) {
  run(true, [&] {
    EXPECT_EQ(hub_->hear(Kind::kReply).header.id, 1u);
    children_.clear();
  });
}

TEST_F(PretendedLeader, IsLeftWhenItTalksNonsense) {
  run(true, [&] {
    EXPECT_EQ(hub_->hear(Kind::kReply).header.id, 1u);
    for (const Stranger& child : children_) child.say({.kind = Kind::kWelcome}, {});
  });
}

TEST_F(PretendedLeader, IsLeftWhenItIsSilent) {
  run(false, [&] { EXPECT_EQ(hub_->hear(Kind::kReply).header.id, 1u); });
}

/// The processes of both hubs end after the call, before the parent passes the result on.
TEST_F(PretendedLeader, MayBeLaterThanTheEndOfTheHubs) {
  constexpr int kStandby = 20;
  Child primary("DISABLED_Child.GathersOnceAndLeaves", as_argument(0, kStandby, kRanks, "near", "its own"));
  id_ = UniqueId::from_string(primary.hear()).value();
  Child second("DISABLED_Child.GathersOnceAndLeaves",
               as_argument(kStandby, kLeader - kStandby, kRanks, "middle", id_.to_string()));
  std::thread leader([&] {
    join();
    take_children();
    const Stranger standby = reach_standby(kStandby);
    hub_->say(header_of(103), sealed_part(1));
    standby.say(header_of(103), sealed_part(1));
    Frame result = hub_->hear(Kind::kReply);
    while (result.header.id != 103) result = hub_->hear(Kind::kReply);
    EXPECT_EQ(primary.hear(), std::to_string(kStandby));
    EXPECT_EQ(second.hear(), std::to_string(kLeader - kStandby));
    EXPECT_EQ(primary.wait(), 0);
    EXPECT_EQ(second.wait(), 0);
    pass_on(3, result.payload);
  });
  in_ranks(kRanks - kLeader - 1, [&](int i) {
    const int rank = kLeader + 1 + i;
    const auto mine = join_at(id_, rank, kRanks, "far");
    ASSERT_TRUE(mine.ok()) << mine.status().to_string();
    EXPECT_TRUE(is_whole((*mine)->all_gather(part_of(rank, 1), soon()), kRanks, 1)) << rank;
    EXPECT_FALSE((*mine)->all_gather(part_of(rank, 2), soon()).ok()) << "no hub is left";
  });
  leader.join();
}

/// A parent that changes a result is found out by the seals.
TEST_F(PretendedLeader, CannotChangeAResult) {
  join();
  std::thread leader([&] {
    take_children();
    call(1);
    Frame result = hub_->hear(Kind::kReply);
    result.payload[result.payload.size() / 2] ^= std::byte{1};
    pass_on(1, result.payload);
  });
  std::atomic<int> refused = 0;
  in_ranks(kRanks, [&](int rank) {
    if (rank == kLeader) return;
    const auto mine = join_at(id_, rank, kRanks, host_of(rank));
    ASSERT_TRUE(mine.ok()) << mine.status().to_string();
    const auto gathered = (*mine)->all_gather(part_of(rank, 1), soon());
    if (gathered.status().code() == Code::kMismatch) ++refused;
  });
  leader.join();
  EXPECT_EQ(refused, kRanks - kLeader - 1);
}

/// Leaders below a leader: one process, thirteen pretended hosts.
TEST(TreeInOneProcess, ReachesLeadersBelowLeaders) {
  constexpr int kAll = 78, kEach = 6;
  const UniqueId id = make_id();
  std::barrier all_have_it(kAll);
  in_ranks(kAll, [&](int rank) {
    const auto mine = join_at(id, rank, kAll, "host" + std::to_string(rank / kEach));
    if (!mine.ok()) ::abort();  // the barrier waits for all
    for (int call = 1; call <= 5; ++call) {
      EXPECT_TRUE(is_whole((*mine)->all_gather(part_of(rank, call), soon()), kAll, call)) << rank;
      all_have_it.arrive_and_wait();
    }
  });
}

/// A branch of a rank of four, with what it receives.
struct TestBranch {
  TestBranch(Poller& poller, int rank, BranchRole role)
      : branch(std::make_shared<Branch>(poller, Branch::Options{std::move(role), rank, 4, Bootstrap::kPeerLoss},
                                        Branch::Events{[this](Frame frame) {
                                                         results.push_back(frame.header.id);
                                                         branch->pass_on(frame.header.id, frame.payload);
                                                       },
                                                       [this](const std::string& why) { ends.push_back(why); }})) {}
  std::shared_ptr<Branch> branch;
  std::vector<uint32_t> results;
  std::vector<std::string> ends;
};

TEST(BranchInOneProcess, GetsEachLongResultOnce) {
  const auto poller = Poller::shared().value();
  const Secret group = random_secret().value();
  const auto secret_of = [&](int rank) { return Branch::secret_of(group, rank).value(); };
  poller->run([&] {
    auto top = std::make_unique<TestBranch>(*poller, 0, BranchRole{-1, {1}});
    TestBranch middle(*poller, 1, {0, {2, 3}});
    TestBranch low(*poller, 2, {1, {}});
    const auto open = [&](TestBranch& parent, int rank) {
      const auto address = base::SocketAddress::parse("127.0.0.1:0").value();
      ASSERT_TRUE(parent.branch->open(Acceptor::at(*poller, address, {}).value(), secret_of(rank), soon()).ok());
    };
    EXPECT_FALSE(middle.branch->attach_here(secret_of(0))) << "rank 0 takes no children yet";
    open(*top, 0);
    open(middle, 1);
    EXPECT_TRUE(middle.branch->attach_here(secret_of(0)));
    EXPECT_TRUE(low.branch->attach_here(secret_of(1)));
    top->branch->pass_on(3, Bytes(kLeastBytesForTree));
    top->branch->pass_on(3, Bytes(kLeastBytesForTree));
    top->branch->pass_on(4, Bytes(kLeastBytesForTree - 1));
    top->branch->pass_on(5, Bytes(kLeastBytesForTree));
    EXPECT_THAT(middle.results, testing::ElementsAre(3, 5));
    EXPECT_THAT(low.results, testing::ElementsAre(3, 5));
    low.branch->detach("enough");
    low.branch->detach("twice");
    EXPECT_THAT(low.ends, testing::ElementsAre("enough"));
    top->branch->pass_on(6, Bytes(kLeastBytesForTree));
    EXPECT_THAT(low.results, testing::ElementsAre(3, 5));
    top.reset();
    EXPECT_THAT(middle.ends, testing::ElementsAre(""));
  });
}

/// The branch of rank 0, which takes children at an address.
class BranchOverSockets : public testing::Test {
 protected:
  void serve(const std::vector<int>& children) {
    poller_->run([&] {
      top_ = std::make_unique<TestBranch>(*poller_, 0, BranchRole{-1, children});
      address_ = Acceptor::serve(
          *poller_, base::SocketAddress::parse("127.0.0.1:0").value(),
          [&](std::shared_ptr<Acceptor> acceptor) { return top_->branch->open(std::move(acceptor), secret_, soon()); });
    });
    ASSERT_TRUE(address_.ok()) << address_.status().to_string();
  }
  Stranger child(int rank) const {
    return Stranger(knock({*address_, secret_}, {}, hello_of(rank, 4, Bootstrap::kPeerLoss, "far"), soon()).value());
  }
  void TearDown() override {
    poller_->run([&] { top_.reset(); });
  }

  std::shared_ptr<Poller> poller_ = Poller::shared().value();
  Secret secret_ = Branch::secret_of(random_secret().value(), 0).value();
  std::unique_ptr<TestBranch> top_;
  Result<base::SocketAddress> address_ = Status(Code::kInternal, "not served");
};

/// A rank that leaves first lets its children have all results.
TEST_F(BranchOverSockets, KnowsWhenTheChildrenHaveAllResults) {
  serve({1});
  const Stranger only = child(1);
  std::promise<void> passed_on;
  std::future<void> done = passed_on.get_future();
  constexpr size_t kMoreThanSocketsHold = kMaxPayloadBytes;
  poller_->run([&] {
    top_->branch->pass_on(1, Bytes(kMoreThanSocketsHold));
    top_->branch->when_passed_on([&] { passed_on.set_value(); });
  });
  EXPECT_EQ(done.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
  EXPECT_EQ(only.hear().payload.size(), kMoreThanSocketsHold);
  EXPECT_EQ(done.wait_until(soon()), std::future_status::ready);
}

TEST_F(BranchOverSockets, ClosesTheFirstConnectionOfAChildThatComesAgain) {
  serve({1, 2});
  const Stranger first = child(1);
  const Stranger again = child(1);
  EXPECT_TRUE(first.hears_end());
  poller_->run([&] { top_->branch->pass_on(1, Bytes(kLeastBytesForTree)); });
  EXPECT_EQ(again.hear().payload.size(), kLeastBytesForTree);
}

// Ranks in processes of their own.

/// Joins as several ranks of an id: "first count all host id". Gathers three times, and says whether all was right;
/// then makes calls until one fails, and tells the text.
TEST(DISABLED_Child, GathersAsSeveralRanks) {
  std::istringstream argument(child_argument());
  int first = 0, count = 0, all = 0;
  std::string host, meeting;
  argument >> first >> count >> all >> host >> meeting;
  const UniqueId id = UniqueId::from_string(meeting).value();
  std::vector<std::unique_ptr<Bootstrap>> ranks(static_cast<size_t>(count));
  std::atomic<int> right = 0;
  in_ranks(count, [&](int i) {
    auto joined = join_at(id, first + i, all, host);
    if (!joined.ok()) return;
    ranks[static_cast<size_t>(i)] = *std::move(joined);
    for (int call = 1; call <= 3; ++call)
      if (is_whole(ranks[static_cast<size_t>(i)]->all_gather(part_of(first + i, call), soon()), all, call)) ++right;
  });
  say_to_parent(std::to_string(right));
  std::string text;
  in_ranks(count, [&](int i) {
    Result<Gathered> gathered = Gathered();
    while (gathered.ok()) gathered = ranks[static_cast<size_t>(i)]->all_gather(part_of(first + i, 4), soon());
    if (i == 0) text = std::string(gathered.status().text());
  });
  say_to_parent(text);
  wait_for_parent();
}

/// Joins as several ranks. The argument has the id; for "its own", the child makes an id and tells it. Gathers once,
/// says how often all was right, and leaves.
TEST(DISABLED_Child, GathersOnceAndLeaves) {
  std::istringstream argument(child_argument());
  int first = 0, count = 0, all = 0;
  std::string host, meeting;
  argument >> first >> count >> all >> host;
  std::getline(argument >> std::ws, meeting);
  const UniqueId id = meeting == "its own" ? make_id() : UniqueId::from_string(meeting).value();
  if (meeting == "its own") say_to_parent(id.to_string());
  std::atomic<int> right = 0;
  in_ranks(count, [&](int i) {
    const auto joined = join_at(id, first + i, all, host);
    if (joined.ok() && is_whole((*joined)->all_gather(part_of(first + i, 1), soon()), all, 1)) ++right;
  });
  say_to_parent(std::to_string(right));
}

TEST(TreeInProcesses, PassResultsOnUntilOneDies) {
  const UniqueId id = make_id();
  constexpr int kHere = 32, kLeading = 20, kFurther = 20, kAlone = 2;
  constexpr int kAll = kHere + kLeading + kFurther + kAlone;
  const auto child = [&](int first, int count, const std::string& host) {
    return std::make_unique<Child>("DISABLED_Child.GathersAsSeveralRanks",
                                   as_argument(first, count, kAll, host, id.to_string()));
  };
  const auto leading = child(kHere, kLeading, "far");
  const auto further = child(kHere + kLeading, kFurther, "far");
  const auto alone = child(kHere + kLeading + kFurther, kAlone, "alone");
  Group group(kHere);
  in_ranks(kHere, [&](int rank) {
    auto joined = join_at(id, rank, kAll, "near");
    ASSERT_TRUE(joined.ok()) << joined.status().to_string();
    group[static_cast<size_t>(rank)] = *std::move(joined);
    for (int call = 1; call <= 3; ++call)
      EXPECT_TRUE(is_whole(group[static_cast<size_t>(rank)]->all_gather(part_of(rank, call), soon()), kAll, call));
  });
  EXPECT_EQ(leading->hear(), std::to_string(3 * kLeading));
  EXPECT_EQ(further->hear(), std::to_string(3 * kFurther));
  EXPECT_EQ(alone->hear(), std::to_string(3 * kAlone));
  auto failure = next_failure(*group[1]);
  leading->kill();
  const FailureReport report = wait_for(failure);
  EXPECT_EQ(report.kind, FailureKind::kPeerLost);
  EXPECT_THAT(report.text, testing::HasSubstr("far pid "));
  EXPECT_THAT(further->hear(), testing::HasSubstr("its process ended without leaving"));
  EXPECT_THAT(alone->hear(), testing::HasSubstr("its process ended without leaving"));
}

}  // namespace
}  // namespace tutti::bootstrap
