// SPDX-License-Identifier: Apache-2.0
// Forked children of a process with communicators: their calls are refused, their destructors and exits do nothing to
// the parent, and they can make jobs of their own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "log/log.h"
#include "tutti/communicator.h"

// NOLINTBEGIN(bugprone-reserved-identifier): names that the runtimes of the sanitizers look up
// ThreadSanitizer lets a child of a process with threads start threads only on request.
extern "C" TUTTI_API const char* __tsan_default_options();
extern "C" const char* __tsan_default_options() {
  return "die_after_fork=0";
}
// Memory of the parent's threads, which do not exist in a child, would count as leaked there.
extern "C" TUTTI_API const char* __lsan_default_options();
extern "C" const char* __lsan_default_options() {
  return "detect_leaks=0";
}
// NOLINTEND(bugprone-reserved-identifier)

namespace tutti {
namespace {

using testing::HasSubstr;

constexpr unsigned kLimitSeconds = 120;  // for a child; also under ThreadSanitizer on a busy machine
constexpr const char* kDone = "done";

enum class End { kQuick, kExit };  ///< _exit(), which runs no destructor, or exit()

/// A forked child that runs `body` and tells the parent the text that this returns.
class Child {
 public:
  explicit Child(const std::function<std::string()>& body, End end = End::kExit) {
    std::array<int, 2> ends{};
    if (pipe(ends.data()) != 0) std::abort();
    pid_ = fork();
    if (pid_ != 0) {
      close(ends[1]);
      reads_ = ends[0];
      return;
    }
    alarm(kLimitSeconds);  // a child that hangs dies of SIGALRM
    const std::string text = body();
    const bool told = write(ends[1], text.data(), text.size()) == static_cast<ssize_t>(text.size());
    if (end == End::kQuick) _exit(told ? 0 : 1);
    std::exit(told ? 0 : 1);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() { close(reads_); }

  /// The text of the child, which must have ended with code 0.
  std::string join() {
    std::string text;
    std::array<char, 4096> buffer{};
    for (ssize_t bytes = 0; (bytes = read(reads_, buffer.data(), buffer.size())) > 0;)
      text.append(buffer.data(), static_cast<size_t>(bytes));
    int status = 0;
    EXPECT_EQ(waitpid(pid_, &status, 0), pid_);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "status " << status << ", told " << text;
    return text;
  }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = -1;
  int reads_ = -1;
};

Options options(const char* transport) {
  Options options;
  options.settings = {
      {"plugins.path", TUTTI_BINARY_DIR "/lib/tutti/plugins"}, {"timeouts.operation", "60s"}, {"transport", transport}};
  return options;
}

/// Runs `body` for each rank in a thread.
void on_each(size_t ranks, const std::function<void(size_t)>& body) {
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < ranks; ++rank) threads.emplace_back([&, rank] { body(rank); });
  for (std::thread& thread : threads) thread.join();
}

/// The communicators of all ranks, in this process.
std::vector<std::optional<Communicator>> make_job(size_t ranks, const char* transport, const UniqueId& id) {
  std::vector<std::optional<Communicator>> job(ranks);
  on_each(ranks, [&](size_t rank) {
    auto made = Communicator::create(id, static_cast<int>(rank), static_cast<int>(ranks), options(transport));
    ASSERT_TRUE(made.ok()) << made.status().to_string();
    job[rank] = *std::move(made);
  });
  return job;
}

std::vector<std::optional<Communicator>> make_job(size_t ranks, const char* transport) {
  const auto id = UniqueId::create("=lo");
  EXPECT_TRUE(id.ok()) << id.status().to_string();
  return make_job(ranks, transport, *id);
}

/// "done", or the failure.
std::string reduce(Communicator& comm, int32_t mine, int32_t expected) {
  std::vector<int32_t> input(500, mine), output(500, -1);
  const Status status = comm.all_reduce(input.data(), output.data(), 500, DataType::kInt32, ReduceOp::kSum);
  if (!status.ok()) return status.to_string();
  return output == std::vector<int32_t>(500, expected) ? kDone : "wrong sum " + std::to_string(output.front());
}

/// All ranks make `calls` calls, each with new values.
void expect_works(std::vector<std::optional<Communicator>>& job, int calls = 20) {
  const auto ranks = static_cast<int32_t>(job.size());
  on_each(job.size(), [&](size_t rank) {
    for (int32_t call = 0; call < calls; ++call) {
      const int32_t sum = ranks * call + ranks * (ranks - 1) / 2;
      ASSERT_EQ(reduce(*job[rank], call + static_cast<int32_t>(rank), sum), kDone) << "call " << call;
    }
  });
}

/// A job of two ranks, made and used by this process.
std::string run_own_job() {
  const auto id = UniqueId::create("=lo");
  if (!id.ok()) return id.status().to_string();
  std::array<std::string, 2> said;
  on_each(2, [&](size_t rank) {
    auto comm = Communicator::create(*id, static_cast<int>(rank), 2, options("auto"));
    said[rank] = comm.ok() ? reduce(*comm, 10 * static_cast<int32_t>(rank + 1), 30) : comm.status().to_string();
  });
  return said[0] == kDone ? said[1] : said[0];
}

class Fork : public testing::TestWithParam<const char*> {};

/// The outcome of each call of the interface.
std::vector<Status> try_all_calls(Communicator& comm) {
  std::array<int32_t, 4> in{}, out{};
  const size_t ones[] = {1, 1};
  const size_t offsets[] = {0, 1};
  constexpr auto kType = DataType::kInt32;
  std::vector<Status> said = {
      comm.all_reduce(in.data(), out.data(), 1, kType, ReduceOp::kSum),
      comm.all_reduce(in.data(), out.data(), 0, kType, ReduceOp::kSum),
      comm.reduce_scatter(in.data(), out.data(), 1, kType, ReduceOp::kSum),
      comm.all_gather(in.data(), out.data(), 1, kType),
      comm.broadcast(in.data(), out.data(), 1, kType, 0),
      comm.reduce(in.data(), out.data(), 1, kType, ReduceOp::kSum, 0),
      comm.all_to_all(in.data(), out.data(), 1, kType),
      comm.all_to_all_v(in.data(), ones, offsets, out.data(), ones, offsets, kType),
      comm.gather(in.data(), out.data(), 1, kType, 0),
      comm.scatter(in.data(), out.data(), 1, kType, 0),
      comm.send(in.data(), 1, kType, 1),
      comm.recv(out.data(), 1, kType, 1),
      comm.barrier(),
      comm.register_buffer(in.data(), sizeof in).status(),
      comm.exchange({}).status(),
      comm.split(0, 0).status(),
      comm.async_error(),
      comm.choose(Collective::kAllReduce, 1, kType, ReduceOp::kSum).status(),
      comm.explain(Collective::kAllReduce, 1, kType, ReduceOp::kSum).status(),
  };
  said.push_back(group_start());
  if (said.back().ok()) said.back() = comm.send(in.data(), 1, kType, 1);
  [[maybe_unused]] const Status ended = group_end();
  return said;
}

TEST_P(Fork, CallsOfAChildAreRefused) {
  auto job = make_job(2, GetParam());
  expect_works(job);
  Child child([&] {
    const std::vector<Status> all = try_all_calls(*job[0]);
    job[1]->abort("by the child");
    for (const Status& status : all) {
      if (status.code() != Code::kFailedPrecondition || status.text() != all.front().text()) return status.to_string();
    }
    return job[0]->size() == 2 ? std::string(all.front().text()) : std::string("wrong size");
  });
  expect_works(job);
  const std::string text = child.join();
  EXPECT_EQ(text, "process " + std::to_string(child.pid()) + " was forked after process " + std::to_string(getpid()) +
                      " made the communicator; make a communicator in the child, or fork first");
  expect_works(job);
}

/// Calls of a child change no result of the parent, whenever they come.
TEST_P(Fork, TheParentGoesOnWhileAChildCalls) {
  auto job = make_job(3, GetParam());
  expect_works(job);
  Child child([&] {
    for (int i = 0; i < 2000; ++i) {
      if (reduce(*job[static_cast<size_t>(i) % 3], 1000, 0) == kDone) return "call " + std::to_string(i) + " was made";
    }
    return std::string(kDone);
  });
  expect_works(job, 500);
  EXPECT_EQ(child.join(), kDone);
  expect_works(job);
}

TEST_P(Fork, DestructorsOfAChildDoNothing) {
  for (const End end : {End::kQuick, End::kExit}) {
    auto job = make_job(2, GetParam());
    std::array<std::array<int32_t, 100>, 2> buffers{};
    std::array<Registration, 2> registrations;
    on_each(2, [&](size_t rank) {
      auto made = job[rank]->register_buffer(buffers[rank].data(), sizeof buffers[rank]);
      ASSERT_TRUE(made.ok()) << made.status().to_string();
      registrations[rank] = *std::move(made);
    });
    expect_works(job);
    Child child(
        [&] {
          registrations = {};
          job[0].reset();
          std::thread([&] { job[1].reset(); }).join();
          job.clear();
          return std::string(kDone);
        },
        end);
    EXPECT_EQ(child.join(), kDone);
    expect_works(job);
    for (const auto& comm : job) EXPECT_TRUE(comm->async_error().ok());
  }
}

TEST_P(Fork, AChildEndsWithItsParentsObjects) {
  auto job = make_job(2, GetParam());
  static std::optional<Communicator> global;  // destroyed by exit()
  const auto id = UniqueId::create("=lo");
  ASSERT_TRUE(id.ok());
  auto made = Communicator::create(*id, 0, 1, options(GetParam()));
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  global = *std::move(made);
  for (const End end : {End::kQuick, End::kExit}) {
    Child child([] { return std::string(kDone); }, end);
    EXPECT_EQ(child.join(), kDone);
    expect_works(job);
  }
  EXPECT_EQ(reduce(*global, 7, 7), kDone);
  global.reset();
}

TEST_P(Fork, AChildMakesItsOwnJob) {
  auto job = make_job(2, GetParam());
  expect_works(job);
  Child child(run_own_job);
  expect_works(job, 200);
  EXPECT_EQ(child.join(), kDone);
  Child destroys([&] {
    job.clear();
    return run_own_job();
  });
  EXPECT_EQ(destroys.join(), kDone);
  expect_works(job);
}

INSTANTIATE_TEST_SUITE_P(Transports, Fork, testing::Values("auto", "net"));

TEST(ForkAfterUniqueId, AChildMakesItsOwnJob) {
  const auto id = UniqueId::create("=lo");
  ASSERT_TRUE(id.ok());
  EXPECT_EQ(Child(run_own_job).join(), kDone);
  auto job = make_job(2, "auto", *id);
  expect_works(job);
}

TEST(ForkAfterUniqueId, ChildrenAreRanksOfOneJob) {
  const auto id = UniqueId::create("=lo");
  ASSERT_TRUE(id.ok());
  const auto rank = [&](int number) {
    return [&id, number] {
      auto comm = Communicator::create(*id, number, 3, options("auto"));
      return comm.ok() ? reduce(*comm, number, 3) : comm.status().to_string();
    };
  };
  Child first(rank(1));
  Child second(rank(2));
  EXPECT_EQ(rank(0)(), kDone);
  EXPECT_EQ(first.join(), kDone);
  EXPECT_EQ(second.join(), kDone);
}

TEST(ForkOfAFork, KnowsNeitherAncestorsCommunicator) {
  auto job = make_job(2, "auto");
  Child child([&] {
    auto own = make_job(2, "auto");
    Child grandchild([&] {
      const Status parent = own[0]->async_error();
      const Status grandparent = job[0]->async_error();
      if (parent.ok() || grandparent.ok()) return std::string("not refused");
      own.clear();
      return run_own_job();
    });
    const std::string said = grandchild.join();
    return said == kDone ? reduce(*make_job(1, "auto")[0], 5, 5) : said;
  });
  EXPECT_EQ(child.join(), kDone);
  expect_works(job);
}

TEST(ForkInAGroup, ItsEndIsRefused) {
  auto job = make_job(2, "auto");
  std::array<int32_t, 2> in{}, out{};
  ASSERT_TRUE(group_start().ok());
  for (auto& comm : job) {
    ASSERT_TRUE(comm->all_reduce(in.data(), out.data(), 1, DataType::kInt32, ReduceOp::kSum).ok());
  }
  Child child([] { return group_end().to_string(); });
  EXPECT_THAT(child.join(), HasSubstr("was forked after"));
  EXPECT_TRUE(group_end().ok());
  expect_works(job);
}

/// Threads of the parent may hold any lock of the library when it forks.
TEST(ForkOfABusyProcess, DoesNotHangTheChild) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "AddressSanitizer of GCC 12 does not take its allocator's locks over fork(): the child can hang in "
                  "the first thread that it starts, before any code of the library runs";
#endif
  auto job = make_job(2, "auto");
  const std::string folder = testing::TempDir() + "tutti-fork-" + std::to_string(getpid());
  std::filesystem::create_directories(folder);
  setenv("TUTTI_LOG_LEVEL", "info", 1);  // communicators configure the log of the process
  setenv("TUTTI_LOG_FILE", (folder + "/log").c_str(), 1);
  ASSERT_TRUE(log::configure(log::Level::kInfo, folder + "/log").ok());
  std::atomic<bool> ends{false};
  std::thread logs([&] {
    while (!ends.load()) log::info("busy");
  });
  std::thread makes([&] {
    while (!ends.load()) static_cast<void>(make_job(1, "net"));
  });
  for (int i = 0; i < 10; ++i) {
    Child child([&] {
      log::info("child");
      const auto id = UniqueId::create("=lo");
      if (!id.ok()) return id.status().to_string();
      auto comm = Communicator::create(*id, 0, 1, options("auto"));
      return comm.ok() ? reduce(*comm, 3, 3) : comm.status().to_string();
    });
    EXPECT_EQ(child.join(), kDone);
    expect_works(job);
  }
  ends.store(true);
  logs.join();
  makes.join();
  unsetenv("TUTTI_LOG_LEVEL");
  unsetenv("TUTTI_LOG_FILE");
  ASSERT_TRUE(log::configure(log::Level::kWarn, "").ok());
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace tutti
