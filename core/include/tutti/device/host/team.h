// SPDX-License-Identifier: Apache-2.0
// The team of the host device: one CPU thread. Supplies memory accesses, waits and data movement to the executor.
//
// Threads: a HostTeam belongs to the thread that runs the work. Any thread calls ring_sleeper().
// Units: sizes in bytes, counters in slots; `spins` in polls.
// Errors: none. The abort word of the work is what stopped() reads.
#pragma once

#include <atomic>
#include <cstdint>

#include "tutti/device/executor.h"
#include "tutti/device/host/reduce.h"
#include "tutti/device/ll.h"
#include "tutti/device/simple.h"

namespace tutti::device {

/// Wakes the thread that sleeps on the bell. Call it after HostTeam::publish has made the store for which the sleeper
/// waits.
void ring_sleeper(tutti_bell& bell);

class HostTeam {
 public:
  explicit HostTeam(const tutti_work& work) : abort_(work.abort), spins_(work.spins), fences_(work.fences != 0) {}

  /// Pairs with publish() or with store_word() of the other side.
  uint64_t acquire(const uint64_t* word) const { return atomic(word).load(std::memory_order_acquire); }
  uint64_t peek(const uint64_t* word) const { return atomic(word).load(std::memory_order_relaxed); }
  /// The store must be visible before ring() checks whether the other side sleeps. Either the store is a full barrier,
  /// or the sleeper executes a barrier on all processors before its last check (membarrier). The latter costs
  /// publishers nothing.
  void publish(uint64_t* counter, uint64_t value) const {
    if (fences_) {
      atomic(counter).exchange(value, std::memory_order_seq_cst);
    } else {
      atomic(counter).store(value, std::memory_order_release);
      std::atomic_signal_fence(std::memory_order_seq_cst);
    }
  }

  void ring(tutti_bell* bell) const {
    std::atomic_ref<uint32_t> sleeping(bell->sleeping);
    if (sleeping.load(std::memory_order_seq_cst) != 0) [[unlikely]]
      ring_sleeper(*bell);
  }

  /// Polls until `condition` (TUTTI_OK), at most work.spins times (TUTTI_AGAIN), unless aborted (TUTTI_ABORTED).
  template <class Condition>
  int32_t wait(Condition&& condition) const {
    if (condition()) [[likely]]
      return TUTTI_OK;
    for (uint32_t poll = 0; poll < spins_; ++poll) {
      if (poll >= kEagerPolls) pause();
      if (condition()) return TUTTI_OK;
      if (aborted()) return TUTTI_ABORTED;
    }
    return aborted() ? TUTTI_ABORTED : TUTTI_AGAIN;
  }

  /// Waits for each of `count` conditions. If a wait gives up, last_chance(i) may still accept it. After a failure,
  /// `stuck` is the index of the failed condition.
  template <class Condition, class LastChance>
  int32_t wait_each(uint32_t count, uint32_t& stuck, Condition&& condition, LastChance&& last_chance) const {
    for (uint32_t i = 0; i < count; ++i) {
      const int32_t outcome = wait([&] { return condition(i); });
      if (outcome == TUTTI_OK || (outcome == TUTTI_AGAIN && last_chance(i))) continue;
      stuck = i;
      return outcome;
    }
    return TUTTI_OK;
  }
  /// Everything of a slice is moved: gives its slots to the peers.
  template <class Publish, class Release>
  void hand_over(uint32_t sends, Publish&& publish_slot, uint32_t receives, Release&& release_slot) const {
    for (uint32_t i = 0; i < sends; ++i) publish_slot(i);
    for (uint32_t i = 0; i < receives; ++i) release_slot(i);
  }

  int32_t move_simple(tutti_work& work, const Operands& operands);
  int32_t move_ll(tutti_work& work, const Operands& operands);

 private:
  static constexpr uint32_t kEagerPolls = 64;  // a message between two awake cores takes fewer polls

  static std::atomic_ref<uint64_t> atomic(const uint64_t* word) {
    return std::atomic_ref<uint64_t>(*const_cast<uint64_t*>(word));  // C++20 has no atomic_ref<const T>
  }
  bool aborted() const {
    return std::atomic_ref<uint32_t>(*const_cast<uint32_t*>(abort_)).load(std::memory_order_relaxed) != 0;
  }
  static void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
  }

  const uint32_t* abort_;
  uint32_t spins_;
  bool fences_;
};

}  // namespace tutti::device
