// SPDX-License-Identifier: Apache-2.0
#include "progress/engine.h"

#include <fmt/format.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "progress/bell.h"

namespace tutti::progress {
namespace {

constexpr int kIdleRounds = 3;  // rounds without movement before the thread sleeps; waiting threads help meanwhile
// A network without event descriptor must be polled. This interval bounds the cost and the latency.
constexpr std::chrono::microseconds kPollInterval{100};
constexpr std::chrono::milliseconds kSleepLimit{100};
constexpr std::chrono::milliseconds kUnarmedSleep{1};  // while polling threads move data
// The engine's thread takes over when no thread has driven for one to two of these intervals.
constexpr std::chrono::milliseconds kTakeOver{4};

}  // namespace

Engine::Engine(Options options) : options_(std::move(options)), bell_(std::make_unique<tutti_bell>()) {}

Result<std::unique_ptr<Engine>> Engine::create(Options options) {
  std::unique_ptr<Engine> engine(new Engine(std::move(options)));
  cpu_set_t processors;
  if (::sched_getaffinity(0, sizeof processors, &processors) == 0) engine->processors_ = processors;
  engine->bell_->event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (engine->bell_->event_fd < 0) {
    return Status(Code::kSystem,
                  fmt::format("cannot make an eventfd: {}; check the limit of open files", std::strerror(errno)));
  }
  return engine;
}

void Engine::add_source(Source source) {
  Armed armed{std::move(source), nullptr, -1};
  armed.mark = std::make_unique<EntryMark>(armed.source.watch, armed.source.place);
  if (armed.source.has_events && armed.source.ops->event_fd(armed.source.context, &armed.fd) != TUTTI_OK) armed.fd = -1;
  const std::lock_guard lock(mutex_);
  blind_ = blind_ || armed.fd < 0;
  sources_.push_back(std::move(armed));
  ring(*bell_);
}

Engine::~Engine() {
  stop();
  if (bell_->event_fd >= 0) close(bell_->event_fd);
}

void Engine::stop() {
  std::vector<std::unique_ptr<PollingThread>> pollers;
  {
    const std::lock_guard lock(pollers_mutex_);
    pollers.swap(pollers_);
  }
  pollers.clear();
  {
    const std::lock_guard lock(rest_mutex_);
    stopping_.store(true);
  }
  rest_over_.notify_all();
  ring(*bell_);
  if (thread_.joinable()) thread_.join();
  const std::lock_guard lock(mutex_);
  tasks_.clear();
  sources_.clear();
}

void Engine::add(std::shared_ptr<Task> task) {
  if (task->polls()) return add_polling(std::move(task));
  const std::lock_guard lock(mutex_);
  tasks_.push_back(std::move(task));
  if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
  ring(*bell_);
}

/// Spreads the tasks evenly over the polling threads.
void Engine::add_polling(std::shared_ptr<Task> task) {
  const std::lock_guard lock(pollers_mutex_);
  if (pollers_.size() < std::max(options_.polling_threads, 1u))
    pollers_.push_back(std::make_unique<PollingThread>(options_.on_failure, processors_));
  pollers_[next_poller_++ % pollers_.size()]->add(std::move(task));
}

bool Engine::has_idle_pollers(bool& failed) {
  const std::lock_guard lock(pollers_mutex_);
  bool idle = true;
  for (const auto& poller : pollers_) {
    failed = failed || poller->has_failed();
    idle = poller->idle() && idle;
  }
  return idle;
}

/// Whether polling threads have moved data since the previous question.
bool Engine::pollers_have_moved() {
  const std::lock_guard lock(pollers_mutex_);
  uint64_t moves = 0;
  for (const auto& poller : pollers_) moves += poller->moves();
  return std::exchange(seen_moves_, moves) != moves;
}

bool Engine::assist(std::optional<uint32_t> peer) {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  return lock.owns_lock() && round(peer);
}

Engine::Drive::Drive(Engine* engine) : engine_(engine) {
  resume();
}

/// Sends the data in slots of this driver now, or leaves it to the engine's thread.
Engine::Drive::~Drive() {
  if (drives_) engine_->end_drive(!engine_->push_out());
}

void Engine::Drive::pause() {
  if (std::exchange(drives_, false)) engine_->end_drive(true);
}

void Engine::Drive::resume() {
  if (engine_ == nullptr || std::exchange(drives_, true)) return;
  engine_->begin_drive();
}

void Engine::begin_drive() {
  drives_.fetch_add(1);
  drivers_.fetch_add(1);
  if (rests_.load()) return;
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(bell_->event_fd, &one, sizeof one);  // it may sleep on the network
}

void Engine::end_drive(bool hands_over) {
  drivers_.fetch_sub(1);
  if (!hands_over) return;
  {
    const std::lock_guard lock(rest_mutex_);
    handed_over_ = true;
  }
  rest_over_.notify_one();
}

/// True when no data is left for which a peer may wait.
bool Engine::push_out() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return false;
  bool idle = true;
  for (const auto& task : tasks_) {
    if (failed_) return true;
    if (!task->urgent()) continue;
    advance(*task);
    idle = idle && !task->urgent();
  }
  return idle;
}

