// SPDX-License-Identifier: Apache-2.0
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>

#include "tutti/device/host/team.h"

namespace tutti::device {

void ring_sleeper(tutti_bell& bell) {
  if (bell.event_fd >= 0) {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(bell.event_fd, &one, sizeof one);  // full means rung already
    return;
  }
  std::atomic_ref<uint32_t>(bell.rings).fetch_add(1, std::memory_order_seq_cst);
  syscall(SYS_futex, &bell.rings, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace tutti::device
