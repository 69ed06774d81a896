// SPDX-License-Identifier: Apache-2.0
// The current wait of a rank, for other threads.
#pragma once

#include <atomic>
#include <chrono>
#include <optional>

#include "backend/attendance.h"

namespace tutti::backend {

/// Written by the thread that makes calls, once a wait has become so long that it sleeps. Read by any thread.
class Waiting {
 public:
  using Clock = std::chrono::steady_clock;
  struct Wait {
    Clock::time_point since;  ///< time of the latest progress
    Turn turn;                ///< number of the call or message
    uint32_t peer = 0;        ///< the rank that is waited for
  };

  /// This rank waits; `since` never is the clock's zero.
  void begin(Clock::time_point since, const Turn& turn, uint32_t peer) {
    since_.store(0, std::memory_order_release);
    kind_.store(static_cast<uint32_t>(turn.kind), std::memory_order_release);
    number_.store(turn.number, std::memory_order_release);
    peer_.store(peer, std::memory_order_release);
    since_.store(since.time_since_epoch().count(), std::memory_order_release);
  }
  void end() { since_.store(0, std::memory_order_release); }

  /// Nothing: this rank does not wait, or begins or ends to wait at this moment.
  std::optional<Wait> now() const {
    const int64_t since = since_.load(std::memory_order_acquire);
    if (since == 0) return std::nullopt;
    const auto kind = static_cast<Turn::Kind>(kind_.load(std::memory_order_acquire));
    const uint64_t number = number_.load(std::memory_order_acquire);
    const uint32_t peer = peer_.load(std::memory_order_acquire);
    if (since_.load(std::memory_order_acquire) != since) return std::nullopt;
    return Wait{Clock::time_point(Clock::duration(since)), {kind, peer, number}, peer};
  }

 private:
  // Release in begin() and end(), acquire in now(): a reader that finds a word of a different wait finds a different
  // `since_`.
  std::atomic<int64_t> since_{0};
  std::atomic<uint32_t> kind_{0};
  std::atomic<uint64_t> number_{0};
  std::atomic<uint32_t> peer_{0};
};

}  // namespace tutti::backend
