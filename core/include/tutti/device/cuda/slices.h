// SPDX-License-Identifier: Apache-2.0
// The kernel of the Simple wire: plain data in slots, a mailbox says that it is there. For nvcc.
//
// The work of a CTA is a row of moves: a slice of a folding step, of a send or of a receive. Three roles go through the
// same row: one warp waits until the next move can be made, groups of threads make moves in turn, and some warps tell
// the peers of what was made, in turn as well. So polls and fences take their time while others move data: a fence
// between GPUs takes some µs, in which a CTA moves more than one slice.
#pragma once

#include "tutti/device/cuda/move.h"
#include "tutti/device/cuda/tracks.h"

namespace tutti::device {

inline constexpr uint32_t kGroups = 2;
inline constexpr uint32_t kMovers = 192;  // threads of a group
inline constexpr uint32_t kTellerWarps = 3;
inline constexpr uint32_t kAll = kGroups * kMovers;
inline constexpr uint32_t kTellers = kAll + 32;  // the first of those that tell peers
inline constexpr uint32_t kSliceThreads = kTellers + kTellerWarps * 32;

/// What the threads of a CTA share.
struct SliceBoard {
  tutti_cuda_program program;
  Operands operands[2 * kGroups];  // per group: of the move that it makes, and of its next
  uint32_t told;                   // moves that peers have been told of
  uint32_t stopped;
};

/// One move: which peers' slots it reads and writes, and how much.
struct Move {
  const tutti_cuda_step& step;
  uint32_t recv_begin, recv_count;  // peers whose slots are read
  uint32_t send_begin, send_count;  // peers whose slots are written
  uint64_t bytes;
  bool after_all;  // only when peers have been told of all moves before it
};

/// Barriers between a group and a warp that serves it: the move can be made; it has been. Each of them is for one group
/// and one warp only, or another warp's move could be taken for this one.
__device__ __forceinline__ uint32_t ready_for(uint32_t turn) {
  return 1 + turn % kGroups;
}
__device__ __forceinline__ uint32_t made_in(uint32_t turn) {
  static_assert(kGroups == 2 && kTellerWarps == 3, "turns modulo both must tell both apart");
  return 1 + kGroups + turn % (kGroups * kTellerWarps);
}
__device__ __forceinline__ void meet_at(uint32_t barrier) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "n"(kMovers + 32) : "memory");
}

/// `kMessages`: runs a send or a receive, else a program.
template <class T, class Op, bool kMessages>
class SliceRunner {
 public:
  __device__ __forceinline__ SliceRunner(const tutti_cuda_launch& launch, const Connections& connections,
                                         SliceBoard& board, tutti_cuda_track track, const Part& part,
                                         const uint8_t* input, uint8_t* output)
      : launch_(launch),
        connections_(connections),
        board_(board),
        part_(part),
        input_(input),
        output_(output),
        epoch_(track.epoch),
        room_(room_of(track)) {}

  __device__ __forceinline__ void run() {
    const uint32_t thread = threadIdx.x;
    if (thread < kAll) {
      const uint32_t group = thread / kMovers;
      for_each_move([&](const Move& move) {
        if (move.bytes > 0 && turn_ % kGroups == group) make(move, thread - group * kMovers);
      });
    } else if (thread < kAll + 32) {
      for_each_move([&](const Move& move) {
        if (move.bytes > 0) prepare(move, thread - kAll);
      });
    } else {
      for_each_move([&](const Move& move) {
        if (turn_ % kTellerWarps == (thread - kTellers) / 32) tell(move, thread % 32);
      });
    }
  }

 private:
  template <class Visit>
  __device__ __forceinline__ void for_each_move(Visit&& visit) {
    const tutti_cuda_program& program = board_.program;
    for (uint32_t loop = 0; loop < part_.cut.loops; ++loop) {
      const uint64_t done = loop * program.chunks * part_.cut.chunk;
      first_ = part_.begin + done;
      left_ = part_.bytes > done ? part_.bytes - done : 0;
      chunk_bytes_ = loop + 1 < part_.cut.loops ? part_.cut.chunk : part_.cut.last_chunk;
      number_ = epoch_ + loop * program.messages * part_.cut.slices;
      for (uint32_t s = 0; s < program.step_count; ++s) {
        for (slice_ = 0; slice_ < part_.cut.slices; ++slice_) {
          at_ = slice_ * part_.cut.slice;
          visit_step(program.steps[s], visit);
        }
      }
      if constexpr (!kMessages) {
        const bool more = loop + 1 < part_.cut.loops;
        const bool tells = threadIdx.x >= kTellers && turn_ % kTellerWarps == (threadIdx.x - kTellers) / 32;
        if (more && tells) end_loop(number_ + program.messages * part_.cut.slices);
      }
    }
  }

