// SPDX-License-Identifier: Apache-2.0
// Small calls on GPUs: a plan lowered for calls that one loop of it covers, with chunks that fit one slot each. For
// nvcc.
//
// A small message is latency, and latency is instructions that wait for each other. So everything that does not depend
// on the GPU's memory is worked out when the plan is lowered: which message of its connection each one is, where its
// chunk lies. The kernel has two barriers: after the connections came in, and before they go out.
#pragma once

#include "tutti/device/cuda/line.h"
#include "tutti/plugin/plan.h"

namespace tutti::device {

inline constexpr uint32_t kMaxLoweredRanks = 16;
inline constexpr uint32_t kMaxLoweredSteps = 64;
inline constexpr uint32_t kMaxLoweredPeers = 192;

struct LoweredStep {
  uint8_t source = 0;  ///< TUTTI_BUFFER_*
  uint8_t destination = 0;
  uint8_t final = 0;
  uint8_t own_position = 0;  ///< received contributions that come before the own one
  uint16_t source_chunk = 0;
  uint16_t destination_chunk = 0;
  uint8_t recv_begin = 0, recv_count = 0;  ///< of LoweredLaunch.peers
  uint8_t send_begin = 0, send_count = 0;
};

/// One message: on which connection, and how many of this call went before it there.
struct LoweredPeer {
  uint8_t connection = 0;  ///< rank, and for receivers rank_count more
  uint8_t use = 0;
};

/// Parameters of a launch; a block per channel.
struct LoweredLaunch {
  const uint8_t* input;
  uint8_t* output;
  tutti_connection* connections;  ///< in this GPU's memory, per channel: senders to all ranks, receivers from all
  uint64_t bytes;                 ///< of the block
  uint64_t part_bytes;            ///< that each channel handles; the last ones less
  uint64_t chunk_bytes;           ///< of a chunk of a full part
  uint64_t scalar;
  const uint32_t* abort;  ///< null: none
  uint32_t divisor;
  uint32_t premultiplied;  ///< 1: the own contributions are multiplied by `scalar`
  uint32_t rank_count;
  uint32_t step_count;
  uint32_t slot_mask;  ///< slots of a connection - 1
  uint32_t slot_stride;
  uint8_t uses[2 * kMaxLoweredRanks];  ///< messages of a call, per connection
  LoweredStep steps[kMaxLoweredSteps];
  LoweredPeer peers[kMaxLoweredPeers];
};
static_assert(sizeof(LoweredLaunch) <= 4096);

/// Lowers a plan step by step; see lower().
class Lowering {
 public:
  Lowering(const tutti_plan& plan, LoweredLaunch& launch) : plan_(plan), launch_(launch) {
    for (uint8_t& uses : launch.uses) uses = 0;
    launch.rank_count = plan.rank_count;
    launch.step_count = 0;
  }

  /// False when the launch is full.
  bool add(const tutti_plan_step& step) {
    return (step.flags & (TUTTI_STEP_GATHER | TUTTI_STEP_SCATTER)) != 0 ? add_exchange(step) : add_fold(step);
  }

 private:
  bool add_fold(const tutti_plan_step& step) {
    LoweredStep* lowered = begin(step.source, step.source_chunk, step.destination, step.destination_chunk);
    if (lowered == nullptr) return false;
    lowered->final = (step.flags & TUTTI_STEP_FINAL) != 0;
    bool fits = true;
    for (uint32_t i = 0; i < step.recv_count; ++i) {
      const tutti_plan_peer& peer = plan_.peers[step.recv_begin + i];
      if (peer.rank < plan_.rank) ++lowered->own_position;
      fits = fits && receive(*lowered, peer.rank);
    }
    lowered->send_begin = static_cast<uint8_t>(peers_);
    for (uint32_t i = 0; i < step.send_count; ++i) {
      fits = fits && send(*lowered, plan_.peers[step.send_begin + i].rank);
    }
    return fits;
  }

  /// Each message of a gather or scatter step is a step of its own: the own copy, the sends, the receives.
  bool add_exchange(const tutti_plan_step& step) {
    bool fits = true;
    if (step.source != TUTTI_BUFFER_NONE && step.destination != TUTTI_BUFFER_NONE) {
      fits = begin(step.source, step.source_chunk, step.destination, step.destination_chunk) != nullptr;
    }
    for (uint32_t i = 0; fits && i < step.send_count; ++i) {
      const tutti_plan_peer& peer = plan_.peers[step.send_begin + i];
      const bool scatter = (step.flags & TUTTI_STEP_SCATTER) != 0;
      LoweredStep* lowered = begin(step.source, scatter ? peer.chunk : step.source_chunk, TUTTI_BUFFER_NONE, 0);
      fits = lowered != nullptr && send(*lowered, peer.rank);
    }
    for (uint32_t i = 0; fits && i < step.recv_count; ++i) {
      const tutti_plan_peer& peer = plan_.peers[step.recv_begin + i];
      LoweredStep* lowered = begin(TUTTI_BUFFER_NONE, 0, TUTTI_BUFFER_OUTPUT, peer.chunk);
      fits = lowered != nullptr && receive(*lowered, peer.rank);
    }
    return fits;
  }

