// SPDX-License-Identifier: Apache-2.0
// The team of a GPU: one thread block. Supplies memory accesses, waits and data movement to the executor; for nvcc.
//
// All threads of the block run the executor together and agree on every branch of it. Connections lie in shared memory
// while the block runs (see kernel.h); what is written of one between two barriers is written by one thread.
//
// LL on a GPU needs no news of a message but its words: each thread polls those it reads. So neither is the tail
// written, nor do calls carry signatures (tutti_work.check is 0).
#pragma once

#include "tutti/device/cuda/line.h"
#include "tutti/device/executor.h"

namespace tutti::device {

/// Reduces elements of type T by Op.
template <class T, class Op>
class CudaTeam {
 public:
  /// Whether whoever reads a message polls its flags, instead of being told that it is there.
  static constexpr bool kReaderPolls = true;

  /// `aborted`: a flag of the block in shared memory, 0 at first.
  __device__ CudaTeam(const tutti_work& work, uint32_t& aborted) : abort_(work.abort), aborted_(aborted) {}

  __device__ static uint64_t acquire(const uint64_t* word) {
    uint64_t value;
    asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
    return value;
  }
  __device__ static uint64_t peek(const uint64_t* word) { return acquire(word); }
  /// Nothing that it publishes is read without a flag of its own or an acquire of this counter.
  __device__ static void publish(uint64_t* counter, uint64_t value) {
    if (counter != nullptr) asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(counter), "l"(value) : "memory");
  }
  /// Twice per turn of the slots: a store to a peer at the end of a kernel is one that its end waits for. So half of
  /// the slots count.
  __device__ static bool tells_release(const tutti_connection& connection) {
    return (connection.step & (connection.slot_count / 2 - 1)) == 0;
  }
  /// Nobody sleeps.
  __device__ static void ring(tutti_bell*) {}

  /// A thread for each condition. Never gives up, but for an abort.
  template <class Condition, class LastChance>
  __device__ int32_t wait_each(uint32_t count, uint32_t& stuck, Condition&& condition, LastChance&&) {
    if (count == 0) return TUTTI_OK;
    if (threadIdx.x < count) poll([&] { return condition(threadIdx.x); });
    __syncthreads();
    stuck = 0;
    return aborted_ != 0 ? TUTTI_ABORTED : TUTTI_OK;
  }
  template <class Condition>
  __device__ int32_t wait(Condition&& condition) {
    uint32_t stuck = 0;
    return wait_each(
        1, stuck, [&](uint32_t) { return condition(); }, [](uint32_t) { return false; });
  }

  /// All threads have read and written their part before a slot changes hands.
  template <class Publish, class Release>
  __device__ void hand_over(uint32_t sends, Publish&& publish_slot, uint32_t receives, Release&& release_slot) {
    __syncthreads();
    const uint32_t thread = threadIdx.x;
    if (thread < sends) publish_slot(thread);
    if (thread >= sends && thread < sends + receives) release_slot(thread - sends);
    __syncthreads();
  }

  __device__ int32_t move_ll(const tutti_work& work, const Operands& operands) {
    const uint64_t bytes = operands.elements * work.element_bytes;
    for (uint32_t i = 0; i < operands.send_count; ++i) {
      if (LL::needs_sweep(*operands.send[i])) sweep(*operands.send[i]);
    }
    for (uint64_t at = uint64_t{threadIdx.x} * kLineBytes; at < bytes; at += uint64_t{blockDim.x} * kLineBytes) {
      const uint32_t part = bytes - at < kLineBytes ? static_cast<uint32_t>(bytes - at) : kLineBytes;
      const Line<T> value = fold(work, operands, at, part);
      if (operands.output != nullptr) store_line(operands.output + at, value, part);
      for (uint32_t i = 0; i < operands.send_count; ++i) {
        send_line(line_of(*operands.send[i], at), value, LL::flag(*operands.send[i]));
      }
    }
    return aborted_ != 0 ? TUTTI_ABORTED : TUTTI_OK;
  }

 private:
  static constexpr uint32_t kPollsPerLook = 1u << 14;  // at the abort word, which lies in host memory

  /// Until the condition holds or the call is aborted.
  template <class Condition>
  __device__ void poll(Condition&& condition) {
    for (uint32_t polls = 1; !condition(); ++polls) {
      if (polls % kPollsPerLook != 0) continue;
      if (abort_ != nullptr && *const_cast<const volatile uint32_t*>(abort_) != 0) aborted_ = 1;
      if (*const_cast<volatile uint32_t*>(&aborted_) != 0) return;
    }
  }

  __device__ static uint8_t* line_of(const tutti_connection& connection, uint64_t at) {
    return reinterpret_cast<uint8_t*>(LL::words(connection) + LL::kSignatureWords) + at * 2;
  }

  /// Gives every word of the slot the flag before the current one, so that none keeps one that is 2^32 steps old.
  __device__ static void sweep(const tutti_connection& to) {
    const uint64_t stride = uint64_t{blockDim.x} * kLineBytes;
    for (uint64_t at = uint64_t{threadIdx.x} * kLineBytes; at < to.payload_bytes; at += stride) {
      send_line(line_of(to, at), Line<T>(), LL::flag(to) - 1);
    }
    __syncthreads();
  }

  /// The own contribution and what each peer sent, in ascending order of ranks.
  __device__ Line<T> fold(const tutti_work& work, const Operands& operands, uint64_t at, uint32_t part) {
    Line<T> own;
    if (operands.own != nullptr) own = load_line<T>(operands.own + at, part);
    if (operands.scaled) own = scaled_line(own, work.scalar);
    if (operands.recv_count == 0 && !operands.final) return own;
    LineSum<T, Op> sum;
    for (uint32_t i = 0; i < operands.recv_count; ++i) {
      if (i == operands.own_position && operands.own != nullptr) sum.take(own);
      sum.take(receive(*operands.recv[i], at));
    }
    if (operands.own_position == operands.recv_count && operands.own != nullptr) sum.take(own);
    return sum.value(operands.final ? work.divisor : 0);
  }

  __device__ Line<T> receive(const tutti_connection& from, uint64_t at) {
    const uint8_t* line = line_of(from, at);
    const uint32_t flag = LL::flag(from);
    Line<T> value;
    poll([&] { return receive_line(line, value, flag); });
    return value;
  }

  const uint32_t* abort_;
  uint32_t& aborted_;
};

}  // namespace tutti::device
