// SPDX-License-Identifier: Apache-2.0
// Sleeping on a doorbell (tutti_bell) without losing a ring: announce, look once more, sleep.
#pragma once

#include <chrono>

#include "tutti/plugin/protocol.h"

namespace tutti::progress {

/// Turns a zeroed bell into a bell on which threads sleep by futex, from any process that maps it.
void init_bell(tutti_bell& bell);

/// Whether sleepers of this process can order their announcement with the stores of publishers on other processors
/// (membarrier). If not, every publisher must use full barriers (tutti_work.fences). Registers the process at the first
/// call. Any thread.
bool sleepers_make_barriers();

/// Wakes the sleepers, for changes that are not made through a device team (aborts, arrivals).
void ring(tutti_bell& bell);

/// Announces a sleeper for as long as it lives. After construction, check the awaited state once more, and only then
/// call sleep().
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
