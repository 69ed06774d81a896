// SPDX-License-Identifier: Apache-2.0
#include "tools/launch.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <climits>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <vector>

#include "base/fd.h"
#include "launcher/meeting.h"
#include "tools/commands.h"
#include "tools/failures.h"

namespace tutti::tools {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kNoticeTime = std::chrono::seconds(10);  ///< for the other ranks to report the loss of one
constexpr auto kLeaveTime = std::chrono::seconds(2);    ///< from SIGTERM to SIGKILL

/// Blocks the signals that the parent waits for; puts the old mask back at its end.
class WaitedSignals {
 public:
  WaitedSignals() {
    sigemptyset(&waited_);
    for (int signal : {SIGCHLD, SIGINT, SIGTERM, SIGHUP}) sigaddset(&waited_, signal);
    pthread_sigmask(SIG_BLOCK, &waited_, &before_);
  }
  ~WaitedSignals() { restore(); }
  WaitedSignals(const WaitedSignals&) = delete;
  WaitedSignals& operator=(const WaitedSignals&) = delete;

  void restore() const { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

  /// The next signal; nothing when the deadline passes first.
  std::optional<int> wait(std::optional<Clock::time_point> deadline) const {
    int signal = 0;
    if (!deadline) {
      signal = sigwaitinfo(&waited_, nullptr);
    } else {
      const auto left = std::chrono::nanoseconds(std::max(*deadline - Clock::now(), Clock::duration::zero())).count();
      const timespec timeout{left / 1'000'000'000, left % 1'000'000'000};
      signal = sigtimedwait(&waited_, nullptr, &timeout);
    }
    return signal > 0 ? std::optional(signal) : std::nullopt;
  }

 private:
  sigset_t waited_{};
  sigset_t before_{};
};

/// All bytes that come through a pipe until its other end is closed.
std::string read_all(int descriptor) {
  std::string text;
  char buffer[256];
  for (;;) {
    const ssize_t bytes = read(descriptor, buffer, sizeof(buffer));
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes <= 0) return text;
    text.append(buffer, static_cast<size_t>(bytes));
  }
}

constexpr size_t kLongestReport = 32 << 10;  // a pipe holds it without a reader
constexpr char kDone = '.';                  // the report of a rank whose work is done

/// Tells the parent why this child failed: the time, then the text.
void report(int descriptor, const Failure& failure) {
  const auto time = failure.time.time_since_epoch().count();
  std::string bytes(reinterpret_cast<const char*>(&time), sizeof time);
  bytes += std::string_view(failure.text).substr(0, kLongestReport);
  if (write(descriptor, bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size()))
    fmt::print(stderr, "tutti: rank {}: {}\n", failure.rank, failure.text);
}

std::optional<Failure> read_report(int rank, const std::string& bytes) {
  Clock::rep time = 0;
  if (bytes.size() < sizeof time) return std::nullopt;
  std::memcpy(&time, bytes.data(), sizeof time);
  return Failure{rank, Clock::time_point(Clock::duration(time)), bytes.substr(sizeof time)};
}

struct Child {
  int rank;
  pid_t pid;
  base::Fd reports;
};

void print_signal(const Child& child, int signal) {
  fmt::print(stderr, "tutti: rank {} (process {}) was ended by signal {} (SIG{})\n", child.rank, child.pid, signal,
             sigabbrev_np(signal));
}

Status ended_early(const Child& child, int code) {
  return {Code::kInternal, fmt::format("process {} ended with code {} before its work was done, without a failure; "
                                       "did a plugin or a library end it (exit)?",
                                       child.pid, code)};
}

/// The forked ranks. None outlives this object.
class Children {
 public:
  Children() = default;
  ~Children() {
    signal_all(SIGKILL);
    for (const Child& child : running_) waitpid(child.pid, nullptr, 0);
  }
  Children(const Children&) = delete;
  Children& operator=(const Children&) = delete;

