// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/poller.h"

#include <fcntl.h>
#include <openssl/crypto.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <array>
#include <future>

#include "base/fork.h"

namespace tutti::bootstrap {
namespace {

struct Shared {
  /// OpenSSL, which the loop uses, then ends after the loop when the process exits.
  Shared() { ::OPENSSL_init_crypto(OPENSSL_INIT_LOAD_CONFIG, nullptr); }
  std::mutex mutex;
  std::shared_ptr<Poller> poller;
  ~Shared() { abandon_of_parent(); }
  /// In a forked child: the parent's thread may have been at work on the poller when the process forked.
  void abandon_of_parent() {
    if (poller && !poller->running()) base::abandon(std::move(poller));
  }
};

Shared& process() {
  static Shared shared;
  return shared;
}

}  // namespace

Result<std::shared_ptr<Poller>> Poller::shared() {
  Shared& shared = process();
  const std::lock_guard lock(shared.mutex);
  if (shared.poller && shared.poller->running()) return shared.poller;
  shared.abandon_of_parent();
  TUTTI_TRY(base::follow_forks());
  base::Fd epoll(::epoll_create1(EPOLL_CLOEXEC));
  base::Fd wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  base::Fd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  if (!epoll.valid() || !wake.valid() || !null.valid()) {
    return base::system_error("cannot start the bootstrap's thread");
  }
  static const int registered = ::pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
  if (registered != 0) return base::system_error("cannot follow forks", registered);
  shared.poller = std::make_shared<Poller>(std::move(epoll), std::move(wake), std::move(null));
  return shared.poller;
}

Poller::Poller(base::Fd epoll, base::Fd wake, base::Fd null)
    : epoll_(std::move(epoll)), wake_(std::move(wake)), null_(std::move(null)) {
  watch(wake_.get(), EPOLLIN, [this] {
    uint64_t count = 0;
    [[maybe_unused]] const ssize_t drained = ::read(wake_.get(), &count, sizeof count);
  });
  thread_ = std::thread([this] { loop(); });
}

Poller::~Poller() {
  post([this] { stopping_ = true; });
  thread_.join();
  services_.clear();
}

void Poller::post(Task task) {
  if (forked_) return task();
  {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
  }
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(wake_.get(), &one, sizeof one);
}

void Poller::run(const Task& task) {
  if (forked_ || std::this_thread::get_id() == thread_.get_id()) return task();
  std::promise<void> promise;
  const std::future<void> done = promise.get_future();
  post([&] {
    task();
    promise.set_value();
  });
  done.wait();
}

void Poller::watch(int fd, uint32_t events, Task ready) {
  {
    const std::lock_guard lock(mutex_);
    handlers_[fd] = std::make_shared<const Task>(std::move(ready));
  }
  epoll_event event = {.events = events, .data = {.fd = fd}};
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event);
}

void Poller::change_events(int fd, uint32_t events) {
  epoll_event event = {.events = events, .data = {.fd = fd}};
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event);
}

void Poller::forget(int fd) {
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  const std::lock_guard lock(mutex_);
  handlers_.erase(fd);
}

Poller::Timer Poller::at(base::Time time, Task task) {
  const Timer timer(time, ++timer_count_);
  timers_.emplace(timer, std::move(task));
  return timer;
}

void Poller::release(const void* service) {
  post([this, service] { std::erase_if(services_, [&](const auto& owned) { return owned.get() == service; }); });
}

void Poller::loop() {
  ::pthread_setname_np(::pthread_self(), "tutti-bootstrap");
  while (run_tasks()) {
    run_timers();
    run_handlers();
  }
  ::OPENSSL_thread_stop();  // frees the memory of OpenSSL for this thread
}

bool Poller::run_tasks() {
  std::vector<Task> tasks;
  {
    const std::lock_guard lock(mutex_);
    tasks.swap(tasks_);
  }
  for (const Task& task : tasks) task();
  return !stopping_;
}

void Poller::run_timers() {
  while (!timers_.empty() && timers_.begin()->first.first <= base::Clock::now()) {
    const Task task = std::move(timers_.extract(timers_.begin()).mapped());
    task();
  }
}

void Poller::run_handlers() {
  const base::Time next = timers_.empty() ? base::kNever : timers_.begin()->first.first;
  std::array<epoll_event, 64> events;
  const int count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()),
                                 static_cast<int>(base::left_until(next).count()));
  for (int i = 0; i < count; ++i) {
    std::shared_ptr<const Task> handler;  // outlives a handler that forgets itself
    {
      const std::lock_guard lock(mutex_);
      const auto found = handlers_.find(events[static_cast<size_t>(i)].data.fd);
      if (found != handlers_.end()) handler = found->second;
    }
    if (handler) (*handler)();
  }
}

void Poller::before_fork() {
  process().mutex.lock();
  if (process().poller) process().poller->mutex_.lock();
}

void Poller::after_fork_in_parent() {
  if (process().poller) process().poller->mutex_.unlock();
  process().mutex.unlock();
}

void Poller::after_fork_in_child() {
  if (process().poller) process().poller->replace_descriptors();
  after_fork_in_parent();
}

void Poller::replace_descriptors() {
  if (forked_.exchange(true)) return;  // a child of a child
  ::dup3(null_.get(), epoll_.get(), O_CLOEXEC);
  for (const auto& [fd, handler] : handlers_) ::dup3(null_.get(), fd, O_CLOEXEC);
}

}  // namespace tutti::bootstrap