  LoweredStep* begin(uint8_t source, uint32_t source_chunk, uint8_t destination, uint32_t destination_chunk) {
    if (launch_.step_count == kMaxLoweredSteps) return nullptr;
    LoweredStep& lowered = launch_.steps[launch_.step_count++];
    lowered = LoweredStep();
    lowered.source = source;
    lowered.destination = destination;
    const bool by_destination = source == TUTTI_BUFFER_NONE && destination != TUTTI_BUFFER_NONE;
    lowered.source_chunk = static_cast<uint16_t>(by_destination ? destination_chunk : source_chunk);
    lowered.destination_chunk = static_cast<uint16_t>(destination_chunk);
    lowered.recv_begin = lowered.send_begin = static_cast<uint8_t>(peers_);
    return &lowered;
  }
  bool receive(LoweredStep& step, uint32_t rank) { return add_peer(rank + plan_.rank_count, step.recv_count); }
  bool send(LoweredStep& step, uint32_t rank) { return add_peer(rank, step.send_count); }
  bool add_peer(uint32_t connection, uint8_t& count) {
    if (peers_ == kMaxLoweredPeers) return false;
    launch_.peers[peers_].connection = static_cast<uint8_t>(connection);
    launch_.peers[peers_++].use = launch_.uses[connection]++;
    ++count;
    return true;
  }

  const tutti_plan& plan_;
  LoweredLaunch& launch_;
  uint32_t peers_ = 0;
};

/// Lowers a plan of one block in and out, such as those of all-reduce, broadcast and reduce; false if it is another
/// kind or too long, or sends more on a connection of `slots` slots than half of them: slots are given back when the
/// kernel ends. Fills all that does not depend on the call.
inline bool lower(const tutti_plan& plan, uint32_t slots, LoweredLaunch& launch) {
  if (plan.rank_count > kMaxLoweredRanks || plan.input_blocks != 1 || plan.output_blocks != 1) return false;
  Lowering lowering(plan, launch);
  for (uint32_t s = 0; s < plan.step_count; ++s) {
    if (!lowering.add(plan.steps[s])) return false;
  }
  for (const uint8_t uses : launch.uses) {
    if (uses > slots / 2) return false;
  }
  launch.slot_mask = slots - 1;
  return true;
}

/// What a block needs of one connection, in one load from shared memory.
struct alignas(16) BlockConnection {
  uint8_t* slots;
  uint32_t step;  ///< of the first message, modulo 2^32
  uint32_t room;  ///< senders: messages that go before the receiver is asked how many slots it has freed
};

template <class T, class Op>
class LoweredBlock {
 public:
  __device__ __forceinline__ LoweredBlock(const LoweredLaunch& launch, BlockConnection* connections, uint32_t& aborted)
      : launch_(launch), connections_(connections), aborted_(aborted) {}

  __device__ __forceinline__ void run() {
    const uint64_t begin = launch_.part_bytes * blockIdx.x;
    if (begin >= launch_.bytes) return;
    const uint64_t rest = launch_.bytes - begin;
    const uint32_t part = static_cast<uint32_t>(rest < launch_.part_bytes ? rest : launch_.part_bytes);
    const uint32_t chunk = static_cast<uint32_t>(launch_.chunk_bytes);
    for (uint32_t s = 0; s < launch_.step_count; ++s) {
      const LoweredStep step = launch_.steps[s];
      const uint32_t offset = step.source_chunk * chunk;  // all chunks of a step have one length
      if (offset >= part) continue;
      const uint32_t bytes = part - offset < chunk ? part - offset : chunk;
      const uint8_t* source = (step.source == TUTTI_BUFFER_INPUT ? launch_.input : launch_.output) + begin + offset;
      uint8_t* destination = launch_.output + begin + step.destination_chunk * chunk;
      for (uint32_t at = threadIdx.x * kLineBytes; at < bytes; at += blockDim.x * kLineBytes) {
        move(step, source, destination, at, bytes - at);
      }
    }
  }

 private:
  static constexpr uint32_t kPollsPerLook = 1u << 14;  // at the abort word, which lies in host memory

  __device__ __forceinline__ void move(const LoweredStep& step, const uint8_t* source, uint8_t* destination,
                                       uint32_t at, uint32_t left) {
    Line<T> own;
    if (step.source != TUTTI_BUFFER_NONE) {
      own = load_line<T>(source + at, left);
      if (launch_.premultiplied != 0 && step.source == TUTTI_BUFFER_INPUT) own = scaled_line(own, launch_.scalar);
    }
    Line<T> value = own;
    if (step.recv_count > 0 || step.final != 0) value = fold(step, own, at);
    if (step.destination != TUTTI_BUFFER_NONE) store_line(destination + at, value, left);
    for (uint32_t i = 0; i < step.send_count; ++i) send(launch_.peers[step.send_begin + i], value, at);
  }