  /// Forks a process that runs `body`, and nothing after it.
  template <class Body>
  Status start(int rank, const Body& body);
  /// Waits for all; see run_as_processes().
  int wait();

 private:
  void signal_all(int signal) {
    for (const Child& child : running_) kill(child.pid, signal);
  }
  void reap();
  void end_all(int signal) {
    signal_all(signal);
    last_signal_ = signal;
    deadline_ = Clock::now() + kLeaveTime;
  }
  void record(const Child& child, int wait_status);

  WaitedSignals signals_;
  std::vector<Child> running_;
  std::vector<Failure> failures_;
  int exit_code_ = kSuccess;
  int last_signal_ = 0;                        ///< the latest signal that the parent sent to all processes
  std::optional<Clock::time_point> deadline_;  ///< when the parent sends a harder one
};

/// An exception must not reach the parent's code, which would end all ranks.
template <class Body>
Result<int> run(const Body& body) {
  try {
    return body();
  } catch (const std::system_error& error) {
    return Status(Code::kSystem, error.what());
  } catch (const std::exception& error) {
    return Status(Code::kInternal, error.what());
  }
}

template <class Body>
Status Children::start(int rank, const Body& body) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return base::system_error(fmt::format("cannot make a pipe for rank {}", rank));
  base::Fd reads(ends[0]);
  const base::Fd writes(ends[1]);
  std::fflush(nullptr);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0)
    return Status(Code::kSystem, fmt::format("cannot start rank {}: {}", rank, std::generic_category().message(errno)));
  if (pid > 0) {
    running_.push_back({rank, pid, std::move(reads)});
    return {};
  }
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) std::_Exit(kFailure);
  signals_.restore();
  Result<int> exit_code = run(body);
  if (exit_code.ok() && !output_is_out()) exit_code = kFailure;
  if (!exit_code.ok()) report(writes.get(), failure_now(rank, exit_code.status()));
  if (exit_code.ok()) [[maybe_unused]]
    const ssize_t told = write(writes.get(), &kDone, 1);
  std::fflush(nullptr);
  std::_Exit(exit_code.ok() ? *exit_code : kFailure);  // not the parent's destructors
}

void Children::record(const Child& child, int wait_status) {
  const bool exited = WIFEXITED(wait_status);
  const int code = exited ? WEXITSTATUS(wait_status) : kFailure;
  const std::string bytes = read_all(child.reports.get());
  const bool silent = exited && bytes.empty() && last_signal_ == 0;
  if (code == kSuccess && !silent) return;
  if (!exited && last_signal_ == 0) print_signal(child, WTERMSIG(wait_status));
  if (auto failure = read_report(child.rank, bytes)) failures_.push_back(*std::move(failure));
  if (silent) failures_.push_back(failure_now(child.rank, ended_early(child, code)));
  if (exit_code_ == kSuccess) exit_code_ = code == kSuccess ? kFailure : code;
  if (!deadline_) deadline_ = Clock::now() + kNoticeTime;
}

void Children::reap() {
  std::erase_if(running_, [this](const Child& child) {
    int wait_status = 0;
    if (waitpid(child.pid, &wait_status, WNOHANG) != child.pid) return false;
    record(child, wait_status);
    return true;
  });
}

int Children::wait() {
  for (reap(); !running_.empty(); reap()) {
    const std::optional<int> signal = signals_.wait(deadline_);
    if (signal && *signal != SIGCHLD) {
      if (exit_code_ == kSuccess) exit_code_ = 128 + *signal;
      end_all(SIGTERM);
    } else if (deadline_ && Clock::now() >= *deadline_) {
      end_all(last_signal_ == 0 ? SIGTERM : SIGKILL);
    }
  }
  print(std::move(failures_));
  return exit_code_;
}

/// Tells the id through a pipe, and closes the pipe.
Status tell_parent(const UniqueId& id, int descriptor) {
  const std::string text = id.to_string();
  const bool told = write(descriptor, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  close(descriptor);
  return told ? Status() : base::system_error("cannot tell the other ranks the unique id");
}

}  // namespace

