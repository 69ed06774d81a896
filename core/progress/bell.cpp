// SPDX-License-Identifier: Apache-2.0
#include "progress/bell.h"

#include <linux/futex.h>
#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <ctime>

namespace tutti::progress {
namespace {

std::atomic_ref<uint32_t> sleeping(tutti_bell& bell) {
  return std::atomic_ref<uint32_t>(bell.sleeping);
}
std::atomic_ref<uint32_t> rings(tutti_bell& bell) {
  return std::atomic_ref<uint32_t>(bell.rings);
}

}  // namespace

bool sleepers_make_barriers() {
  static const bool available = syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0) == 0 &&
                                syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0) == 0;
  return available;
}

void init_bell(tutti_bell& bell) {
  bell.event_fd = -1;
}

void ring(tutti_bell& bell) {
  // A full barrier that pairs with Sleeper's announcement: either it sees our change when it looks again, or we see it
  // here.
  if (sleeping(bell).fetch_add(0, std::memory_order_seq_cst) == 0) return;
  if (bell.event_fd >= 0) {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(bell.event_fd, &one, sizeof one);  // full means rung already
    return;
  }
  rings(bell).fetch_add(1, std::memory_order_seq_cst);
  syscall(SYS_futex, &bell.rings, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

Sleeper::Sleeper(tutti_bell& bell) : bell_(bell) {
  sleeping(bell_).fetch_add(1, std::memory_order_seq_cst);
  // Publishers without fences: from here on either they see the announcement, or this thread sees their stores.
  if (sleepers_make_barriers()) syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0);
  rings_ = rings(bell_).load(std::memory_order_seq_cst);
}

Sleeper::~Sleeper() {
  sleeping(bell_).fetch_sub(1, std::memory_order_seq_cst);
}

void Sleeper::sleep(std::chrono::nanoseconds limit) {
  timespec timeout{};
  timeout.tv_sec = limit.count() / 1'000'000'000;
  timeout.tv_nsec = limit.count() % 1'000'000'000;
  syscall(SYS_futex, &bell_.rings, FUTEX_WAIT, rings_, &timeout, nullptr, 0);
}

}  // namespace tutti::progress
