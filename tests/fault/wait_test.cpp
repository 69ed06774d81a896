// SPDX-License-Identifier: Apache-2.0
// Ranks that wait without progress: one of them warns, and names the missing rank and its call.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <functional>
#include <iterator>
#include <mutex>
#include <thread>

#include "log/log.h"
#include "tutti/communicator.h"
#include "unit/bootstrap_group.h"

namespace tutti {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// The warnings of this process.
class Warnings {
 public:
  Warnings() {
    log::set_filter([this](log::Level level, int, std::string_view text) {
      const std::lock_guard lock(mutex_);
      if (level == log::Level::kWarn) lines_.emplace_back(text);
      changed_.notify_all();
      return false;
    });
  }
  ~Warnings() { log::set_filter(nullptr); }
  /// The warnings with this text, once there are `count`. A slow machine gives cause for further warnings.
  std::vector<std::string> wait_for(size_t count, std::string_view text) {
    std::vector<std::string> lines;
    const auto are_there = [&] {
      lines.clear();
      std::ranges::copy_if(lines_, std::back_inserter(lines),
                           [&](const std::string& line) { return line.find(text) != std::string::npos; });
      return lines.size() >= count;
    };
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::seconds(60), are_there);
    return lines;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> lines_;
};

Result<Communicator> join(const UniqueId& id, int rank, int ranks, const char* warn, const char* transport = "auto") {
  return Communicator::create(
      id, rank, ranks,
      {"",
       {{"plugins.path", TUTTI_BINARY_DIR "/lib/tutti/plugins"}, {"transport", transport}, {"timeouts.warn", warn}}});
}

void on_ranks(int ranks, const char* warn, const std::function<void(Communicator&)>& body,
              const char* transport = "auto") {
  const auto id = UniqueId::create("=lo");
  ASSERT_TRUE(id.ok()) << id.status().to_string();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      auto comm = join(*id, rank, ranks, warn, transport);
      ASSERT_TRUE(comm.ok()) << comm.status().to_string();
      body(*comm);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

Status all_reduce(Communicator& comm) {
  std::array<float, 8> in{}, out{};
  return comm.all_reduce(in.data(), out.data(), in.size(), DataType::kFloat32, ReduceOp::kSum);
}

TEST(Warning, NamesARankInApplicationCode) {
  Warnings warnings;
  std::vector<std::string> lines;
  on_ranks(4, "500ms", [&](Communicator& comm) {
    for (int call = 0; call < 3; ++call) EXPECT_TRUE(all_reduce(comm).ok());
    if (comm.rank() == 2) lines = warnings.wait_for(2, "ranks 0,1,3 wait in call 4");
    EXPECT_TRUE(all_reduce(comm).ok());
  });
  ASSERT_GE(lines.size(), 2u) << "a warning, and one after twice the time";
  for (const std::string& line : lines) {
    EXPECT_THAT(line, AllOf(HasSubstr("no progress for "),
                            HasSubstr("ranks 0,1,3 wait in call 4 (all_reduce of 8 × float32, sum) since "),
                            HasSubstr("for rank 2; rank 2 has done call 3, all_reduce of 8 × float32, sum, and is in "
                                      "application code")));
  }
}

TEST(Warning, NamesTheStateOfTheConnections) {
  Warnings warnings;
  std::vector<std::string> lines;
  on_ranks(
      2, "300ms",
      [&](Communicator& comm) {
        EXPECT_TRUE(all_reduce(comm).ok());
        if (comm.rank() == 1) lines = warnings.wait_for(1, "rank 1 has done call 1");
        EXPECT_TRUE(all_reduce(comm).ok());
      },
      "net");
  ASSERT_GE(lines.size(), 1u);
  EXPECT_THAT(lines[0], AllOf(HasSubstr("for rank 1; rank 1 has done call 1"), HasSubstr("; network 'socket', "),
                              HasSubstr("from rank 1 ("), HasSubstr("connected")));
}

TEST(Warning, NamesAMissingMessage) {
  Warnings warnings;
  on_ranks(3, "300ms", [&](Communicator& comm) {
    int value = 7;
    if (comm.rank() == 0) {
      EXPECT_TRUE(comm.recv(&value, 1, DataType::kInt32, 1).ok());
    } else if (comm.rank() == 1) {
      EXPECT_THAT(
          warnings.wait_for(1, "rank 1 has made no call").at(0),
          AllOf(HasSubstr("rank 0 waits in message 1 from rank 1 to rank 0"), HasSubstr("for rank 1; rank 1 has "
                                                                                        "made no call")));
      EXPECT_TRUE(comm.send(&value, 1, DataType::kInt32, 0).ok());
    }
  });
}

TEST(Warning, CanBeOff) {
  Warnings warnings;
  std::atomic<int> waiting{0};
  on_ranks(2, "0s", [&](Communicator& comm) {
    if (comm.rank() == 1) {
      while (waiting == 0) std::this_thread::yield();
      std::this_thread::sleep_for(std::chrono::milliseconds(600));  // not a synchronisation: time for a warning
    }
    waiting = 1;
    EXPECT_TRUE(all_reduce(comm).ok());
  });
  EXPECT_THAT(warnings.wait_for(0, ""), testing::IsEmpty());
}

/// Rank 2 of 3, which stops itself after its first call until the parent resumes it.
TEST(DISABLED_Child, StopsItself) {
  const auto id = UniqueId::from_string(bootstrap::child_argument());
  ASSERT_TRUE(id.ok()) << id.status().to_string();
  auto comm = join(*id, 2, 3, "10s");
  ASSERT_TRUE(comm.ok()) << comm.status().to_string();
  EXPECT_TRUE(all_reduce(*comm).ok());
  bootstrap::say_to_parent(std::to_string(::getpid()));
  ::raise(SIGSTOP);
  EXPECT_TRUE(all_reduce(*comm).ok());
}

TEST(Warning, NamesAStoppedProcess) {
  Warnings warnings;
  const auto id = UniqueId::create("=lo");
  ASSERT_TRUE(id.ok()) << id.status().to_string();
  bootstrap::Child child("DISABLED_Child.StopsItself", id->to_string());
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      auto comm = join(*id, rank, 3, "300ms");
      ASSERT_TRUE(comm.ok()) << comm.status().to_string();
      EXPECT_TRUE(all_reduce(*comm).ok());
      EXPECT_TRUE(all_reduce(*comm).ok());  // ends once the child goes on
    });
  }
  const pid_t pid = std::stoi(child.hear());
  const std::vector<std::string> lines = warnings.wait_for(1, "ranks 0,1 wait in call 2");
  EXPECT_EQ(::kill(pid, SIGCONT), 0);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(child.wait(), 0);
  ASSERT_FALSE(lines.empty());
  EXPECT_THAT(lines.front(), AllOf(HasSubstr("ranks 0,1 wait in call 2"), HasSubstr("for rank 2"),
                                   HasSubstr("rank 2 does not answer: it is stopped, or cut off")));
}

}  // namespace
}  // namespace tutti