  template <class Visit>
  __device__ __forceinline__ void visit_step(const tutti_cuda_step& step, Visit&& visit) {
    const auto go = [&](const Move& move) {
      visit(move);
      if (move.bytes > 0) ++turn_;
    };
    const bool after_all = (step.flags & TUTTI_CUDA_STEP_AFTER) != 0 && slice_ == 0;
    if (folds(step)) {
      const bool by_destination = step.source == TUTTI_BUFFER_NONE && step.destination != TUTTI_BUFFER_NONE;
      const uint64_t bytes = length(by_destination ? step.destination_chunk : step.source_chunk);
      return go({step, step.recv_begin, step.recv_count, step.send_begin, step.send_count, bytes, after_all});
    }
    if (copies_own(step)) go({step, 0, 0, 0, 0, length(step.source_chunk), after_all});
    for (uint32_t i = step.send_begin; i < uint32_t{step.send_begin} + step.send_count; ++i) {
      const uint32_t chunk = scatters(step) ? board_.program.peers[i].chunk : step.source_chunk;
      go({step, 0, 0, i, 1, length(chunk), after_all});
    }
    for (uint32_t i = step.recv_begin; i < uint32_t{step.recv_begin} + step.recv_count; ++i) {
      go({step, i, 1, 0, 0, length(board_.program.peers[i].chunk), after_all});
    }
  }

  __device__ __forceinline__ static bool folds(const tutti_cuda_step& step) {
    return (step.flags & (TUTTI_STEP_GATHER | TUTTI_STEP_SCATTER)) == 0;
  }
  __device__ __forceinline__ static bool scatters(const tutti_cuda_step& step) {
    return (step.flags & TUTTI_STEP_SCATTER) != 0;
  }
  __device__ __forceinline__ bool copies_own(const tutti_cuda_step& step) const {
    if (step.source == TUTTI_BUFFER_NONE || step.destination == TUTTI_BUFFER_NONE) return false;
    return source(step.source, step.source_block, step.source_chunk) !=
           output_ + offset(step.destination_block, step.destination_chunk);
  }

  /// Of the slice, in a chunk.
  __device__ __forceinline__ uint64_t length(uint32_t chunk) const {
    const uint64_t whole = length_of(chunk, chunk_bytes_, left_);
    if (at_ >= whole) return 0;
    return whole - at_ < part_.cut.slice ? whole - at_ : part_.cut.slice;
  }
  __device__ __forceinline__ uint64_t offset(uint32_t block, uint32_t chunk) const {
    return block * launch_.block_bytes + first_ + chunk * chunk_bytes_ + at_;
  }
  __device__ __forceinline__ const uint8_t* source(uint32_t buffer, uint32_t block, uint32_t chunk) const {
    return (buffer == TUTTI_BUFFER_INPUT ? input_ : output_) + offset(block, chunk);
  }
  __device__ __forceinline__ uint32_t number_of(const tutti_cuda_peer& peer) const {
    return number_ + peer.message * part_.cut.slices + slice_;
  }

