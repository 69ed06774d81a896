// SPDX-License-Identifier: Apache-2.0
// The begin and the end of a call in a CTA: the kernel loads its sequence numbers from the sequence, and stores the
// advanced numbers. For nvcc.
//
// Threads: any thread calls each function, and it works for this thread alone, unless the function or its class states
// other callers.
// Units: messages of a connection, modulo 2^32.
#pragma once

#include "tutti/device/cuda/cta.h"
#include "tutti/device/cuda/strand.h"

namespace tutti::device {

__device__ __forceinline__ tutti_cuda_sequence load_sequence(const tutti_cuda_sequence* sequence) {
  tutti_cuda_sequence value;
  load_pair(&sequence->next, value.next, value.safe);
  return value;
}

/// The number of messages for which a free slot is certain. After a long call it may be 0, because the peers' signals
/// are missing.
__device__ __forceinline__ uint32_t room_of(const tutti_cuda_sequence& sequence) {
  const auto room = static_cast<int32_t>(sequence.safe - sequence.next);
  return room > 0 ? static_cast<uint32_t>(room) : 0;
}

/// The sequence of a channel that runs a program. The last warp has the least data to move. It loads the peers' `done`
/// words at the start of the call, so that the end of the call need not wait for them. All threads of the CTA call each
/// function.
template <class Form>
class ProgramSequence {
 public:
  __device__ __forceinline__ ProgramSequence(const tutti_cuda_launch& launch, const ConnectionsOf<Form>& connections)
      : launch_(launch),
        connections_(connections),
        at_(launch.sequences + blockIdx.x),
        value_(load_sequence(at_)),
        peer_(threadIdx.x - (blockDim.x - 32)),
        is_peer_(peer_ < (Form::kIsLarge ? connections.count() : launch.rank_count) &&
                 peer_ != (Form::kIsLarge ? connections.own_number() : launch.rank)) {
    if (is_peer_) done_ = load_relaxed(&connections.mailbox_of(peer_)->done);
    if constexpr (Form::kIsLarge) {
      has_second_ = peer_ < 32 && second() < connections.count() && second() != connections.own_number();
      if (has_second_) second_done_ = load_relaxed(&connections.mailbox_of(second())->done);
      // Earlier calls may have had other connections.
      if (connections.has_own_numbers()) value_.safe = value_.next;
    }
  }
  /// Signals that the slots of all earlier messages are free, on the connections for which `signals` returns true. Does
  /// nothing if numbers are ranks: earlier calls had the same connections then. Of the large form. To be called before
  /// the first barrier of the CTA's threads.
  template <class Signals>
  __device__ __forceinline__ void signal_begin(Signals&& signals) const {
    if (!connections_.has_own_numbers()) return;
    if (is_peer_ && signals(peer_)) store_relaxed(&connections_.mailbox_at(peer_)->done, value_.next);
    if (has_second_ && signals(second())) store_relaxed(&connections_.mailbox_at(second())->done, value_.next);
  }
  __device__ __forceinline__ tutti_cuda_sequence value() const { return value_; }

  /// Advances the sequence after all threads have moved their data.
  __device__ __forceinline__ void advance() const {
    __syncthreads();
    if (peer_ >= 32) return;
    store();
  }
  /// The same for a strand. The strand that ends last advances the sequence for all strands of its channel.
  __device__ __forceinline__ void advance(const Strand& strand) const {
    __syncthreads();
    if (peer_ >= 32 || __any_sync(0xffffffffu, peer_ == 0 && strand.ends_last()) == 0) return;
    __syncwarp();  // what the other strands have read is read before the signals
    store();
  }

 private:
  /// After so many messages, a CTA signals all ranks. `done` is compared modulo 2^32, so it must not rest for longer.
  static constexpr uint32_t kLongestRest = 1u << 29;
  static_assert(Form::kRanks <= 64);  // a thread has at most two connections, and in the small form one

  __device__ __forceinline__ uint32_t second() const { return peer_ + 32; }

  /// All threads of the last warp.
  __device__ __forceinline__ void store() const {
    const uint32_t next = value_.next + launch_.cut.messages;
    // Counted from the next number, modulo 2^32: the lowest `done` of the peers.
    int32_t behind = is_peer_ ? static_cast<int32_t>(next - done_) : 0;
    if constexpr (Form::kIsLarge) {
      if (has_second_) behind = max(behind, static_cast<int32_t>(next - second_done_));
    }
    const auto most_behind = static_cast<uint32_t>(__reduce_max_sync(0xffffffffu, behind));
    if (peer_ == 0) *at_ = {next, next - most_behind + launch_.slot_count};
    // Peers need the signal two times per pass over the slots. More signals would delay the kernel's end, which waits
    // for its stores to peers.
    const uint32_t half = launch_.slot_count / 2;
    if (is_peer_ && (next & ~(half - 1)) != (value_.next & ~(half - 1))) {
      store_relaxed(&connections_.mailbox_at(peer_)->done, next);
    }
    if constexpr (Form::kIsLarge) {
      if (has_second_ && (next & ~(half - 1)) != (value_.next & ~(half - 1))) {
        store_relaxed(&connections_.mailbox_at(second())->done, next);
      }
      if (connections_.has_own_numbers() && next / kLongestRest != value_.next / kLongestRest) signal_all_ranks(next);
    }
  }
  /// Signals also the ranks with which the program has no messages.
  __device__ __forceinline__ void signal_all_ranks(uint32_t next) const {
    for (uint32_t rank = peer_; rank < launch_.rank_count; rank += 32) {
      if (rank != launch_.rank) store_relaxed(&launch_.tables.links[rank].at[blockIdx.x].done, next);
    }
  }