std::string own_program() {
  std::array<char, PATH_MAX> path{};
  const ssize_t size = readlink("/proc/self/exe", path.data(), path.size() - 1);
  return size > 0 ? std::string(path.data(), static_cast<size_t>(size)) : "tutti";
}

int run_as_threads(const Session& session, const RankMain& rank_main) {
  const int rank_count = session.rank_count;
  const auto id = session.make_id();
  if (!id.ok()) return fail(id.status());
  if (const Status shared = log_once_per_job(); !shared.ok()) return fail(shared);
  std::vector<int> exit_codes(static_cast<size_t>(rank_count));
  std::mutex mutex;  // guards failures
  std::vector<Failure> failures;
  const auto run_rank = [&](int rank) {
    const Result<int> exit_code = run([&] { return rank_main(*id, rank); });
    exit_codes[static_cast<size_t>(rank)] = exit_code.ok() ? *exit_code : kFailure;
    if (exit_code.ok()) return;
    const std::lock_guard lock(mutex);
    failures.push_back(failure_now(rank, exit_code.status()));
  };
  {
    std::vector<std::jthread> threads;
    threads.reserve(exit_codes.size());
    for (int rank = 0; rank < rank_count; ++rank) threads.emplace_back([&, rank] { run_rank(rank); });
  }
  print(std::move(failures));
  return *std::max_element(exit_codes.begin(), exit_codes.end());
}

int run_as_processes(const Session& session, const RankMain& rank_main) {
  // Rank 0 makes the id: that starts a thread, so the parent must not.
  const FirstMain first = [&](const TellId& tell) -> Result<int> {
    TUTTI_ASSIGN(const UniqueId id, session.make_id());
    TUTTI_TRY(tell(id));
    return rank_main(id, 0);
  };
  return run_as_processes(session.rank_count, first, rank_main);
}

int run_as_processes(int rank_count, const FirstMain& first_main, const RankMain& rank_main) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0)
    return fail(Status(Code::kSystem, fmt::format("cannot make a pipe: {}", std::generic_category().message(errno))));
  if (const Status shared = log_once_per_job(); !shared.ok()) return fail(shared);
  Children children;
  const Status first = children.start(0, [&] {
    close(ends[0]);
    return first_main([&](const UniqueId& id) { return tell_parent(id, ends[1]); });
  });
  close(ends[1]);
  if (!first.ok()) return fail(first);
  const std::string text = read_all(ends[0]);
  close(ends[0]);
  const auto id = UniqueId::from_string(text);
  if (text.empty() || !id.ok()) return children.wait();  // which prints why rank 0 has none
  for (int rank = 1; rank < rank_count; ++rank) {
    const Status started = children.start(rank, [&] { return rank_main(*id, rank); });
    if (!started.ok()) return fail(started);
  }
  return children.wait();
}

namespace {

Result<UniqueId> meet(const launcher::RankAssignment& assignment, const Session& session) {
  TUTTI_ASSIGN(const config::Config config,
               load_config(session.config_file, session.options(assignment.rank).settings));
  return launcher::meet(assignment, std::getenv, config);
}

}  // namespace

int run_as_rank(const Result<UniqueId>& id, int rank, const RankMain& rank_main) {
  const Result<int> exit_code = id.ok() ? rank_main(*id, rank) : id.status();
  return exit_code.ok() ? *exit_code : fail(exit_code.status().with_context(fmt::format("rank {}", rank)));
}

void prepare_for_shared_gpus() {
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  setenv("CUDA_MODULE_LOADING", "EAGER", 0);
}

int run_ranks(const Session& session, bool threads, const RankMain& rank_main) {
  if (session.assignment) return run_as_rank(meet(*session.assignment, session), session.assignment->rank, rank_main);
  if (threads) prepare_for_shared_gpus();
  if (const Status checked = session.check(); !checked.ok()) return fail(checked);
  return threads ? run_as_threads(session, rank_main) : run_as_processes(session, rank_main);
}

}  // namespace tutti::tools
