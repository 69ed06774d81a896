// SPDX-License-Identifier: Apache-2.0
// A thread that moves tasks which nothing rings for, such as relays of GPUs: it polls them.
#pragma once

#include <sched.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "tutti/status.h"

namespace tutti::progress {

class Task;

/// Polls its tasks round by round. After many rounds without movement, it settles its tasks, and sleeps for 100 µs
/// between rounds.
/// Threads: any, but for construction and destruction. Errors: the first failure of a task goes to `on_failure`, on
/// this object's thread; the tasks then rest.
class PollingThread {
 public:
  /// `processors`: on which the thread runs; none: on those of the calling thread.
  PollingThread(std::function<void(Status)> on_failure, const std::optional<cpu_set_t>& processors);
  ~PollingThread();  ///< stops the thread, then destroys the tasks
  PollingThread(const PollingThread&) = delete;
  PollingThread& operator=(const PollingThread&) = delete;

  void add(std::shared_ptr<Task> task);
  /// True when no task has data that must go out. Waits for the end of a round.
  bool idle();
  bool has_failed() const { return failed_.load(std::memory_order_acquire); }
  /// Rounds in which data has moved. Any thread.
  uint64_t moves() const { return moves_.load(std::memory_order_relaxed); }

 private:
  void run();
  template <class Step>
  bool each(Step&& step);

  std::function<void(Status)> on_failure_;
  std::optional<cpu_set_t> processors_;
  std::mutex mutex_;  // guards tasks_; held during a round
  std::vector<std::shared_ptr<Task>> tasks_;
  std::atomic<bool> failed_{false};  // release by the thread, acquire in has_failed()
  std::atomic<uint64_t> moves_{0};   // written by the thread alone
  std::mutex sleep_mutex_;           // guards stopping_
  std::condition_variable wake_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;  // last: uses all of the above
};

}  // namespace tutti::progress