  __device__ __forceinline__ Line<T> fold(const LoweredStep& step, Line<T> own, uint32_t at) {
    LineSum<T, Op> sum;
    for (uint32_t i = 0; i < step.recv_count; ++i) {
      if (i == step.own_position && step.source != TUTTI_BUFFER_NONE) sum.take(own);
      sum.take(receive(launch_.peers[step.recv_begin + i], at));
    }
    if (step.own_position == step.recv_count && step.source != TUTTI_BUFFER_NONE) sum.take(own);
    return sum.value(step.final != 0 ? launch_.divisor : 0);
  }

  __device__ __forceinline__ uint8_t* line_of(const BlockConnection& connection, uint32_t step, uint32_t at) const {
    const uint32_t slot = step & launch_.slot_mask;
    return connection.slots + (slot * launch_.slot_stride + LL::kSignatureWords * sizeof(uint64_t) + at * 2);
  }

  __device__ __forceinline__ void send(LoweredPeer peer, Line<T> value, uint32_t at) {
    const BlockConnection to = connections_[peer.connection];
    const uint32_t step = to.step + peer.use;
    if (peer.use >= to.room) wait_for_slot(peer, step);
    send_line(line_of(to, step, at), value, step + 1);
  }

  __device__ __forceinline__ Line<T> receive(LoweredPeer peer, uint32_t at) {
    const BlockConnection from = connections_[peer.connection];
    const uint32_t step = from.step + peer.use;
    const uint8_t* line = line_of(from, step, at);
    Line<T> value;
    for (uint32_t polls = 1; !receive_line(line, value, step + 1); ++polls) {
      if (polls % kPollsPerLook == 0 && gives_up()) break;
    }
    return value;
  }

  __device__ __noinline__ void wait_for_slot(LoweredPeer peer, uint32_t step) {
    const uint64_t* head = launch_.connections[blockIdx.x * 2 * launch_.rank_count + peer.connection].head;
    for (uint32_t polls = 1;; ++polls) {
      uint64_t freed = 0;
      asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(freed) : "l"(head) : "memory");
      if (step - static_cast<uint32_t>(freed) <= launch_.slot_mask) return;
      if (polls % kPollsPerLook == 0 && gives_up()) return;
    }
  }

  __device__ __noinline__ bool gives_up() {
    if (launch_.abort != nullptr && *const_cast<const volatile uint32_t*>(launch_.abort) != 0) aborted_ = 1;
    return *const_cast<volatile uint32_t*>(&aborted_) != 0;
  }

  const LoweredLaunch& launch_;
  BlockConnection* connections_;
  uint32_t& aborted_;
};

template <class T, class Op>
__global__ void __launch_bounds__(512) run_lowered(const __grid_constant__ LoweredLaunch launch) {
  __shared__ BlockConnection connections[2 * kMaxLoweredRanks];
  __shared__ uint32_t aborted;
  const uint32_t count = 2 * launch.rank_count;
  const uint32_t thread = threadIdx.x;
  tutti_connection* const mine = launch.connections + size_t{blockIdx.x} * count + thread;
  const uint64_t first = launch.part_bytes * blockIdx.x + thread * kLineBytes;
  if (first < launch.bytes) asm volatile("prefetch.global.L1 [%0];" ::"l"(launch.input + first));
  uint64_t begun = 0;
  uint64_t seen = 0;
  if (thread < count) {
    begun = mine->step;
    seen = mine->seen;
    connections[thread] = {mine->slots, static_cast<uint32_t>(begun),
                           static_cast<uint32_t>(seen + launch.slot_mask + 1 - begun)};
  }
  if (thread == 0) aborted = 0;
  __syncthreads();
  LoweredBlock<T, Op>(launch, connections, aborted).run();
  __syncthreads();
  // An empty channel sends no message.
  if (thread >= count || launch.uses[thread] == 0 || launch.part_bytes * blockIdx.x >= launch.bytes) return;
  const uint64_t step = begun + launch.uses[thread];
  mine->step = step;
  if (thread >= launch.rank_count) {
    // A store to a peer is one that the end of the kernel waits for, so slots are given back by halves.
    const uint64_t half = launch.slot_mask >> 1;  // slots / 2 - 1
    if (((step ^ begun) & ~half) != 0) {
      asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(mine->head), "l"(step) : "memory");
    }
  } else if (step + launch.uses[thread] > seen + launch.slot_mask + 1) {
    // The next call could run out of the slots seen free.
    asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(seen) : "l"(mine->head) : "memory");
    mine->seen = seen;
  }
}

}  // namespace tutti::device
