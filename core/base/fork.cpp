// SPDX-License-Identifier: Apache-2.0
#include "base/fork.h"

#include <fmt/format.h>
#include <pthread.h>
#include <unistd.h>

#include <vector>

#include "base/fd.h"

namespace tutti::base {
namespace {

struct Locks {
  std::mutex mutex;  // guards `held`, and is held over a fork itself
  std::vector<std::mutex*> held;
};

Locks& locks() {
  static auto* const instance = new Locks;  // never destroyed: a process may fork while it ends
  return *instance;
}

void lock_all() {
  locks().mutex.lock();
  for (std::mutex* mutex : locks().held) mutex->lock();
}

void unlock_all() {
  for (std::mutex* mutex : locks().held) mutex->unlock();
  locks().mutex.unlock();
}

void begin_child() {
  ++detail::generation;
  unlock_all();
}

}  // namespace

Status follow_forks() {
  static const int refused = ::pthread_atfork(lock_all, unlock_all, begin_child);
  return refused == 0 ? Status() : system_error("cannot follow forks; free some memory", refused);
}

Origin::Origin() : generation_(detail::generation), process_(::getpid()) {}

Status Origin::refusal(const char* what) const {
  return {Code::kFailedPrecondition,
          fmt::format("process {} was forked after process {} made {}; make a communicator in the child, or fork first",
                      ::getpid(), process_, what)};
}

void abandon(std::shared_ptr<void> object) {
  struct Abandoned {
    std::mutex mutex;
    std::vector<std::shared_ptr<void>> objects;
  };
  static auto* const kept = new Abandoned;
  const std::lock_guard lock(kept->mutex);
  kept->objects.push_back(std::move(object));
}

void hold_over_forks(std::mutex& mutex) {
  // A failure to register shows in follow_forks(), which every communicator asks.
  static_cast<void>(follow_forks());
  const std::lock_guard lock(locks().mutex);
  locks().held.push_back(&mutex);
}

std::mutex& process_mutex() {
  auto* const made = new std::mutex;  // a process may fork while it ends
  hold_over_forks(*made);
  return *made;
}

}  // namespace tutti::base