  /// Lanes wait for one peer each: the first half for what is to be read, the second for room to write.
  __device__ __forceinline__ void prepare(const Move& move, uint32_t lane) {
    Operands& operands = board_.operands[turn_ % (2 * kGroups)];
    const tutti_cuda_step& step = move.step;
    if (move.after_all) wait(launch_.rank, [&] { return told() == turn_; });
    const bool receives_only = !folds(step) && move.recv_count > 0;
    const bool sends_only = !folds(step) && move.send_count > 0;
    const bool has_own = step.source != TUTTI_BUFFER_NONE && !receives_only;
    const bool keeps = (step.destination != TUTTI_BUFFER_NONE && !sends_only) || receives_only;
    const uint32_t own_position = folds(step) ? step.own_position : 0;
    if (lane < move.recv_count) {
      const tutti_cuda_peer& from = board_.program.peers[move.recv_begin + lane];
      wait_filled(from.rank, number_of(from));
      operands.from[lane + (has_own && lane >= own_position ? 1 : 0)] =
          connections_.slot_from(from.rank, number_of(from));
    } else if (lane >= 16 && lane - 16 < move.send_count) {
      const tutti_cuda_peer& to = board_.program.peers[move.send_begin + lane - 16];
      wait_free(to.rank, number_of(to));
      operands.to[lane - 16 + (keeps ? 1 : 0)] = connections_.slot_to(to.rank, number_of(to));
    }
    if (lane == 31) {
      if (has_own) operands.from[own_position] = own_source(move);
      if (keeps) operands.to[0] = destination(move);
      operands.from_count = move.recv_count + (has_own ? 1 : 0);
      operands.to_count = move.send_count + (keeps ? 1 : 0);
      const bool scales = has_own && launch_.premultiplied != 0 && step.source == TUTTI_BUFFER_INPUT;
      operands.scaled = scales ? own_position : kNone;
      operands.divisor = (step.flags & TUTTI_STEP_FINAL) != 0 ? launch_.divisor : 0;
    }
    __syncwarp();
    meet_at(ready_for(turn_));
  }
  __device__ __forceinline__ const uint8_t* own_source(const Move& move) const {
    const tutti_cuda_step& step = move.step;
    if (!scatters(step) || move.send_count == 0) return source(step.source, step.source_block, step.source_chunk);
    const tutti_cuda_peer& to = board_.program.peers[move.send_begin];
    return source(step.source, to.block, to.chunk);
  }
  __device__ __forceinline__ uint8_t* destination(const Move& move) const {
    const tutti_cuda_step& step = move.step;
    if (folds(step) || move.recv_count == 0) {
      return output_ + offset(step.destination_block, step.destination_chunk);
    }
    const tutti_cuda_peer& from = board_.program.peers[move.recv_begin];
    return output_ + offset(from.block, from.chunk);
  }

  __device__ __forceinline__ void make(const Move& move, uint32_t thread) {
    meet_at(ready_for(turn_));
    if (!stopped()) {
      move_slice<T, Op>(board_.operands[turn_ % (2 * kGroups)], move.bytes, thread, kMovers, launch_.scalar);
    }
    meet_at(made_in(turn_));
  }

  /// A fence by one thread covers what all stored before the barrier. Peers are told in order, as a number speaks for
  /// all before it. Empty messages are not sent, but done with.
  __device__ __forceinline__ void tell(const Move& move, uint32_t lane) {
    if (move.bytes > 0) {
      meet_at(made_in(turn_));
      if (move.send_count > 0) __threadfence_system();
    }
    while (told() != turn_ && !stopped()) {
    }
    if (lane < move.send_count && move.bytes > 0) {
      const tutti_cuda_peer& to = board_.program.peers[move.send_begin + lane];
      store_relaxed(&connections_.mailbox_at(to.rank)->tail, number_of(to) + 1);
    } else if (lane >= 16 && lane - 16 < move.recv_count) {
      const tutti_cuda_peer& from = board_.program.peers[move.recv_begin + lane - 16];
      store_relaxed(&connections_.mailbox_at(from.rank)->done, number_of(from) + 1);
    }
    __syncwarp();
    if (move.bytes > 0 && lane == 0) *const_cast<volatile uint32_t*>(&board_.told) = turn_ + 1;
  }
  __device__ __forceinline__ uint32_t told() const { return *const_cast<const volatile uint32_t*>(&board_.told); }

  /// Numbers that a connection has not used are done with, too.
  __device__ __forceinline__ void end_loop(uint32_t number) const {
    const uint32_t rank = threadIdx.x % 32;
    while (told() != turn_ && !stopped()) {
    }
    if (rank < launch_.rank_count && rank != launch_.rank) store_relaxed(&connections_.mailbox_at(rank)->done, number);
    __syncwarp();
  }

