// SPDX-License-Identifier: Apache-2.0
// Mistakes of applications, and their effect on ranks: each rank gets an error that names the mistake, the place and
// the rank, and nothing hangs.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <mutex>
#include <thread>

#include "log/log.h"
#include "tutti/communicator.h"

namespace tutti {
namespace {

using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;
using testing::Not;

using Settings = std::vector<std::pair<std::string, std::string>>;

/// Runs `body` on `ranks` threads, each with its communicator.
void on_ranks(int ranks, Settings settings, const std::function<void(Communicator&)>& body) {
  settings.emplace_back("plugins.path", TUTTI_BINARY_DIR "/lib/tutti/plugins");
  settings.insert(settings.begin(), {"timeouts.operation", "20s"});  // a test's own setting comes later and counts
  auto id = UniqueId::create("=lo");
  ASSERT_TRUE(id.ok()) << id.status().to_string();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      auto comm = Communicator::create(*id, rank, ranks, {"", settings});
      ASSERT_TRUE(comm.ok()) << comm.status().to_string();
      body(*comm);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

std::string text_of(const Status& status) {
  return std::string(status.text());
}

TEST(Mismatch, DifferentCountsNameBothCalls) {
  for (const char* protocol : {"simple", "ll"}) {
    for (const char* transport : {"shm", "net"}) {
      on_ranks(2, {{"protocol", protocol}, {"transport", transport}}, [&](Communicator& comm) {
        std::vector<float> in(64), out(64);
        const size_t count = comm.rank() == 0 ? 64 : 48;
        const Status status = comm.all_reduce(in.data(), out.data(), count, DataType::kFloat32, ReduceOp::kSum);
        EXPECT_EQ(status.code(), Code::kMismatch) << protocol << " " << transport << ": " << status.to_string();
        EXPECT_THAT(text_of(status), AllOf(HasSubstr("64"), HasSubstr("48"), HasSubstr("rank 0"), HasSubstr("rank 1")));
        EXPECT_EQ(comm.async_error().code(), Code::kMismatch);
        EXPECT_EQ(comm.all_reduce(in.data(), out.data(), 1, DataType::kFloat32, ReduceOp::kSum).code(),
                  Code::kMismatch);
      });
    }
  }
}

TEST(Mismatch, SizesOfRegisteredBuffersNameRanks) {
  on_ranks(3, {}, [](Communicator& comm) {
    std::vector<float> buffer(64);
    const size_t bytes = comm.rank() == 1 ? 128 : 256;
    const Status status = comm.register_buffer(buffer.data(), bytes).status();
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_THAT(text_of(status), HasSubstr("128 bytes on rank 1 and 256 bytes on ranks 0,2"));
    void* const none = comm.rank() == 2 ? nullptr : buffer.data();
    EXPECT_THAT(text_of(comm.register_buffer(none, 256).status()), HasSubstr("null on rank 2"));
    EXPECT_TRUE(comm.barrier().ok());
  });
}

TEST(Registration, OnTheHostMakesNoDifferenceAndMayOutliveItsCommunicator) {
  std::array<Registration, 2> kept;
  on_ranks(2, {}, [&](Communicator& comm) {
    std::vector<float> in(8, 1), out(16);
    auto registration = comm.register_buffer(out.data(), 64);
    ASSERT_TRUE(registration.ok()) << registration.status().to_string();
    EXPECT_FALSE(registration->direct());
    EXPECT_TRUE(comm.all_gather(in.data(), out.data(), 8, DataType::kFloat32).ok());
    EXPECT_EQ(out, std::vector<float>(16, 1));
    kept[static_cast<size_t>(comm.rank())] = *std::move(registration);
  });
}

// A rank without a processor: ranks that send to it go on meanwhile.
TEST(Waiting, SendersOfSmallMessagesRunFarAhead) {
  constexpr int kCalls = 200;
  const auto repeat = [](const std::function<Status()>& call) {
    Status status;
    for (int i = 0; i < kCalls && status.ok(); ++i) status = call();
    EXPECT_TRUE(status.ok()) << status.to_string();
  };
  for (const auto& [protocol, count] : {std::pair<const char*, size_t>{"simple", 256}, {"ll", 2}}) {
    std::atomic<int> roots = 0;   // ranks that have made all their broadcasts
    std::atomic<int> leaves = 0;  // ranks that have made all their reductions
    const Settings settings = {{"protocol", protocol}, {"algorithm", "direct"}, {"timeouts.operation", "5s"}};
    on_ranks(3, settings, [&, count = count](Communicator& comm) {
      const bool is_root = comm.rank() == 0;
      std::vector<float> data(count, 1), sum(count);
      if (!is_root) roots.wait(0);
      repeat([&] { return comm.broadcast(data.data(), data.data(), count, DataType::kFloat32, 0); });
      if (is_root) ++roots;
      roots.notify_all();
      for (int done = leaves; is_root && done < 2; done = leaves) leaves.wait(done);
      repeat([&] { return comm.reduce(data.data(), sum.data(), count, DataType::kFloat32, ReduceOp::kSum, 0); });
      if (!is_root) ++leaves;
      leaves.notify_all();
      EXPECT_EQ(sum, std::vector<float>(count, is_root ? 3.0f : 0.0f));
    });
  }
}

TEST(Mismatch, DifferentTypesAndCollectives) {
  on_ranks(3, {}, [](Communicator& comm) {
    std::vector<double> in(64), out(64);
    const DataType type = comm.rank() == 2 ? DataType::kFloat64 : DataType::kFloat32;
    const Status status = comm.all_reduce(in.data(), out.data(), 16, type, ReduceOp::kSum);
    EXPECT_EQ(status.code(), Code::kMismatch) << status.to_string();
    EXPECT_THAT(text_of(status), AllOf(HasSubstr("float32"), HasSubstr("float64")));
  });
  on_ranks(2, {{"algorithm", "ring"}}, [](Communicator& comm) {
    std::vector<float> in(64), out(64);
    const Status status = comm.rank() == 0
                              ? comm.all_reduce(in.data(), out.data(), 16, DataType::kFloat32, ReduceOp::kSum)
                              : comm.all_gather(in.data(), out.data(), 16, DataType::kFloat32);
    EXPECT_EQ(status.code(), Code::kMismatch) << status.to_string();
    EXPECT_THAT(text_of(status), AllOf(HasSubstr("all_reduce"), HasSubstr("all_gather")));
  });
}

TEST(Arguments, AreNamedAndBreakNothing) {
  on_ranks(2, {}, [](Communicator& comm) {
    std::vector<float> in(8, 1.0f), out(8);
    const auto expect = [](const Status& status, const char* text) {
      EXPECT_EQ(status.code(), Code::kInvalidArgument) << status.to_string();
      EXPECT_THAT(text_of(status), HasSubstr(text));
    };
    expect(comm.all_reduce(nullptr, out.data(), 8, DataType::kFloat32, ReduceOp::kSum), "input is null");
    expect(comm.all_reduce(in.data(), nullptr, 8, DataType::kFloat32, ReduceOp::kSum), "output is null");
    expect(comm.all_reduce(in.data(), out.data(), static_cast<size_t>(-1), DataType::kFloat32, ReduceOp::kSum),
           "negative");
    expect(comm.all_gather(in.data(), out.data(), SIZE_MAX / 8, DataType::kFloat32), "larger than any buffer");
    expect(comm.all_reduce(in.data(), out.data(), 8, static_cast<DataType>(77), ReduceOp::kSum), "data type 77");
    expect(comm.all_reduce(in.data(), out.data(), 8, DataType::kFloat32, static_cast<ReduceOp>(9)), "reduction 9");
    expect(comm.broadcast(in.data(), out.data(), 8, DataType::kFloat32, 2), "root 2");
    expect(comm.reduce(in.data(), out.data(), 8, DataType::kFloat32, ReduceOp::kSum, -1), "root -1");
    expect(comm.send(in.data(), 8, DataType::kFloat32, 5), "peer 5");
    expect(comm.all_to_all(in.data(), in.data(), 4, DataType::kFloat32), "in place");
    const std::vector<size_t> one = {1};
    expect(comm.all_to_all_v(in.data(), one, one, out.data(), one, one, DataType::kFloat32), "send_counts");
    EXPECT_EQ(comm.all_reduce(in.data(), out.data(), 8, DataType::kFloat32, ReduceOp::kSum, &comm).code(),
              Code::kUnsupported);
    // Nothing is broken by any of that.
    const Status good = comm.all_reduce(in.data(), out.data(), 8, DataType::kFloat32, ReduceOp::kSum);
    EXPECT_TRUE(good.ok()) << good.to_string();
    EXPECT_EQ(out, std::vector<float>(8, 2.0f));
    EXPECT_TRUE(comm.all_reduce(nullptr, nullptr, 0, DataType::kFloat32, ReduceOp::kSum).ok());
  });
  EXPECT_EQ(group_end().code(), Code::kFailedPrecondition);
}

TEST(Abort, EndsEveryRanksCall) {
  for (const char* transport : {"shm", "net"}) {
    on_ranks(3, {{"transport", transport}}, [](Communicator& comm) {
      std::vector<float> in(1000), out(1000);
      if (comm.rank() == 1) {
        comm.abort("enough");
      } else {
        const Status status = comm.all_reduce(in.data(), out.data(), 1000, DataType::kFloat32, ReduceOp::kSum);
        EXPECT_EQ(status.code(), Code::kAborted) << status.to_string();
        EXPECT_THAT(text_of(status), HasSubstr("enough"));
      }
    });
  }
}

TEST(TimeOut, SaysWhatEveryRankDoes) {
  std::atomic<int> waiting{0};
  on_ranks(3, {{"timeouts.operation", "300ms"}}, [&](Communicator& comm) {
    std::vector<float> in(4), out(4);
    if (comm.rank() == 2) {
      while (waiting.load() < 2) std::this_thread::yield();
      return;
    }
    const Status status = comm.all_reduce(in.data(), out.data(), 4, DataType::kFloat32, ReduceOp::kSum);
    ++waiting;
    EXPECT_EQ(status.code(), Code::kTimeout);
    EXPECT_THAT(text_of(status), AllOf(HasSubstr("is in call 1, all_reduce"), HasSubstr("rank 2 has made no call"),
                                       Not(HasSubstr("has done"))));
  });
}

/// The rank that detects a failure logs an error; the ranks that are told log it at info.
TEST(Log, HasAFailureOnceAtErrorLevel) {
  const auto file = std::filesystem::path(testing::TempDir()) / fmt::format("tutti-failures-{}.log", getpid());
  on_ranks(4, {{"log.file", file.string()}, {"log.level", "info"}, {"algorithm", "ring"}}, [](Communicator& comm) {
    std::vector<float> in(64), out(64);
    const size_t count = comm.rank() == 3 ? 48 : 64;
    EXPECT_EQ(comm.all_reduce(in.data(), out.data(), count, DataType::kFloat32, ReduceOp::kSum).code(),
              Code::kMismatch);
  });
  EXPECT_TRUE(log::configure(log::Level::kWarn, "").ok());
  std::ifstream lines(file);
  int errors = 0;
  int told = 0;
  for (std::string line; std::getline(lines, line);) {
    errors += line.find(" error ") != std::string::npos && line.find("made different calls") != std::string::npos;
    told += line.find(" info ") != std::string::npos && line.find("is told of a failure") != std::string::npos;
  }
  std::filesystem::remove(file);
  // Two ranks may meet the difference at the same time.
  EXPECT_GE(errors, 1);
  EXPECT_LE(errors, 2);
  EXPECT_EQ(errors + told, 4);
}

TEST(Log, HasALinePerCallAtTrace) {
  const auto file = std::filesystem::path(testing::TempDir()) / fmt::format("tutti-trace-{}.log", getpid());
  on_ranks(2, {{"log.file", file.string()}, {"log.level", "trace"}, {"protocol", "ll"}}, [](Communicator& comm) {
    std::vector<float> in(64), out(64);
    EXPECT_TRUE(comm.all_reduce(in.data(), out.data(), 64, DataType::kFloat32, ReduceOp::kSum).ok());
    EXPECT_TRUE(comm.broadcast(in.data(), out.data(), 0, DataType::kFloat32, 1).ok());
    const int peer = 1 - comm.rank();
    EXPECT_TRUE((comm.rank() == 0 ? comm.send(in.data(), 8, DataType::kFloat32, peer)
                                  : comm.recv(in.data(), 8, DataType::kFloat32, peer))
                    .ok());
    EXPECT_FALSE(comm.broadcast(in.data(), out.data(), 64, DataType::kFloat32, 2).ok());
  });
  EXPECT_TRUE(log::configure(log::Level::kWarn, "").ok());
  std::ifstream stream(file);
  std::string lines{std::istreambuf_iterator<char>(stream), {}};
  std::filesystem::remove(file);
  const auto count = [&](const std::string& text) {
    int found = 0;
    for (size_t at = lines.find(text); at != std::string::npos; at = lines.find(text, at + 1)) ++found;
    return found;
  };
  EXPECT_EQ(count("call 1: all_reduce of 64 × float32, sum, "), 2) << lines;
  EXPECT_EQ(count("/ll ×1: done after "), 4) << lines;  // the all_reduce's and the message's
  EXPECT_EQ(count("call 2: broadcast of 0 × float32, root 1: done after "), 2) << lines;
  EXPECT_EQ(count("messages after call 2, the first: send_recv of 8 × float32 to rank 1"), 1) << lines;
  EXPECT_EQ(count("messages after call 2, the first: send_recv of 8 × float32 from rank 0"), 1) << lines;
}

TEST(Mismatch, NamesRootsMessagesAndEmptyCalls) {
  on_ranks(4, {}, [](Communicator& comm) {
    std::vector<float> data(10);
    EXPECT_TRUE(comm.barrier().ok());
    const int root = comm.rank() == 1 ? 2 : 0;
    Status status = comm.broadcast(data.data(), data.data(), 10, DataType::kFloat32, root);
    if (status.ok()) status = comm.barrier();  // a root does not wait for ranks
    EXPECT_EQ(status.code(), Code::kMismatch) << status.to_string();
    // A rank that has not made the call when the difference is found is named with its last call.
    EXPECT_THAT(text_of(status),
                AllOf(HasSubstr("call 2 is broadcast of 10 × float32, root 0 on rank"),
                      HasSubstr(" and broadcast of 10 × float32, root 2 on rank 1"),
                      AnyOf(HasSubstr("root 0 on ranks 0,2,3 and"), HasSubstr(" call 1, all_reduce of 1 × "))));
  });
  on_ranks(2, {}, [](Communicator& comm) {
    std::vector<float> in(10), out(10);
    const size_t count = comm.rank() == 0 ? 0 : 10;
    Status status = comm.reduce(in.data(), out.data(), count, DataType::kFloat32, ReduceOp::kSum, 0);
    if (status.ok()) status = comm.barrier();
    EXPECT_EQ(status.code(), Code::kMismatch) << status.to_string();
    EXPECT_THAT(text_of(status), AllOf(HasSubstr("reduce of 0 × float32, sum, root 0 on rank 0"),
                                       HasSubstr("reduce of 10 × float32, sum, root 0 on rank 1")));
  });
  // A message of a different size, which may use a different protocol.
  for (const size_t sent : {size_t{12}, size_t{50'000}}) {
    on_ranks(3, {}, [sent](Communicator& comm) {
      std::vector<float> data(sent);
      Status status;
      if (comm.rank() == 0) status = comm.recv(data.data(), 10, DataType::kFloat32, 2);
      if (comm.rank() == 2) status = comm.send(data.data(), sent, DataType::kFloat32, 0);
      if (status.ok()) status = comm.barrier();
      EXPECT_EQ(status.code(), Code::kMismatch) << status.to_string();
      EXPECT_THAT(text_of(status), AllOf(HasSubstr("message 1 from rank 2 to rank 0 is send_recv of 10 × float32 on "
                                                   "rank 0 and send_recv of "),
                                         HasSubstr("on rank 2")));
    });
  }
}

/// Two sends of a group arrive at two receives that are in no group.
TEST(Messages, GroupsNeedNotBeTheSameOnBothEnds) {
  on_ranks(2, {}, [](Communicator& comm) {
    std::array<int, 2> values{comm.rank() + 1, comm.rank() + 2};
    if (comm.rank() == 0) {
      EXPECT_TRUE(group_start().ok());
      for (int& value : values) EXPECT_TRUE(comm.send(&value, 1, DataType::kInt32, 1).ok());
      EXPECT_TRUE(group_end().ok());
      return;
    }
    for (int& value : values) {
      const Status status = comm.recv(&value, 1, DataType::kInt32, 0);
      EXPECT_TRUE(status.ok()) << status.to_string();
    }
    EXPECT_EQ(values, (std::array<int, 2>{1, 2}));
  });
}

TEST(End, NamesTheRankThatSkippedAnEqualCall) {
  std::string lines;
  std::mutex mutex;
  log::set_filter([&](log::Level level, int, std::string_view text) {
    const std::lock_guard lock(mutex);
    if (level <= log::Level::kError) lines += text;
    return false;
  });
  std::atomic<int> left{0};
  on_ranks(3, {}, [&](Communicator& comm) {
    std::vector<float> data(10);
    const int calls = comm.rank() == 2 ? 3 : 4;
    for (int i = 0; i < calls; ++i)
      EXPECT_TRUE(comm.broadcast(data.data(), data.data(), 10, DataType::kFloat32, 0).ok());
    // The remaining ranks have ended their calls before rank 2 leaves, and leave after it.
    ++left;
    while (comm.rank() == 2 && left < 3) std::this_thread::yield();
    if (comm.rank() == 2) return;
    while (comm.async_error().ok() && left < 4) {
      const auto gone = comm.exchange({});  // fails once rank 2 has left
      if (!gone.ok()) ++left;
    }
  });
  log::set_filter(nullptr);
  EXPECT_THAT(lines, AllOf(HasSubstr("ranks made different numbers of calls: 4 on rank"), HasSubstr("3 on rank 2")));
}

TEST(Init, DisagreementNamesRanksAndKeys) {
  auto id = UniqueId::create("=lo");
  ASSERT_TRUE(id.ok());
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      const Settings settings = {{"plugins.path", TUTTI_BINARY_DIR "/lib/tutti/plugins"},
                                 {"shm.slots", rank == 1 ? "16" : "8"}};
      auto comm = Communicator::create(*id, rank, 3, {"", settings});
      ASSERT_FALSE(comm.ok());
      EXPECT_EQ(comm.status().code(), Code::kMismatch) << comm.status().to_string();
      EXPECT_THAT(text_of(comm.status()), AllOf(HasSubstr("shm.slots"), HasSubstr("16"), HasSubstr("rank 1")));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(Init, MissingPluginFailsEveryRank) {
  auto id = UniqueId::create("=lo");
  ASSERT_TRUE(id.ok());
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      Settings settings = {{"plugins.path", TUTTI_BINARY_DIR "/lib/tutti/plugins"}};
      if (rank == 1) settings.emplace_back("plugins.protocol", "[simpel]");
      auto comm = Communicator::create(*id, rank, 2, {"", settings});
      ASSERT_FALSE(comm.ok());
      EXPECT_EQ(comm.status().code(), Code::kNotFound) << comm.status().to_string();
      EXPECT_THAT(text_of(comm.status()), AllOf(HasSubstr("simpel"), HasSubstr("did you mean 'simple'")));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(Init, WrongRankOrUnreachableHub) {
  auto id = UniqueId::create("=lo");
  ASSERT_TRUE(id.ok());
  EXPECT_EQ(Communicator::create(*id, 3, 2).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(Communicator::create(*id, 0, 0).status().code(), Code::kInvalidArgument);
  auto nowhere = UniqueId::from_string("127.0.0.1:1:00112233445566778899aabbccddeeff");
  ASSERT_TRUE(nowhere.ok());
  const Settings settings = {{"timeouts.bootstrap", "300ms"}, {"plugins.path", TUTTI_BINARY_DIR "/lib/tutti/plugins"}};
  const auto comm = Communicator::create(*nowhere, 0, 2, {"", settings});
  EXPECT_FALSE(comm.ok());
  EXPECT_THAT(text_of(comm.status()), HasSubstr("127.0.0.1:1"));
  EXPECT_FALSE(UniqueId::create_at("127.0.0.1:99999").ok());
}

}  // namespace
}  // namespace tutti
