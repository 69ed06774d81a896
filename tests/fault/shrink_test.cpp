// SPDX-License-Identifier: Apache-2.0
// Ranks that remain shrink to a new communicator: beside a whole communicator, after an abort, after ranks were killed
// in the middle of a call, and one time after another. Lists that differ are an error with a text.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <deque>
#include <functional>
#include <numeric>
#include <optional>
#include <random>
#include <sstream>
#include <thread>
#include <vector>

#include "tutti/communicator.h"
#include "unit/bootstrap_group.h"

namespace tutti {
namespace {

using bootstrap::Child;
using testing::AnyOf;
using testing::HasSubstr;
using Settings = std::vector<std::pair<std::string, std::string>>;

constexpr int kRanks = 8;
constexpr size_t kCount = 100'003;

/// How the ranks of a test are joined.
struct Setting {
  const char* name;
  const char* transport;
  bool two_hosts;  ///< two pretended hosts: the lower half of the ranks on the first, the upper half on the second
};
constexpr std::array<Setting, 3> kSettings = {
    {{"shared memory", "auto", false}, {"network", "net", false}, {"two hosts", "auto", true}}};

Result<Communicator> join(const UniqueId& id, int rank, int ranks, const Setting& setting, const Settings& more = {}) {
  Options options;
  options.settings = {{"plugins.path", TUTTI_BINARY_DIR "/lib/tutti/plugins"},
                      {"timeouts.operation", "300s"},
                      {"bootstrap.interface", "=lo"},
                      {"transport", setting.transport}};
  if (setting.two_hosts) options.settings.emplace_back("host", rank < ranks / 2 ? "a" : "b");
  options.settings.insert(options.settings.end(), more.begin(), more.end());
  return Communicator::create(id, rank, ranks, options);
}

/// Runs `body` on `ranks` threads.
void on_ranks(int ranks, const Setting& setting, const std::function<void(Communicator&)>& body,
              const Settings& more = {}) {
  SCOPED_TRACE(setting.name);
  const auto id = UniqueId::create("=lo");
  ASSERT_TRUE(id.ok()) << id.status().to_string();
  bootstrap::in_ranks(ranks, [&](int rank) {
    auto comm = join(*id, rank, ranks, setting, more);
    ASSERT_TRUE(comm.ok()) << comm.status().to_string();
    body(*comm);
  });
}

bool excludes(const std::vector<int>& list, int rank) {
  return std::find(list.begin(), list.end(), rank) != list.end();
}

/// Element i of the input of a rank. Sums of the inputs of all ranks are exact in int64.
int64_t element(uint64_t seed, int parent_rank, size_t i) {
  uint64_t x = seed + static_cast<uint64_t>(parent_rank) * 0x9e3779b97f4a7c15 + i * 0xbf58476d1ce4e5b9;
  x ^= x >> 31;
  x *= 0x94d049bb133111eb;
  return static_cast<int64_t>(x >> 20);
}

/// The first fault of an all_reduce on the shrunk communicator; empty: the sum over all members is exact everywhere.
std::string fault_of_sum(Communicator& comm, int parent_rank, const std::vector<int>& members, uint64_t seed) {
  const auto place = std::find(members.begin(), members.end(), parent_rank) - members.begin();
  if (comm.size() != static_cast<int>(members.size())) return "it has " + std::to_string(comm.size()) + " ranks";
  if (comm.rank() != place) return "its rank is " + std::to_string(comm.rank());
  std::vector<int64_t> input(kCount);
  std::vector<int64_t> output(kCount, -1);
  for (size_t i = 0; i < kCount; ++i) input[i] = element(seed, parent_rank, i);
  const Status done = comm.all_reduce(input.data(), output.data(), kCount, DataType::kInt64, ReduceOp::kSum);
  if (!done.ok()) return done.to_string();
  for (size_t i = 0; i < kCount; ++i) {
    int64_t expected = 0;
    for (const int member : members) expected += element(seed, member, i);
    if (output[i] != expected) return "element " + std::to_string(i) + " is wrong";
  }
  return "";
}

uint64_t new_seed() {
  const uint64_t seed = std::random_device{}();
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  return seed;
}

std::vector<int> members_without(const std::vector<int>& excluded, int ranks) {
  std::vector<int> members;
  for (int rank = 0; rank < ranks; ++rank) {
    if (!excludes(excluded, rank)) members.push_back(rank);
  }
  return members;
}

TEST(Shrink, LeavesAWholeCommunicatorUsable) {
  const uint64_t seed = new_seed();
  const std::vector<int> excluded{6, 0};
  const std::vector<int> members = members_without(excluded, kRanks);
  for (const Setting& setting : kSettings) {
    on_ranks(kRanks, setting, [&](Communicator& comm) {
      if (!excludes(excluded, comm.rank())) {
        auto less = comm.shrink(excluded);
        ASSERT_TRUE(less.ok()) << less.status().to_string();
        EXPECT_EQ(fault_of_sum(*less, comm.rank(), members, seed), "");
      }
      const Status all = comm.barrier();
      EXPECT_TRUE(all.ok()) << all.to_string();
    });
  }
}

/// The second meeting takes a place that the first one made; the shrunk communicator shrinks, too.
TEST(Shrink, AgainAndAgain) {
  const uint64_t seed = new_seed();
  on_ranks(4, kSettings[0], [&](Communicator& comm) {
    const int rank = comm.rank();
    for (const std::vector<int>& excluded : {std::vector{2}, {2}, {2, 0}, {2, 0}}) {
      if (excludes(excluded, rank)) continue;
      auto less = comm.shrink(excluded);
      ASSERT_TRUE(less.ok()) << less.status().to_string();
      EXPECT_EQ(fault_of_sum(*less, rank, members_without(excluded, 4), seed), "");
      if (excluded.size() != 2) continue;
      auto same = less->shrink({});
      ASSERT_TRUE(same.ok()) << same.status().to_string();
      EXPECT_EQ(fault_of_sum(*same, rank, {1, 3}, seed), "");
      if (rank == 1) continue;
      auto one = less->shrink(std::array{0});
      ASSERT_TRUE(one.ok()) << one.status().to_string();
      EXPECT_EQ(fault_of_sum(*one, 3, {3}, seed), "");
    }
    EXPECT_TRUE(comm.barrier().ok());
  });
}

/// Two ranks never make the call for which all other ranks wait. One of the six ends the wait of all.
TEST(Shrink, AbortEndsCallsOnAllRanks) {
  const uint64_t seed = new_seed();
  const std::vector<int> excluded{2, 5};
  const std::vector<int> members = members_without(excluded, kRanks);
  for (const Setting& setting : kSettings) {
    on_ranks(kRanks, setting, [&](Communicator& comm) {
      if (comm.rank() == 2 || comm.rank() == 5) {
        EXPECT_FALSE(comm.exchange({}).ok());  // returns when the communicator is broken
        EXPECT_EQ(comm.async_error().code(), Code::kAborted);
        return;
      }
      if (comm.rank() != 1) {
        std::vector<int64_t> data(kCount);
        const Status waits = comm.all_reduce(data.data(), data.data(), kCount, DataType::kInt64, ReduceOp::kSum);
        EXPECT_EQ(waits.code(), Code::kAborted) << waits.to_string();
        EXPECT_THAT(waits.to_string(), HasSubstr("excludes ranks 2,5"));
      }
      auto less = comm.shrink(excluded, ShrinkMode::kAbort);
      ASSERT_TRUE(less.ok()) << less.status().to_string();
      EXPECT_EQ(fault_of_sum(*less, comm.rank(), members, seed), "");
    });
  }
}

TEST(Shrink, TakesOtherOptions) {
  on_ranks(3, kSettings[0], [&](Communicator& comm) {
    if (comm.rank() == 1) return static_cast<void>(comm.barrier());
    Options options;
    options.settings = {{"plugins.path", TUTTI_BINARY_DIR "/lib/tutti/plugins"}, {"algorithm", "ring"}};
    auto less = comm.shrink(std::array{1}, ShrinkMode::kKeep, options);
    ASSERT_TRUE(less.ok()) << less.status().to_string();
    const auto choice = less->choose(Collective::kAllReduce, 1, DataType::kFloat32, ReduceOp::kSum);
    ASSERT_TRUE(choice.ok()) << choice.status().to_string();
    EXPECT_EQ(choice->algorithm, "ring");
    EXPECT_TRUE(comm.barrier().ok());
  });
}

// Errors.

TEST(Shrink, RefusesWrongLists) {
  on_ranks(2, kSettings[0], [](Communicator& comm) {
    const int rank = comm.rank();
    const Status self = comm.shrink(std::array{rank}).status();
    EXPECT_EQ(self.code(), Code::kInvalidArgument);
    EXPECT_THAT(self.to_string(), HasSubstr("rank " + std::to_string(rank) + " excludes itself"));
    for (const int outside : {-1, 2}) {
      const Status status = comm.shrink(std::array{outside}).status();
      EXPECT_EQ(status.code(), Code::kInvalidArgument);
      EXPECT_THAT(status.to_string(), HasSubstr("no rank " + std::to_string(outside) + " to exclude"));
    }
    EXPECT_TRUE(comm.barrier().ok());  // errors of arguments break nothing
  });
}

TEST(Shrink, NamesListsThatDiffer) {
  on_ranks(4, kSettings[0], [](Communicator& comm) {
    // Rank 0 believes that rank 2 is lost, ranks 1 and 2 exclude rank 3. All three meet as ranks 0 to 2.
    const int rank = comm.rank();
    const int lost = rank == 0 ? 2 : 3;
    if (rank == 3) return static_cast<void>(comm.barrier());
    const Status status = comm.shrink(std::array{lost}).status();
    EXPECT_EQ(status.code(), Code::kMismatch);
    EXPECT_THAT(
        status.to_string(),
        HasSubstr("the ranks exclude different ranks: rank 0 excludes rank 2, rank 1 excludes rank 3; all ranks "
                  "that remain must pass the same list"));
    // With equal lists, they meet at a further place.
    const auto less = comm.shrink(std::array{3});
    EXPECT_TRUE(less.ok()) << less.status().to_string();
    EXPECT_TRUE(comm.barrier().ok());
  });
}

TEST(Shrink, NamesListsOfDifferentLengths) {
  on_ranks(4, kSettings[0], [](Communicator& comm) {
    const int rank = comm.rank();
    if (rank == 3) return static_cast<void>(comm.barrier());
    const std::vector<int> lost = rank == 1 ? std::vector{2, 3} : std::vector{3};
    const Status status = comm.shrink(lost).status();
    EXPECT_THAT(status.code(), AnyOf(Code::kMismatch, Code::kRemote));
    EXPECT_THAT(status.to_string(), HasSubstr("ranks disagree on their number"));
    EXPECT_THAT(status.to_string(), HasSubstr(rank == 1 ? "rank 1 excludes ranks 2,3, so ranks 0,1 meet"
                                                        : " excludes rank 3, so ranks 0-2 meet"));
    EXPECT_TRUE(comm.barrier().ok());
  });
}

TEST(Shrink, NamesARankThatDoesNotCall) {
  const Settings impatient{{"timeouts.bootstrap", "10s"}};  // of the creation, too
  on_ranks(
      4, kSettings[0],
      [](Communicator& comm) {
        if (comm.rank() == 1 || comm.rank() == 2) return static_cast<void>(comm.barrier());
        const auto begin = std::chrono::steady_clock::now();
        const Status status = comm.shrink(std::array{1}).status();  // rank 2 is missing
        EXPECT_EQ(status.code(), Code::kTimeout);
        EXPECT_THAT(status.to_string(), HasSubstr("excludes rank 1, so ranks 0,2,3 meet as ranks 0-2"));
        EXPECT_THAT(status.to_string(), HasSubstr("rank 1 of 3 did not join within"));
        EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(25)) << "the default is 30 s";
        EXPECT_TRUE(comm.barrier().ok());
      },
      impatient);
}

/// Its peers have new places, which it does not know.
TEST(Shrink, ARankThatWasExcludedCannotComeBack) {
  on_ranks(3, kSettings[0],
           [](Communicator& comm) {
             if (comm.rank() != 2) {
               const auto less = comm.shrink(std::array{2});
               EXPECT_TRUE(less.ok()) << less.status().to_string();
             }
             EXPECT_TRUE(comm.barrier().ok());
             if (comm.rank() == 2) {
               const Status late = comm.shrink(std::array{0}).status();
               EXPECT_FALSE(late.ok());
               EXPECT_THAT(late.to_string(), HasSubstr("rank 2 excludes rank 0, so ranks 1,2 meet as ranks 0,1"));
             }
             EXPECT_TRUE(comm.barrier().ok());
           },
           {{"timeouts.bootstrap", "8s"}});  // of the creation, too
}

TEST(Shrink, NamesTheSettingThatForbidsIt) {
  on_ranks(3, kSettings[0],
           [](Communicator& comm) {
             if (comm.rank() == 1) return static_cast<void>(comm.barrier());
             const Status status = comm.shrink(std::array{1}).status();
             EXPECT_EQ(status.code(), Code::kFailedPrecondition);
             EXPECT_THAT(status.to_string(), HasSubstr("bootstrap.shrink is false (application)"));
             EXPECT_TRUE(comm.barrier().ok());
           },
           {{"bootstrap.shrink", "false"}});
}

// Processes.

/// Words of the argument of a child: id, rank, setting, seed, excluded ranks.
struct Orders {
  std::string id;
  int rank = 0;
  size_t setting = 0;
  uint64_t seed = 0;
  std::vector<int> lost;
};

std::string to_text(const Orders& orders) {
  std::ostringstream text;
  text << orders.id << ' ' << orders.rank << ' ' << orders.setting << ' ' << orders.seed;
  for (const int rank : orders.lost) text << ' ' << rank;
  return text.str();
}

Orders orders_of(const std::string& text) {
  Orders orders;
  std::istringstream words(text);
  words >> orders.id >> orders.rank >> orders.setting >> orders.seed;
  for (int rank = 0; words >> rank;) orders.lost.push_back(rank);
  return orders;
}

/// Makes calls without an end, until a rank is lost, and then shrinks.
TEST(DISABLED_Child, ShrinksAfterALoss) {
  const Orders orders = orders_of(bootstrap::child_argument());
  const auto id = UniqueId::from_string(orders.id);
  ASSERT_TRUE(id.ok());
  auto comm = join(*id, orders.rank, kRanks, kSettings.at(orders.setting));
  ASSERT_TRUE(comm.ok()) << comm.status().to_string();
  std::vector<int64_t> data(kCount * 8);
  Status status = comm->all_reduce(data.data(), data.data(), data.size(), DataType::kInt64, ReduceOp::kMax);
  ASSERT_TRUE(status.ok()) << status.to_string();
  bootstrap::say_to_parent("calls");
  while (status.ok()) {
    status = comm->all_reduce(data.data(), data.data(), data.size(), DataType::kInt64, ReduceOp::kMax);
  }
  EXPECT_THAT(status.code(), AnyOf(Code::kRemote, Code::kAborted)) << status.to_string();
  // A victim may see the end of another victim before its own end.
  if (excludes(orders.lost, orders.rank)) return bootstrap::wait_for_parent();
  auto less = comm->shrink(orders.lost, ShrinkMode::kAbort);
  ASSERT_TRUE(less.ok()) << less.status().to_string();
  EXPECT_EQ(fault_of_sum(*less, orders.rank, members_without(orders.lost, kRanks), orders.seed), "");
  bootstrap::say_to_parent(testing::Test::HasFailure() ? "failed" : "shrunk");
}

/// The hubs of a job are in the processes of rank 0 and of a further rank: a job that loses all hubs shrinks, too.
void expect_shrink_after_kills(const std::vector<int>& victims, size_t setting, uint64_t seed) {
  SCOPED_TRACE(kSettings.at(setting).name);
  const auto secret = UniqueId::create("=lo");
  ASSERT_TRUE(secret.ok());
  const UniqueId id = *secret;
  std::deque<Child> children;
  for (int rank = 0; rank < kRanks; ++rank) {
    children.emplace_back("DISABLED_Child.ShrinksAfterALoss", to_text({id.to_string(), rank, setting, seed, victims}));
  }
  for (const Child& child : children) ASSERT_EQ(child.hear(), "calls");
  std::mt19937_64 random(seed);
  std::this_thread::sleep_for(std::chrono::microseconds(random() % 20'000));  // into the middle of a call
  for (const int victim : victims) children[static_cast<size_t>(victim)].kill();
  for (int rank = 0; rank < kRanks; ++rank) {
    if (excludes(victims, rank)) continue;
    Child& child = children[static_cast<size_t>(rank)];
    EXPECT_EQ(child.hear(), "shrunk") << "rank " << rank;
    EXPECT_EQ(child.wait(), 0) << "rank " << rank;
  }
}

TEST(ShrinkOfProcesses, AfterTwoRanksWereKilled) {
  const uint64_t seed = new_seed();
  for (size_t setting = 0; setting < kSettings.size(); ++setting) expect_shrink_after_kills({3, 6}, setting, seed);
}

TEST(ShrinkOfProcesses, AfterRankZeroWasKilled) {
  expect_shrink_after_kills({0, 4}, 2, new_seed());
}

}  // namespace
}  // namespace tutti
