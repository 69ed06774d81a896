// SPDX-License-Identifier: Apache-2.0
// The one background thread of the bootstrap: it serves all hubs and all ranks of the process.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"

namespace tutti::bootstrap {

/// An epoll loop in a thread. shared(), post() and run() are for any thread; all other functions are for the loop's
/// thread: for tasks and handlers, which must not block.
///
/// The process holds one loop from its first use until it exits; ranks hold it until they are gone. A forked child has
/// no loop: its copies of the descriptors are replaced by /dev/null, so that a child that outlives its parent does not
/// hide the parent's death from its peers. A task that is posted in the child runs at once. The child's copy is never
/// destroyed, and shared() gives the child a loop of its own.
class Poller {
 public:
  using Task = std::function<void()>;
  using Timer = std::pair<base::Time, uint64_t>;

  /// The process's loop, started on first use.
  static Result<std::shared_ptr<Poller>> shared();
  Poller(base::Fd epoll, base::Fd wake, base::Fd null);
  /// Stops the thread, then releases its objects.
  ~Poller();
  Poller(const Poller&) = delete;
  Poller& operator=(const Poller&) = delete;

  /// Runs the task soon.
  void post(Task task);
  /// Runs the task and returns when it is done; at once when called on the loop's thread.
  void run(const Task& task);
  /// False in a forked child.
  bool running() const { return !forked_; }

  /// Calls `ready` whenever `fd` has one of the epoll events, perhaps once too often.
  void watch(int fd, uint32_t events, Task ready);
  void change_events(int fd, uint32_t events);
  void forget(int fd);

  /// Runs the task once at `time`, unless cancelled before. Cancelling a timer that is gone does nothing.
  Timer at(base::Time time, Task task);
  void cancel(const Timer& timer) { timers_.erase(timer); }

  /// Keeps a service alive until it is released or the loop ends.
  void own(std::shared_ptr<void> service) { services_.push_back(std::move(service)); }
  /// Drops the service when the handlers now running have returned.
  void release(const void* service);

 private:
  void loop();
  bool run_tasks();
  void run_timers();
  void run_handlers();
  static void before_fork();
  static void after_fork_in_parent();
  static void after_fork_in_child();
  void replace_descriptors();

  base::Fd epoll_;
  base::Fd wake_;
  base::Fd null_;     ///< opened before a fork: a child may find no free descriptor
  std::mutex mutex_;  ///< guards tasks_ and handlers_; held over a fork
  std::vector<Task> tasks_;
  bool stopping_ = false;
  std::map<int, std::shared_ptr<const Task>> handlers_;
  std::map<Timer, Task> timers_;
  uint64_t timer_count_ = 0;
  std::vector<std::shared_ptr<void>> services_;
  std::atomic<bool> forked_ = false;  ///< set once by the child's only thread
  std::thread thread_;
};

}  // namespace tutti::bootstrap
