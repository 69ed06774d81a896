// SPDX-License-Identifier: Apache-2.0
// The connections of a thread block (CTA): addresses of slots and mailboxes, progress of both sides, and waits with a
// time limit. For nvcc.
//
// Threads: each function states its callers. A function without a statement is called by any thread, and works for this
// thread alone.
#pragma once

#include "tutti/device/cuda/form.h"
#include "tutti/device/cuda/instructions.h"
#include "tutti/plugin/cuda.h"

namespace tutti::device {

/// Returned by look() after an abort or a time-out.
inline constexpr uint64_t kStop = ~uint64_t{0};

/// Reports to the host that this CTA gives up: the reason (a TUTTI_* code) and the rank for which it waited. One
/// thread.
__device__ __forceinline__ void give_up(tutti_cuda_control* control, uint32_t rank, int32_t code) {
  control->peer = rank;
  control->channel = blockIdx.x;
  __threadfence_system();
  *const_cast<volatile uint32_t*>(&control->fault) = static_cast<uint32_t>(code);
}

/// Shows the host a wait for `rank` that began at the time `since`. Any waiting thread calls it. A thread stores
/// nothing if any thread has stored within the last quarter of TUTTI_CUDA_LONG_WAIT_NS.
__device__ __forceinline__ void show_wait(tutti_cuda_control* control, uint32_t rank, uint64_t since, uint64_t now) {
  auto* const seen = const_cast<volatile uint64_t*>(&control->seen);
  if (static_cast<int64_t>(now - *seen) < TUTTI_CUDA_LONG_WAIT_NS / 4) return;
  *const_cast<volatile uint64_t*>(&control->waits) = (since & ~uint64_t{TUTTI_CUDA_WAIT_RANK}) | rank;
  __threadfence_system();
  *seen = now;
}

/// Ends a wait after an abort, or after `timeout_ns`, which it reports to the host. Shows long waits to the host.
/// `since`: the result of the previous look of the same wait; 0 at the first look. Returns the time at which the wait
/// began, or kStop. Called rarely, so it is not inlined.
static __device__ __noinline__ uint64_t look(tutti_cuda_control* control, uint64_t timeout_ns, uint32_t rank,
                                             uint64_t since) {
  if (*const_cast<const volatile uint32_t*>(&control->abort) != 0) return kStop;
  if (*const_cast<const volatile uint32_t*>(&control->fault) != 0) return kStop;  // a wait of a different thread failed
  const uint64_t now = nanoseconds();
  if (since == 0) return now;
  const uint64_t waited = now - since;
  if (waited >= TUTTI_CUDA_LONG_WAIT_NS) show_wait(control, rank, since, now);
  if (waited < timeout_ns) return since;
  give_up(control, rank, TUTTI_TIMEOUT);
  return kStop;
}

/// look() for a wait for a different CTA of this launch, which may wait for a peer. The limit is doubled, so that the
/// wait for the peer is over first and is reported. If no wait for a peer is reported, the function names its own rank.
/// `since`: 0 also if the awaited CTA has completed steps since the previous look. The function shows the host no wait.
static __device__ __noinline__ uint64_t look_beside(const tutti_cuda_launch& launch, uint64_t since) {
  if (*const_cast<const volatile uint32_t*>(&launch.control->abort) != 0) return kStop;
  if (*const_cast<const volatile uint32_t*>(&launch.control->fault) != 0) return kStop;
  const uint64_t now = nanoseconds();
  if (since == 0) return now;
  if (now - since < 2 * launch.timeout_ns) return since;
  // A wait for a peer that gives up at the same time stores the peer before the fault.
  if (*const_cast<const volatile uint32_t*>(&launch.control->peer) != TUTTI_CUDA_NO_PEER) return kStop;
  give_up(launch.control, launch.rank, TUTTI_TIMEOUT);
  return kStop;
}

/// The waits of one thread.
class Waits {
 public:
  __device__ __forceinline__ explicit Waits(const tutti_cuda_launch& launch) : launch_(launch) {}

