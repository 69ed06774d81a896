// SPDX-License-Identifier: Apache-2.0
// Sleeping on a doorbell (tutti_bell) without losing a ring: announce, look once more, sleep.
#pragma once

#include <chrono>

#include "tutti/plugin/protocol.h"

namespace tutti::progress {

/// Makes a zeroed bell one that threads sleep on by futex, from any process that maps it.
void init_bell(tutti_bell& bell);

/// Whether sleepers of this process can order their announcement with what publishers on other processors do
/// (membarrier). Where they cannot, every publisher must use full barriers (tutti_work.fences). Registers the process
/// at the first call. Any thread.
bool sleepers_make_barriers();

/// Rings whoever sleeps; for changes that are not made through a device team (aborts, arrivals).
void ring(tutti_bell& bell);

/// Announces a sleeper for as long as it lives. After construction look once more at what you wait for; only then call
/// sleep().
class Sleeper {
 public:
  explicit Sleeper(tutti_bell& bell);
  ~Sleeper();
  Sleeper(const Sleeper&) = delete;
  Sleeper& operator=(const Sleeper&) = delete;

  /// Returns at the first ring since construction, at the latest after `limit`.
  void sleep(std::chrono::nanoseconds limit);

 private:
  tutti_bell& bell_;
  uint32_t rings_;
};

}  // namespace tutti::progress