  const tutti_cuda_launch& launch_;
  const ConnectionsOf<Form>& connections_;
  tutti_cuda_sequence* at_;
  tutti_cuda_sequence value_;
  uint32_t peer_;  // number of this thread's connection if below 32: the threads of the last warp
  bool is_peer_;
  uint32_t done_ = 0;
  bool has_second_ = false;  // the thread has a second connection
  uint32_t second_done_ = 0;
};

/// The row of a message's links in the large form (tutti_cuda_tables). Any thread.
__device__ __forceinline__ uint32_t row_of(const tutti_cuda_message& message) {
  return 32 - __clz(message.stripe_count - 1u);
}

/// The sequence of one direction of a stripe with a peer. Copies on this GPU have no sequence. Any thread.
class MessageSequence {
 public:
  template <class Form>
  __device__ __forceinline__ MessageSequence(const tutti_cuda_launch& launch, const ConnectionsOf<Form>& connections,
                                             uint32_t stripe, const tutti_cuda_message& message)
      : slot_count_(launch.slot_count), kind_(message.kind) {
    if (kind_ == TUTTI_CUDA_KEEP) return;
    box_ = connections.mailbox_at(message.peer);
    done_ = &connections.mailbox_of(message.peer)->done;
    at_ = launch.sequences + ((stripe * launch.rank_count + message.peer) * 2 + message.kind);
    value_ = load_sequence(at_);
  }
  __device__ __forceinline__ tutti_cuda_sequence value() const { return value_; }

  /// Advances the sequence. One thread, after all threads have read the sequence.
  __device__ __forceinline__ void advance(uint32_t messages) const {
    const uint32_t next = value_.next + messages;
    if (kind_ == TUTTI_CUDA_SEND) *at_ = {next, load_relaxed(done_) + slot_count_};
    if (kind_ == TUTTI_CUDA_RECEIVE) *at_ = {next, 0};
  }
  /// Signals the sender two times per pass over the slots. One thread, after all received data has been read.
  __device__ __forceinline__ void tell(uint32_t messages) const {
    const uint32_t next = value_.next + messages;
    const uint32_t half = slot_count_ / 2;
    const bool is_due = (next & ~(half - 1)) != (value_.next & ~(half - 1));
    if (kind_ == TUTTI_CUDA_RECEIVE && is_due) store_relaxed(&box_->done, next);
  }

 private:
  uint32_t slot_count_;
  uint32_t kind_;
  tutti_cuda_mailbox* box_ = nullptr;
  const uint32_t* done_ = nullptr;
  tutti_cuda_sequence* at_ = nullptr;
  tutti_cuda_sequence value_ = {};
};

/// The work assignment of a CTA in a launch of messages: its kind, and its index among the CTAs of this kind.
struct WorkAssignment {
  uint32_t kind = TUTTI_CUDA_SEND;
  uint32_t index = blockIdx.x;

  __device__ __forceinline__ explicit WorkAssignment(const tutti_cuda_launch& launch) {
    for (; index >= launch.kind_ctas[kind]; ++kind) index -= launch.kind_ctas[kind];
  }
  /// The step of each message of this CTA.
  template <class Step>
  __device__ __forceinline__ Step step() const {
    Step step = {};
    step.source = kind == TUTTI_CUDA_RECEIVE ? TUTTI_BUFFER_NONE : TUTTI_BUFFER_INPUT;
    step.destination = kind == TUTTI_CUDA_SEND ? TUTTI_BUFFER_NONE : TUTTI_BUFFER_OUTPUT;
    step.recv_count = kind == TUTTI_CUDA_RECEIVE ? 1 : 0;
    step.send_count = kind == TUTTI_CUDA_SEND ? 1 : 0;
    return step;
  }
  /// Calls `visit` for each message and stripe of this CTA, in order.
  template <class Visit>
  __device__ __forceinline__ void for_each_stripe(const tutti_cuda_launch& launch, Visit&& visit) const {
    uint32_t stripe = index;  // the next stripe, counted from the message's first
    for (uint32_t m = 0; m < launch.message_count; ++m) {
      const tutti_cuda_message& message = launch.messages[m];
      if (message.kind != kind) continue;
      for (; stripe < message.stripe_count; stripe += launch.kind_ctas[kind]) visit(message, stripe);
      stripe -= message.stripe_count;
    }
  }
};

}  // namespace tutti::device