  __device__ __forceinline__ void wait_filled(uint32_t rank, uint32_t number) {
    const uint32_t* const tail = &connections_.mailbox_of(rank)->tail;
    wait(rank, [&] { return static_cast<int32_t>(load_acquire(tail) - number) > 0; });
  }
  __device__ __forceinline__ void wait_free(uint32_t rank, uint32_t number) {
    if (number - epoch_ < room_) return;
    const uint32_t* const done = &connections_.mailbox_of(rank)->done;
    const auto slots = static_cast<int32_t>(launch_.slot_count);
    wait(rank, [&] { return static_cast<int32_t>(number - load_relaxed(done)) < slots; });
  }
  template <class Condition>
  __device__ __forceinline__ void wait(uint32_t rank, Condition&& condition) {
    uint64_t since = 0;
    for (uint32_t polls = 1; !condition() && !stopped(); ++polls) {
      if (polls % kPollsPerLook != 0) continue;
      since = look(launch_.control, launch_.timeout_ns, rank, since);
      if (since == kStop) *const_cast<volatile uint32_t*>(&board_.stopped) = 1;
    }
  }
  __device__ __forceinline__ bool stopped() const {
    return *const_cast<const volatile uint32_t*>(&board_.stopped) != 0;
  }

  const tutti_cuda_launch& launch_;
  const Connections& connections_;
  SliceBoard& board_;
  const Part part_;
  const uint8_t* const input_;
  uint8_t* const output_;
  const uint32_t epoch_;
  const uint32_t room_;
  uint64_t first_ = 0;
  uint64_t left_ = 0;
  uint64_t chunk_bytes_ = 0;
  uint64_t at_ = 0;  // byte of the chunk where the slice begins
  uint32_t slice_ = 0;
  uint32_t number_ = 0;
  uint32_t turn_ = 0;  // moves so far
};

/// All threads: puts the CTA's program where all can read it.
__device__ __forceinline__ void load_program(const tutti_cuda_launch& launch, SliceBoard& board) {
  const auto copy = [&](const tutti_cuda_program& from) {
    const auto* words = reinterpret_cast<const uint32_t*>(&from);
    for (uint32_t i = threadIdx.x; i < sizeof(tutti_cuda_program) / 4; i += blockDim.x) {
      reinterpret_cast<uint32_t*>(&board.program)[i] = words[i];
    }
  };
  if (launch.programs != nullptr) {
    copy(launch.programs[blockIdx.x % launch.program_count]);
  } else {
    copy(launch.program);
  }
  if (threadIdx.x == 0) board.stopped = board.told = 0;
}

template <class T, class Op>
__global__ void __launch_bounds__(kSliceThreads) run_slices(const __grid_constant__ tutti_cuda_launch launch) {
  __shared__ SliceBoard board;
  const Connections connections(launch, blockIdx.x);
  const ProgramTrack track(launch, connections);
  const Part part(launch.block_bytes, launch.cut, blockIdx.x);
  load_program(launch, board);
  __syncthreads();
  SliceRunner<T, Op, false>(launch, connections, board, track.value(), part, launch.input, launch.output).run();
  track.advance();
}

/// Sends and receives: programs of one step.
template <class T>
__global__ void __launch_bounds__(kSliceThreads) run_slice_messages(const __grid_constant__ tutti_cuda_launch launch) {
  __shared__ SliceBoard board;
  const tutti_cuda_message& message = message_of(launch);
  const uint32_t lane = blockIdx.x - message.first_cta;
  const Connections connections(launch, lane);
  const MessageTrack track(launch, connections, lane, message);
  const Part part(message.bytes, message.cut, lane);
  if (threadIdx.x == 0) {
    const bool receives = message.receives != 0;
    tutti_cuda_step step = {};
    step.source = receives ? TUTTI_BUFFER_NONE : TUTTI_BUFFER_INPUT;
    step.destination = receives ? TUTTI_BUFFER_OUTPUT : TUTTI_BUFFER_NONE;
    step.recv_count = receives ? 1 : 0;
    step.send_count = receives ? 0 : 1;
    board.program.steps[0] = step;
    board.program.peers[0] = {message.peer, 0, 0, 0};
    board.program.step_count = board.program.chunks = board.program.messages = 1;
    board.stopped = board.told = 0;
  }
  __syncthreads();
  auto* const buffer = static_cast<uint8_t*>(message.buffer);
  SliceRunner<T, Sum, true>(launch, connections, board, track.value(), part, buffer, buffer).run();
  track.advance(message.cut.messages);
}

}  // namespace tutti::device