  /// To be called after each kPollsPerLook polls of a wait for `rank`. Updates is_stopped().
  __device__ __forceinline__ void look(uint32_t rank) {
    since_ = device::look(launch_.control, launch_.timeout_ns, rank, since_);
    stopped_ = since_ == kStop;
  }
  /// The same in a wait for a different CTA of this launch.
  __device__ __forceinline__ void look_beside() {
    since_ = device::look_beside(launch_, since_);
    stopped_ = since_ == kStop;
  }
  /// The awaited data has arrived.
  __device__ __forceinline__ void end() { since_ = 0; }
  __device__ __forceinline__ bool is_stopped() const { return stopped_; }
  /// For threads that agree to stop together.
  __device__ __forceinline__ void set_stopped(bool stopped) { stopped_ = stopped; }

 private:
  const tutti_cuda_launch& launch_;
  uint64_t since_ = 0;
  bool stopped_ = false;
};

/// A peer's ready signal: its output is free in the call that ends at sequence number `call_end`, at registered place
/// `place`. Place 0: no signal so far.
struct ReadySignal {
  uint32_t call_end;
  uint32_t place;

  /// Whether the signal is for the call that ends at `end`, or for a later call.
  __device__ __forceinline__ bool is_of(uint32_t end) const { return place != 0 && call_end == end; }
  __device__ __forceinline__ bool is_after(uint32_t end) const {
    return place != 0 && static_cast<int32_t>(call_end - end) > 0;
  }
};
__device__ __forceinline__ ReadySignal ready_signal_in(const tutti_cuda_mailbox* box) {
  const uint64_t word = load_acquire(reinterpret_cast<const uint64_t*>(&box->ready));
  return {static_cast<uint32_t>(word), static_cast<uint32_t>(word >> 32)};
}

/// The connections of one CTA, or of all CTAs of a channel with strands. `connection` is the number of a connection:
/// the peer's rank, unless the program numbers its connections itself (tutti_cuda_large_program.ranks). `number` is the
/// sequence number of a message.
template <class Form>
class ConnectionsOf {
 public:
  /// `index`: the index of the CTA in the slots, mailboxes and lengths that CTAs share. `row`: the row of the launch's
  /// links in the large form.
  __device__ __forceinline__ ConnectionsOf(const tutti_cuda_launch& launch, uint32_t index, uint32_t row = 0)
      : launch_(launch),
        links_(Form::kIsLarge ? launch.tables.links + row * launch.rank_count : launch.links),
        index_(index),
        count_(launch.rank_count),
        own_number_(launch.rank) {}
  /// Of a program of the large form.
  __device__ __forceinline__ ConnectionsOf(const tutti_cuda_launch& launch, uint32_t index,
                                           const tutti_cuda_large_program* program)
      : launch_(launch),
        links_(program->links),
        index_(index),
        ranks_(program->ranks),
        count_(program->connection_count),
        own_number_(program->ranks == nullptr ? launch.rank : program->connection_count) {}
  /// Of a program of the small form.
  __device__ __forceinline__ ConnectionsOf(const tutti_cuda_launch& launch, uint32_t index, const tutti_cuda_program*)
      : ConnectionsOf(launch, index) {}

  // For the large form. In the small form, numbers are ranks.

  /// Connections have numbers from 0 to below count(). If numbers are ranks, own_number() is one of these numbers,
  /// and has no connection. Otherwise own_number() is count().
  __device__ __forceinline__ uint32_t count() const { return count_; }
  __device__ __forceinline__ uint32_t own_number() const { return own_number_; }
  /// The rank of a connection, or of own_number().
  __device__ __forceinline__ uint32_t rank_of(uint32_t connection) const {
    return ranks_ == nullptr ? connection : ranks_[connection];
  }
  /// Whether the program numbers its connections itself.
  __device__ __forceinline__ bool has_own_numbers() const { return ranks_ != nullptr; }

  // Of protocols without scattered slots.