/// Whether the engine's thread leaves the work to a driver, which may be between two calls.
bool Engine::is_driven() {
  const uint64_t drives = drives_.load();
  return drivers_.load() != 0 || std::exchange(seen_drives_, drives) != drives;
}

void Engine::rest() {
  std::unique_lock lock(rest_mutex_);
  rests_.store(true);
  const auto over = [&] { return handed_over_ || stopping_.load(); };
  while (!rest_over_.wait_for(lock, kTakeOver, over) && is_driven()) {
  }
  if (std::exchange(handed_over_, false)) seen_drives_ = drives_.load();
  rests_.store(false);
}

bool Engine::flush(std::chrono::steady_clock::time_point deadline, const std::function<bool()>& gives_up) {
  const Drive drive(this);
  for (int idle_rounds = 0; std::chrono::steady_clock::now() < deadline && !gives_up();) {
    bool moved = false;
    bool failed = false;
    bool idle = has_idle_pollers(failed);
    {
      const std::lock_guard lock(mutex_);
      moved = round();
      for (const auto& task : tasks_) idle = idle && task->idle();
      failed = failed || failed_;
    }
    if (idle || failed) return !failed;
    idle_rounds = moved ? 0 : idle_rounds + 1;
    if (idle_rounds > kIdleRounds) sleep();
  }
  return false;
}

bool Engine::round(std::optional<uint32_t> peer) {
  bool moved = false;
  for (const auto& task : tasks_) {
    if (failed_) return false;
    if (peer && !task->serves(*peer)) continue;
    moved = advance(*task) || moved;
  }
  return moved;
}

/// True if any task began to send. With mutex_ held.
bool Engine::settle() {
  bool began = false;
  for (const auto& task : tasks_) {
    if (failed_) return false;
    began = took(task->settle()) || began;
  }
  return began;
}

bool Engine::advance(Task& task) {
  return took(task.progress());
}

bool Engine::took(const Result<bool>& moved) {
  if (moved.ok()) return *moved;
  fail(moved.status());
  return false;
}

void Engine::fail(const Status& failure) {
  if (std::exchange(failed_, true)) return;
  options_.on_failure(failure);
}

void Engine::run() {
  ::pthread_setname_np(::pthread_self(), "tutti-network");
  int idle_rounds = 0;
  while (!stopping_.load()) {
    if (is_driven()) {
      rest();
      idle_rounds = 0;
      continue;
    }
    bool moved = false;
    {
      const std::lock_guard lock(mutex_);
      moved = round();
    }
    idle_rounds = moved ? 0 : idle_rounds + 1;
    if (idle_rounds > kIdleRounds) sleep();
  }
}

int32_t Engine::arm() {
  for (const Armed& armed : sources_) {
    if (armed.fd < 0) continue;
    const Source& source = armed.source;
    const int32_t code = armed.mark->call("arm", [&] { return source.ops->arm(source.context); });
    if (code == TUTTI_OK) continue;
    if (code != TUTTI_AGAIN) fail(source.failure("cannot arm its event descriptor", code));
    return code;
  }
  return TUTTI_OK;
}

void Engine::sleep() {
  const Sleeper announced(*bell_);
  std::array<pollfd, 1 + kMostSources> fds{};
  size_t count = 0;
  fds[count++] = {bell_->event_fd, POLLIN, 0};
  const bool arms = !pollers_have_moved();
  std::chrono::nanoseconds limit = arms ? kSleepLimit : kUnarmedSleep;
  {
    const std::lock_guard lock(mutex_);
    if (stopping_.load() || round() || settle() || (arms && arm() != TUTTI_OK)) return;
    for (const Armed& armed : sources_) {
      if (arms && armed.fd >= 0) fds[count++] = {armed.fd, POLLIN, 0};
    }
    if (blind_) limit = kPollInterval;
  }
  const timespec timeout{0, static_cast<long>(limit.count())};
  ppoll(fds.data(), count, &timeout, nullptr);
  uint64_t rings = 0;
  [[maybe_unused]] const ssize_t taken = read(bell_->event_fd, &rings, sizeof rings);
}

}  // namespace tutti::progress
