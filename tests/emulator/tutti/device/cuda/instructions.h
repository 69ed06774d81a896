// SPDX-License-Identifier: Apache-2.0
// The functions of the header with this name in core/include, for the CPU.
#pragma once

#include <chrono>
#include <cstdlib>

#include "emulator/cta.h"
#include "emulator/cuda.h"

namespace tutti::device {

inline uint32_t load_relaxed(const uint32_t* word) {
  emulator::yield();
  return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}
inline uint32_t load_acquire(const uint32_t* word) {
  return load_relaxed(word);
}
inline uint64_t load_acquire(const uint64_t* word) {
  emulator::yield();
  return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}
inline void store_relaxed(uint32_t* word, uint32_t value) {
  __atomic_store_n(word, emulator::number_to_store(word, value), __ATOMIC_RELEASE);
}
inline void store_relaxed(uint64_t* word, uint64_t value) {
  __atomic_store_n(word, value, __ATOMIC_RELEASE);
}
inline uint32_t load_acquire_gpu(const uint32_t* word) {
  return load_relaxed(word);
}
inline void store_release_gpu(uint32_t* word, uint32_t value) {
  store_relaxed(word, value);
}
inline uint32_t add_gpu(uint32_t* word, uint32_t value) {
  emulator::yield();
  return __atomic_fetch_add(word, value, __ATOMIC_ACQ_REL);
}
inline void load_pair(const uint32_t* words, uint32_t& first, uint32_t& second) {
  first = words[0];
  second = words[1];
}
inline void fence_release() {
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
inline void fence_release_gpu() {
  fence_release();
}

struct WireWord {
  uint64_t low;
  uint64_t high;
};
inline void store_wire(uint8_t* to, WireWord word) {
  auto* const words = reinterpret_cast<uint64_t*>(to);
  __atomic_store_n(words, word.low, __ATOMIC_RELEASE);
  __atomic_store_n(words + 1, word.high, __ATOMIC_RELEASE);
}
inline WireWord load_wire(const uint8_t* from) {
  emulator::yield();
  const auto* const words = reinterpret_cast<const uint64_t*>(from);
  const uint64_t low = __atomic_load_n(words, __ATOMIC_ACQUIRE);
  return {low, __atomic_load_n(words + 1, __ATOMIC_ACQUIRE)};
}

inline constexpr uint32_t kPollsPerLook = 1u << 5;  // threads that poll keep other threads from the processor

inline uint64_t nanoseconds() {
  emulator::yield();
  return static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
}
inline uint32_t dynamic_shared_bytes() {
  return emulator::dynamic_shared_bytes();
}
inline void prefetch(const void* /*address*/) {}

inline constexpr bool kHasBulkCopies = true;

/// The state of a barrier, in a word of 64 bits.
struct BarrierState {
  uint32_t phase : 8;
  uint32_t arrivals : 12;  // arrivals of a phase
  uint32_t missing : 12;
  int32_t bytes;  // bytes that have not arrived yet
};
static_assert(sizeof(BarrierState) == sizeof(uint64_t));

template <class Change>
void change_barrier(uint64_t* barrier, Change&& change) {
  auto state = __builtin_bit_cast(BarrierState, *barrier);
  change(state);
  if (state.missing == 0 && state.bytes == 0) {
    state.phase = (state.phase + 1u) & 0xffu;
    state.missing = state.arrivals;
  }
  *barrier = __builtin_bit_cast(uint64_t, state);
}
inline void init_barrier(uint64_t* barrier, uint32_t arrivals) {
  *barrier = __builtin_bit_cast(uint64_t, BarrierState{0, arrivals & 0xfffu, arrivals & 0xfffu, 0});
}
inline void arrive_at_barrier(uint64_t* barrier, uint32_t times) {
  change_barrier(barrier, [&](BarrierState& state) {
    if (state.missing < times) std::abort();  // more than it was made for
    state.missing = (state.missing - times) & 0xfffu;
  });
}
inline void arrive_expecting_bytes(uint64_t* barrier, uint32_t bytes) {
  change_barrier(barrier, [&](BarrierState& state) {
    if (state.missing == 0) std::abort();
    state.missing = (state.missing - 1u) & 0xfffu;
    state.bytes += static_cast<int32_t>(bytes);
  });
}
inline bool test_barrier(const uint64_t* barrier, uint32_t parity) {
  emulator::yield();
  return (__builtin_bit_cast(BarrierState, *barrier).phase & 1u) != parity;
}
inline bool try_barrier(const uint64_t* barrier, uint32_t parity) {
  if (!test_barrier(barrier, parity)) {
    emulator::wait_for([=] { return (__builtin_bit_cast(BarrierState, *barrier).phase & 1u) != parity; });
  }
  return true;
}

/// Checks the alignment that a GPU demands.
inline void require_multiples_of_16(const void* to, const void* from, uint32_t bytes) {
  if (((reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from) | bytes) & 15) != 0) std::abort();
}
inline void load_bulk(void* to, const void* from, uint32_t bytes, uint64_t* barrier) {
  require_multiples_of_16(to, from, bytes);
  emulator::copy_later(to, from, bytes, [=] {
    change_barrier(barrier, [&](BarrierState& state) { state.bytes -= static_cast<int32_t>(bytes); });
  });
}
inline void store_bulk(void* to, const void* from, uint32_t bytes) {
  require_multiples_of_16(to, from, bytes);
  emulator::store_later(to, from, bytes);
}
inline void end_store_group() {
  emulator::end_store_group();
}
template <uint32_t kPending>
void wait_stores_read() {
  emulator::wait_groups(kPending, false);
}
inline void wait_stores() {
  emulator::wait_groups(0, true);
}
inline void fence_bulk() {}
inline void fence_bulk_shared() {}

}  // namespace tutti::device