  __device__ __forceinline__ uint8_t* slot_to(uint32_t connection, uint32_t number) const {
    return (Form::kIsLarge ? links_ : launch_.links)[connection].to + slot_at(number);
  }
  __device__ __forceinline__ const uint8_t* slot_from(uint32_t connection, uint32_t number) const {
    return (Form::kIsLarge ? links_ : launch_.links)[connection].from + slot_at(number);
  }
  /// A slot that this rank fills (`sends`), or a slot that the peer fills, also where slots are scattered.
  __device__ __forceinline__ uint8_t* slot(bool sends, uint32_t connection, uint32_t number) const {
    const tutti_cuda_link& at = (Form::kIsLarge ? links_ : launch_.links)[connection];
    if (at.scattered != nullptr) {
      const tutti_cuda_slots& own = at.scattered[index_];
      const uint64_t offset = (number & (launch_.slot_count - 1)) * launch_.slot_stride;
      return const_cast<uint8_t*>(sends ? own.to : own.from) + offset;
    }
    return const_cast<uint8_t*>(sends ? at.to : at.from) + slot_at(number);
  }
  /// The mailbox in which this rank signals the peer, and the mailbox in which the peer signals this rank.
  __device__ __forceinline__ tutti_cuda_mailbox* mailbox_at(uint32_t connection) const {
    return (Form::kIsLarge ? links_ : launch_.links)[connection].at + index_;
  }
  __device__ __forceinline__ tutti_cuda_mailbox* mailbox_of(uint32_t connection) const {
    return (Form::kIsLarge ? links_ : launch_.links)[connection].of + index_;
  }
  /// Reports the length of message `number` to the process that carries messages to a peer on a different host. One
  /// thread, before the release that signals the message.
  __device__ __forceinline__ void tell_length(uint32_t connection, uint32_t number, uint64_t bytes) const {
    uint64_t* const lengths = (Form::kIsLarge ? links_ : launch_.links)[connection].lengths;
    if (lengths == nullptr) return;
    const uint32_t slot = index_ * launch_.slot_count + (number & (launch_.slot_count - 1));
    store_relaxed(&lengths[slot], bytes << 32 | number);
  }
  /// Sends the ready signal to the peer: in the call that ends at `call_end`, this rank's output is free. Earlier
  /// stores of the thread are visible before the signal. One thread.
  __device__ __forceinline__ void signal_ready(uint32_t connection, uint32_t call_end) const {
    fence_release();
    store_relaxed(reinterpret_cast<uint64_t*>(&mailbox_at(connection)->ready),
                  uint64_t{launch_.place} << 32 | call_end);
  }
  /// The latest ready signal of the peer. It stays until the peer's call ends.
  __device__ __forceinline__ ReadySignal ready_signal_of(uint32_t connection) const {
    return ready_signal_in(mailbox_of(connection));
  }
  /// The offset of a message's slot in the slots of all CTAs.
  __device__ __forceinline__ uint64_t slot_at(uint32_t number) const {
    return (index_ * launch_.slot_count + (number & (launch_.slot_count - 1))) * launch_.slot_stride;
  }

  /// Waits until the receiver is done with the previous message in the slot of message `number`.
  __device__ __forceinline__ void wait_for_slot(uint32_t connection, uint32_t number, Waits& waits) const {
    const uint32_t* const done = &mailbox_of(connection)->done;
    for (uint32_t polls = 1; !waits.is_stopped(); ++polls) {
      if (static_cast<int32_t>(number - load_relaxed(done)) < static_cast<int32_t>(launch_.slot_count)) break;
      if (polls % kPollsPerLook == 0) waits.look(Form::kIsLarge ? rank_of(connection) : connection);
    }
    waits.end();
  }

 private:
  const tutti_cuda_launch& launch_;
  const tutti_cuda_link* links_;  // of the large form
  uint32_t index_;
  const uint32_t* ranks_ = nullptr;  // by number; null: numbers are ranks
  uint32_t count_;
  uint32_t own_number_;
};
using Connections = ConnectionsOf<SmallForm>;

/// The part of each block of the buffers that a CTA handles.
struct Part {
  const tutti_cuda_cut& cut;
  uint64_t begin;
  uint64_t bytes;

  __device__ __forceinline__ Part(uint64_t block_bytes, const tutti_cuda_cut& block_cut, uint32_t index)
      : cut(block_cut), begin(block_cut.part * index) {
    const uint64_t rest = begin < block_bytes ? block_bytes - begin : 0;
    bytes = rest < cut.part ? rest : cut.part;
  }
};

/// Bytes of chunk `chunk` of a loop that has `left` bytes and chunks of `chunk_bytes`.
__device__ __forceinline__ uint64_t length_of(uint64_t chunk, uint64_t chunk_bytes, uint64_t left) {
  const uint64_t offset = chunk * chunk_bytes;
  if (offset >= left) return 0;
  return left - offset < chunk_bytes ? left - offset : chunk_bytes;
}

}  // namespace tutti::device
