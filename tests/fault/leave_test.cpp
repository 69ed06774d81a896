// SPDX-License-Identifier: Apache-2.0
// Ranks that leave in good order while other ranks still make calls: the calls fail at once, with a text that names
// the rank. Jobs whose ranks make the same calls and then leave at different times do not fail.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <random>
#include <sstream>
#include <stdexcept>
#include <thread>

#include "tutti/communicator.h"
#include "unit/bootstrap_group.h"

namespace tutti {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using Clock = std::chrono::steady_clock;

/// How the ranks of a test are joined.
struct Setting {
  const char* name;
  const char* transport;
  bool two_hosts;  ///< two pretended hosts: the lower half of the ranks on the first, the upper half on the second
};
constexpr std::array<Setting, 3> kSettings = {
    {{"shared memory", "auto", false}, {"network", "net", false}, {"two hosts", "auto", true}}};

/// Far below the tests' timeouts.operation, also on a busy machine and under ThreadSanitizer.
constexpr std::chrono::seconds kPrompt{10};
constexpr const char* kOperationTimeout = "300s";
/// Time limit for all ranks of a test, with their destructors.
constexpr std::chrono::seconds kEnd{60};

Result<Communicator> join(const UniqueId& id, int rank, int ranks, const Setting& setting) {
  Options options;
  options.settings = {{"plugins.path", TUTTI_BINARY_DIR "/lib/tutti/plugins"},
                      {"timeouts.operation", kOperationTimeout},
                      {"transport", setting.transport}};
  if (setting.two_hosts) options.settings.emplace_back("host", rank < ranks / 2 ? "a" : "b");
  return Communicator::create(id, rank, ranks, options);
}

/// Runs `body` on `ranks` threads; it leaves when it destroys its communicator, at the latest when it returns.
void on_ranks(int ranks, const Setting& setting, const std::function<void(Communicator)>& body) {
  SCOPED_TRACE(setting.name);
  const auto id = UniqueId::create("=lo");
  ASSERT_TRUE(id.ok()) << id.status().to_string();
  const auto start = Clock::now();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      auto comm = join(*id, rank, ranks, setting);
      ASSERT_TRUE(comm.ok()) << comm.status().to_string();
      body(*std::move(comm));
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LT(Clock::now() - start, kEnd);
}

std::string text_of(const Status& status) {
  return std::string(status.text());
}

Status all_reduce(Communicator& comm, size_t count = 8) {
  std::vector<float> in(count, 1), out(count);
  Status done = comm.all_reduce(in.data(), out.data(), count, DataType::kFloat32, ReduceOp::kSum);
  if (done.ok()) {
    EXPECT_EQ(out, std::vector<float>(count, static_cast<float>(comm.size())));
  }
  return done;
}

/// The call fails, soon, and so do all later calls.
void expect_told(Communicator& comm, const std::function<Status()>& call,
                 const testing::Matcher<const std::string&>& says) {
  const auto start = Clock::now();
  const Status status = call();
  EXPECT_LT(Clock::now() - start, kPrompt);
  EXPECT_EQ(status.code(), Code::kRemote) << status.to_string();
  EXPECT_THAT(text_of(status), says);
  EXPECT_EQ(comm.async_error().text(), status.text());
  EXPECT_EQ(all_reduce(comm).text(), status.text());
}

TEST(Leave, BeforeTheFirstCall) {
  for (const Setting& setting : kSettings) {
    on_ranks(4, setting, [](Communicator comm) {
      if (comm.rank() == 3) return;
      expect_told(
          comm, [&] { return all_reduce(comm); },
          AllOf(HasSubstr("rank 3 left before call 1 (all_reduce of 8 × float32, sum)"),
                HasSubstr("rank 3 has made no call"), HasSubstr("look for an early return or an exception on rank 3")));
    });
  }
}

/// The remaining ranks wait in the call when rank 1 leaves.
TEST(Leave, WhileTheOthersWait) {
  for (const Setting& setting : kSettings) {
    std::atomic<int> waiting{0};
    on_ranks(4, setting, [&](Communicator comm) {
      ASSERT_TRUE(all_reduce(comm).ok());
      if (comm.rank() == 1) {
        while (waiting.load() < 3) std::this_thread::yield();
        std::this_thread::sleep_for(std::chrono::milliseconds(50));  // not a synchronisation: they sleep by then
        return;
      }
      ++waiting;
      expect_told(
          comm, [&] { return all_reduce(comm, 100); },
          AllOf(HasSubstr("rank 1 left before call 2 (all_reduce of 100 × float32, sum)"),
                HasSubstr("rank 1 has done call 1, all_reduce of 8 × float32, sum")));
    });
  }
}

/// Also rank 0. The hub is in this process and stays.
TEST(Leave, InTheMiddleOfASequence) {
  for (const Setting& setting : kSettings) {
    for (const int leaver : {0, 2}) {
      on_ranks(3, setting, [&](Communicator comm) {
        for (int call = 1; call <= 17; ++call) {
          if (comm.rank() == leaver && call == 17) return;
          if (call < 17) {
            EXPECT_TRUE(all_reduce(comm).ok());
          } else {
            expect_told(
                comm, [&] { return all_reduce(comm); },
                HasSubstr("rank " + std::to_string(leaver) + " left before call 17 (all_reduce"));
          }
        }
      });
    }
  }
}

TEST(Leave, ByAnException) {
  for (const Setting& setting : kSettings) {
    on_ranks(3, setting, [](Communicator comm) {
      try {
        Communicator mine = std::move(comm);
        EXPECT_TRUE(all_reduce(mine).ok());
        if (mine.rank() == 1) throw std::runtime_error("the application's own");
        expect_told(
            mine, [&] { return all_reduce(mine); },
            AllOf(HasSubstr("rank 1 left before call 2"), HasSubstr("and leaves because of an exception")));
      } catch (const std::runtime_error&) {
        return;
      }
    });
  }
}

/// The ranks that stay have sent each other more data than slots and sockets hold. This data is not received any more,
/// and no destructor waits for it.
TEST(Leave, FromACallOfMuchData) {
  for (const Setting& setting : kSettings) {
    on_ranks(4, setting, [](Communicator comm) {
      EXPECT_TRUE(all_reduce(comm).ok());
      if (comm.rank() == 2) return;
      expect_told(
          comm, [&] { return all_reduce(comm, size_t{8} << 20); }, HasSubstr("rank 2 left before call 2"));
    });
  }
}

TEST(Leave, EveryCollectiveNoticesIt) {
  using Run = std::function<Status(Communicator&, std::vector<float>&, std::vector<float>&)>;
  const auto kFloat = DataType::kFloat32;
  const std::vector<Run> collectives = {
      [&](auto& c, auto& in, auto& out) { return c.reduce_scatter(in.data(), out.data(), 4, kFloat, ReduceOp::kSum); },
      [&](auto& c, auto& in, auto& out) { return c.all_gather(in.data(), out.data(), 4, kFloat); },
      [&](auto& c, auto& in, auto& out) { return c.all_to_all(in.data(), out.data(), 4, kFloat); },
      [&](auto& c, auto& in, auto& out) { return c.broadcast(in.data(), out.data(), 4, kFloat, 2); },
      [&](auto& c, auto&, auto&) { return c.barrier(); }};
  for (const Run& collective : collectives) {
    on_ranks(3, kSettings[0], [&](Communicator comm) {
      std::vector<float> in(12, 1), out(12);
      EXPECT_TRUE(collective(comm, in, out).ok());
      if (comm.rank() == 2) return;
      expect_told(
          comm, [&] { return collective(comm, in, out); }, HasSubstr("rank 2 left before call 2"));
    });
  }
}

// Messages.

TEST(LeaveMessages, WithoutTheMessageThatIsAwaited) {
  for (const Setting& setting : kSettings) {
    on_ranks(2, setting, [](Communicator comm) {
      int value = 0;
      if (comm.rank() == 1) {
        EXPECT_TRUE(comm.send(&value, 1, DataType::kInt32, 0).ok());
        return;
      }
      EXPECT_TRUE(comm.recv(&value, 1, DataType::kInt32, 1).ok());
      expect_told(
          comm, [&] { return comm.recv(&value, 1, DataType::kInt32, 1); },
          AllOf(HasSubstr("rank 1 left before it sent message 2 to rank 0 (send_recv of 1 × int32)"),
                HasSubstr("rank 1 has done send_recv of 1 × int32 after call 0")));
    });
  }
}

/// More than slots, and sockets, hold.
TEST(LeaveMessages, WithoutTakingWhatIsSent) {
  for (const Setting& setting : kSettings) {
    on_ranks(2, setting, [](Communicator comm) {
      if (comm.rank() == 1) return;
      const std::vector<float> large(size_t{16} << 20);
      expect_told(
          comm, [&] { return comm.send(large.data(), large.size(), DataType::kFloat32, 1); },
          HasSubstr("rank 1 left before it received message 1 of rank 0"));
    });
  }
}

/// Messages that were sent before the sender left arrive, whenever they are received, and ranks that need nothing of
/// the rank that left go on.
TEST(LeaveMessages, AfterSendingAll) {
  for (const Setting& setting : kSettings) {
    std::atomic<bool> left{false};
    on_ranks(4, setting, [&](Communicator comm) {
      std::array<int, 3> values{};
      if (comm.rank() == 3) {
        for (int i = 0; i < 3; ++i) EXPECT_TRUE(comm.send(&i, 1, DataType::kInt32, 0).ok());
        { const Communicator gone = std::move(comm); }
        left = true;
        return;
      }
      while (!left) std::this_thread::yield();
      if (comm.rank() == 0) {
        for (int& value : values) EXPECT_TRUE(comm.recv(&value, 1, DataType::kInt32, 3).ok());
        EXPECT_EQ(values, (std::array<int, 3>{0, 1, 2}));
      }
      // Among the ranks that stay.
      for (int round = 0; round < 10; ++round) {
        int got = -1;
        const int to = (comm.rank() + 1) % 3;
        const int from = (comm.rank() + 2) % 3;
        EXPECT_TRUE(group_start().ok());
        EXPECT_TRUE(comm.send(&round, 1, DataType::kInt32, to).ok());
        EXPECT_TRUE(comm.recv(&got, 1, DataType::kInt32, from).ok());
        const Status done = group_end();
        EXPECT_TRUE(done.ok()) << done.to_string();
        EXPECT_EQ(got, round);
      }
    });
  }
}

/// Rank 0 needs rank 1, which needs rank 2. Rank 1 keeps its broken communicator: no rank waits for its destructor.
TEST(LeaveMessages, WhichARankInBetweenNeeds) {
  for (const Setting& setting : kSettings) {
    std::atomic<bool> told{false};
    on_ranks(3, setting, [&](Communicator comm) {
      if (comm.rank() == 2) return;
      int value = 0;
      const bool between = comm.rank() == 1;
      expect_told(
          comm, [&] { return comm.recv(&value, 1, DataType::kInt32, between ? 2 : 1); },
          between ? AllOf(HasSubstr("rank 2 left before it sent message 1 to rank 1"), HasSubstr("has made no call"))
                  : AllOf(HasSubstr("rank 1 left before it sent message 1 to rank 0"),
                          HasSubstr("rank 1 failed in send_recv of 1 × int32 after call 0 because rank 2 left")));
      if (!between) told = true;
      while (!told) std::this_thread::yield();
    });
  }
}

/// Messages between some ranks do not disturb the numbers of collective calls.
TEST(LeaveMessages, DoNotCountAsCollectiveCalls) {
  on_ranks(3, kSettings[0], [](Communicator comm) {
    int value = 0;
    for (int i = 0; i < 5; ++i) {
      const Status done = comm.rank() == 0   ? comm.send(&value, 1, DataType::kInt32, 1)
                          : comm.rank() == 1 ? comm.recv(&value, 1, DataType::kInt32, 0)
                                             : Status();
      EXPECT_TRUE(done.ok()) << done.to_string();
    }
    EXPECT_TRUE(all_reduce(comm).ok());
    EXPECT_TRUE(all_reduce(comm).ok());
    if (comm.rank() == 2) return;
    expect_told(
        comm, [&] { return all_reduce(comm); },
        AllOf(HasSubstr("rank 2 left before call 3"), HasSubstr("rank 2 has done call 2, all_reduce")));
  });
}

// Communicators made of communicators.

TEST(LeaveSplit, NumbersAreThoseOfTheCommunicator) {
  on_ranks(4, kSettings[0], [](Communicator comm) {
    for (int call = 0; call < 5; ++call) EXPECT_TRUE(all_reduce(comm).ok());
    auto half = comm.split(comm.rank() / 2, comm.rank());
    ASSERT_TRUE(half.ok() && half->has_value());
    EXPECT_TRUE(all_reduce(**half).ok());
    if (comm.rank() == 3) {
      half->reset();
    } else if (comm.rank() == 2) {
      expect_told(
          **half, [&] { return all_reduce(**half); }, HasSubstr("rank 1 left before call 2 (all_reduce"));
    } else {
      EXPECT_TRUE(all_reduce(**half).ok());
    }
    EXPECT_TRUE(all_reduce(comm).ok());
  });
}

TEST(LeaveSplit, ASplitNamesTheRankThatIsGone) {
  on_ranks(3, kSettings[0], [](Communicator comm) {
    EXPECT_TRUE(all_reduce(comm).ok());
    if (comm.rank() == 1) return;
    const auto start = Clock::now();
    const auto half = comm.split(0, 0);
    EXPECT_LT(Clock::now() - start, kPrompt);
    EXPECT_EQ(half.status().code(), Code::kRemote);
    EXPECT_THAT(text_of(half.status()), AllOf(HasSubstr("rank 1 has left"), HasSubstr("has done call 1, all_reduce")));
  });
}

// Good ends.

#ifdef __SANITIZE_THREAD__
constexpr int kRepetitions = 10;
#else
constexpr int kRepetitions = 40;
#endif

/// All ranks make the same calls, at their own pace, and leave as soon as they have made them.
void end_with_skew(const Setting& setting, int seed) {
  constexpr int kRanks = 4;
  on_ranks(kRanks, setting, [&](Communicator comm) {
    std::mt19937 shared(static_cast<uint32_t>(seed));  // the same calls on all ranks
    std::mt19937 own(static_cast<uint32_t>(seed * kRanks + comm.rank()));
    const int calls = std::uniform_int_distribution(1, 4)(shared);
    for (int call = 0; call < calls; ++call) {
      const auto count = std::uniform_int_distribution<size_t>(1, 40000)(shared);
      const int root = std::uniform_int_distribution(0, kRanks - 1)(shared);
      const bool broadcast = std::uniform_int_distribution(0, 1)(shared) == 1;
      const auto pause = std::chrono::microseconds(std::uniform_int_distribution(0, 3000)(own));
      std::this_thread::sleep_for(pause);  // not a synchronisation: makes ranks slow
      std::vector<float> in(count, static_cast<float>(comm.rank() + 1)), out(count);
      const Status done = broadcast ? comm.broadcast(in.data(), out.data(), count, DataType::kFloat32, root)
                                    : comm.all_reduce(in.data(), out.data(), count, DataType::kFloat32, ReduceOp::kSum);
      ASSERT_TRUE(done.ok()) << "seed " << seed << ", call " << call << ": " << done.to_string();
      EXPECT_EQ(out, std::vector<float>(count, static_cast<float>(broadcast ? root + 1 : 10)));
    }
  });
}

TEST(GoodEnd, AtDifferentTimes) {
  const int first = static_cast<int>(std::random_device()() >> 2);
  for (const Setting& setting : kSettings) {
    for (int i = 0; i < kRepetitions; ++i) end_with_skew(setting, (first + i) % 100'000'000);
  }
}

/// The root of a broadcast has ended its part, and leaves, before the other ranks begin: slots hold its data. Over a
/// network the data is more than a socket holds, so the root stays until the data is out.
TEST(GoodEnd, OfARootWhoseDataNobodyHasTaken) {
  for (const Setting& setting : kSettings) {
    std::atomic<bool> gone{false};
    on_ranks(2, setting, [&](Communicator comm) {
      std::vector<float> data(20000, comm.rank() == 0 ? 7.0f : 0.0f);
      if (comm.rank() == 0) {
        EXPECT_TRUE(comm.broadcast(data.data(), data.data(), data.size(), DataType::kFloat32, 0).ok());
        { const Communicator left = std::move(comm); }
        gone = true;
        return;
      }
      while (!gone && std::string_view(setting.name) == "shared memory") std::this_thread::yield();
      const Status done = comm.broadcast(data.data(), data.data(), data.size(), DataType::kFloat32, 0);
      ASSERT_TRUE(done.ok()) << done.to_string();
      EXPECT_EQ(data, std::vector<float>(data.size(), 7.0f));
    });
  }
}

// Processes.

void expect_told(Communicator& comm, const std::string& says) {
  expect_told(
      comm, [&] { return all_reduce(comm); }, HasSubstr(says));
}

void leave_after_three_calls(Communicator comm) {
  for (int call = 0; call < 3; ++call) EXPECT_TRUE(all_reduce(comm).ok());
  if (comm.rank() != 2) expect_told(comm, "rank 2 left before call 4 (all_reduce");
}

/// The process of rank 0 ends, and the hub with it.
void leave_with_the_hub(Communicator comm) {
  EXPECT_TRUE(all_reduce(comm).ok());
  if (comm.rank() != 0) expect_told(comm, "rank 0 left before call 2 (all_reduce");
}

void end_in_turns(Communicator comm) {
  for (int call = 0; call < 3; ++call) {
    // Not a synchronisation: each call has a slow rank.
    std::this_thread::sleep_for(std::chrono::milliseconds(call == comm.rank() ? 5 : 0));
    EXPECT_TRUE(all_reduce(comm, 5000).ok());
  }
}

constexpr std::array<void (*)(Communicator), 3> kBodies = {leave_after_three_calls, leave_with_the_hub, end_in_turns};

/// One rank of in_processes(). The process ends in good order: its hub, if it has one, announces its end.
TEST(DISABLED_Child, IsOneRank) {
  std::istringstream argument(bootstrap::child_argument());
  size_t body = 0, setting = 0;
  int rank = 0, ranks = 0;
  std::string meeting;
  argument >> body >> setting >> rank >> ranks >> meeting;
  const auto id = rank == 0 ? UniqueId::create("=lo") : UniqueId::from_string(meeting);
  ASSERT_TRUE(id.ok()) << id.status().to_string();
  if (rank == 0) bootstrap::say_to_parent(id->to_string());
  auto comm = join(*id, rank, ranks, kSettings.at(setting));
  ASSERT_TRUE(comm.ok()) << comm.status().to_string();
  kBodies.at(body)(*std::move(comm));
}

/// Runs the body in a process for each rank. The process of rank 0 makes the unique id, so the hub lives there.
void in_processes(int ranks, size_t setting, void (*body)(Communicator)) {
  SCOPED_TRACE(kSettings.at(setting).name);
  const auto index = std::find(kBodies.begin(), kBodies.end(), body) - kBodies.begin();
  std::vector<std::unique_ptr<bootstrap::Child>> children;
  std::string meeting;
  for (int rank = 0; rank < ranks; ++rank) {
    std::ostringstream argument;
    argument << index << ' ' << setting << ' ' << rank << ' ' << ranks << ' ' << meeting;
    children.push_back(std::make_unique<bootstrap::Child>("DISABLED_Child.IsOneRank", argument.str()));
    if (rank == 0) meeting = children.front()->hear();
  }
  for (size_t rank = 0; rank < children.size(); ++rank) EXPECT_EQ(children[rank]->wait(), 0) << "rank " << rank;
}

TEST(LeaveProcesses, OneRank) {
  for (size_t setting = 0; setting < kSettings.size(); ++setting) in_processes(4, setting, leave_after_three_calls);
}

TEST(LeaveProcesses, RankZeroAndTheHub) {
  for (size_t setting = 0; setting < kSettings.size(); ++setting) in_processes(3, setting, leave_with_the_hub);
}

TEST(LeaveProcesses, GoodEndsAtDifferentTimes) {
  for (size_t setting = 0; setting < kSettings.size(); ++setting) {
    for (int repetition = 0; repetition < 5; ++repetition) in_processes(3, setting, end_in_turns);
  }
}

}  // namespace
}  // namespace tutti
