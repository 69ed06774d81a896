// SPDX-License-Identifier: Apache-2.0
#include "progress/polling_thread.h"

#include <pthread.h>

#include <chrono>
#include <utility>

#include "progress/engine.h"

namespace tutti::progress {
namespace {

constexpr int kPolledRounds = 1000;  // rounds without movement before the thread sleeps between rounds
constexpr std::chrono::microseconds kPollInterval{100};

}  // namespace

PollingThread::PollingThread(std::function<void(Status)> on_failure, const std::optional<cpu_set_t>& processors)
    : on_failure_(std::move(on_failure)), processors_(processors), thread_([this] { run(); }) {}

PollingThread::~PollingThread() {
  {
    const std::lock_guard lock(sleep_mutex_);
    stopping_.store(true);
  }
  wake_.notify_all();
  thread_.join();
}

void PollingThread::add(std::shared_ptr<Task> task) {
  const std::lock_guard lock(mutex_);
  tasks_.push_back(std::move(task));
}

bool PollingThread::idle() {
  const std::lock_guard lock(mutex_);
  bool idle = true;
  for (const auto& task : tasks_) idle = idle && task->idle();
  return idle;
}

/// Whether `step` moved any task.
template <class Step>
bool PollingThread::each(Step&& step) {
  const std::lock_guard lock(mutex_);
  bool moved = false;
  for (const auto& task : tasks_) {
    if (has_failed()) return false;
    Result<bool> result = step(*task);
    if (result.ok()) {
      moved = moved || *result;
    } else {
      failed_.store(true, std::memory_order_release);
      on_failure_(result.status());
    }
  }
  return moved;
}

void PollingThread::run() {
  // The name comes last: tests read the processors of threads with this name.
  if (processors_) ::sched_setaffinity(0, sizeof *processors_, &*processors_);
  ::pthread_setname_np(::pthread_self(), "tutti-polling");
  int idle_rounds = 0;
  while (!stopping_.load()) {
    bool moved = each([](Task& task) { return task.progress(); });
    if (!moved && idle_rounds == kPolledRounds) moved = each([](Task& task) { return task.settle(); });
    idle_rounds = moved ? 0 : idle_rounds + 1;
    if (moved) moves_.store(moves_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    if (idle_rounds <= kPolledRounds) continue;
    std::unique_lock lock(sleep_mutex_);
    wake_.wait_for(lock, kPollInterval, [this] { return stopping_.load(); });
  }
}

}  // namespace tutti::progress
