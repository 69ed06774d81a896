// SPDX-License-Identifier: Apache-2.0
// The kernel of the Simple wire: plain data in slots, a mailbox says that it is there. For nvcc.
//
// The CTA's threads move a slice together; one more warp then tells the peers, so that its fence is over while the
// others move the next slice. (As in NCCL 2.)
#pragma once

#include "tutti/device/cuda/move.h"
#include "tutti/device/cuda/tracks.h"

namespace tutti::device {

inline constexpr uint32_t kTellers = 32;  // threads beside those that move data; together at most 512

/// What the threads of a CTA share.
struct SliceBoard {
  tutti_cuda_program program;
  Operands operands;
  uint32_t stopped;
};

template <class T, class Op>
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

  __device__ void run() {
    const tutti_cuda_program& program = board_.program;
    for (uint32_t loop = 0; loop < part_.cut.loops; ++loop) {
      const uint64_t done = loop * program.chunks * part_.cut.chunk;
      first_ = part_.begin + done;
      left_ = part_.bytes > done ? part_.bytes - done : 0;
      chunk_bytes_ = loop + 1 < part_.cut.loops ? part_.cut.chunk : part_.cut.last_chunk;
      for (uint32_t s = 0; s < program.step_count; ++s) {
        for (uint32_t slice = 0; slice < part_.cut.slices; ++slice) {
          at_ = slice * part_.cut.slice;
          if (at_ >= chunk_bytes_) break;
          slice_ = slice;
          number_ = epoch_ + loop * program.messages * part_.cut.slices;
          run_step(program.steps[s]);
        }
      }
    }
  }

 private:
  __device__ __forceinline__ bool stopped() const {
    return *const_cast<const volatile uint32_t*>(&board_.stopped) != 0;
  }
  __device__ __forceinline__ bool is_mover() const { return threadIdx.x < launch_.thread_count; }

  __device__ __forceinline__ void run_step(const tutti_cuda_step& step) {
    if ((step.flags & (TUTTI_STEP_GATHER | TUTTI_STEP_SCATTER)) == 0) return fold_slice(step);
    if (step.source != TUTTI_BUFFER_NONE && step.destination != TUTTI_BUFFER_NONE) copy_own(step);
    for (uint32_t i = 0; i < step.send_count; ++i) send_slice(step, step.send_begin + i);
    for (uint32_t i = 0; i < step.recv_count; ++i) receive_slice(step.recv_begin + i);
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

  __device__ __forceinline__ void fold_slice(const tutti_cuda_step& step) {
    const bool keeps = step.destination != TUTTI_BUFFER_NONE;
    const bool by_destination = step.source == TUTTI_BUFFER_NONE && keeps;
    const uint64_t bytes = length(by_destination ? step.destination_chunk : step.source_chunk);
    if (bytes == 0) return;
    Operands& operands = board_.operands;
    const uint32_t recv = step.recv_count;
    const uint32_t thread = threadIdx.x;
    const bool has_own = step.source != TUTTI_BUFFER_NONE;
    if (thread < recv) {
      const tutti_cuda_peer& from = board_.program.peers[step.recv_begin + thread];
      wait_filled(from.rank, number_of(from));
      operands.from[thread + (has_own && thread >= step.own_position ? 1 : 0)] =
          connections_.slot_from(from.rank, number_of(from));
    } else if (thread >= 32 && thread < 32u + step.send_count) {
      const tutti_cuda_peer& to = board_.program.peers[step.send_begin + thread - 32];
      wait_free(to.rank, number_of(to));
      operands.to[thread - 32 + (keeps ? 1 : 0)] = connections_.slot_to(to.rank, number_of(to));
    }
    if (thread == 0) {
      if (has_own) operands.from[step.own_position] = source(step.source, step.source_block, step.source_chunk);
      if (keeps) operands.to[0] = output_ + offset(step.destination_block, step.destination_chunk);
      operands.from_count = recv + (has_own ? 1 : 0);
      operands.to_count = step.send_count + (keeps ? 1 : 0);
      const bool scales = has_own && launch_.premultiplied != 0 && step.source == TUTTI_BUFFER_INPUT;
      operands.scaled = scales ? step.own_position : kNone;
      operands.divisor = (step.flags & TUTTI_STEP_FINAL) != 0 ? launch_.divisor : 0;
    }
    move(bytes);
    tell(step.send_begin, step.send_count, step.recv_begin, step.recv_count);
  }

  __device__ __forceinline__ void copy_own(const tutti_cuda_step& step) {
    const uint64_t bytes = length(step.source_chunk);
    const uint8_t* const from = source(step.source, step.source_block, step.source_chunk);
    uint8_t* const to = output_ + offset(step.destination_block, step.destination_chunk);
    if (bytes == 0 || from == to) return;
    if (threadIdx.x == 0) set_copy(from, to, kNone);
    move(bytes);
    __syncthreads();
  }

  __device__ __forceinline__ void send_slice(const tutti_cuda_step& step, uint32_t peer) {
    const tutti_cuda_peer& to = board_.program.peers[peer];
    const bool scatters = (step.flags & TUTTI_STEP_SCATTER) != 0;
    const uint32_t chunk = scatters ? to.chunk : step.source_chunk;
    const uint64_t bytes = length(chunk);
    if (bytes == 0) return;
    if (threadIdx.x == 0) {
      wait_free(to.rank, number_of(to));
      const bool scales = launch_.premultiplied != 0 && step.source == TUTTI_BUFFER_INPUT;
      set_copy(source(step.source, scatters ? to.block : step.source_block, chunk),
               connections_.slot_to(to.rank, number_of(to)), scales ? 0 : kNone);
    }
    move(bytes);
    tell(peer, 1, 0, 0);
  }

  __device__ __forceinline__ void receive_slice(uint32_t peer) {
    const tutti_cuda_peer& from = board_.program.peers[peer];
    const uint64_t bytes = length(from.chunk);
    if (bytes == 0) return;
    if (threadIdx.x == 0) {
      wait_filled(from.rank, number_of(from));
      set_copy(connections_.slot_from(from.rank, number_of(from)), output_ + offset(from.block, from.chunk), kNone);
    }
    move(bytes);
    tell(0, 0, peer, 1);
  }

  __device__ __forceinline__ void set_copy(const uint8_t* from, uint8_t* to, uint32_t scaled) {
    board_.operands.from[0] = from;
    board_.operands.to[0] = to;
    board_.operands.from_count = board_.operands.to_count = 1;
    board_.operands.scaled = scaled;
    board_.operands.divisor = 0;
  }

  /// Those who move data see the operands, and move it.
  __device__ __forceinline__ void move(uint64_t bytes) {
    if (!is_mover()) return;
    asm volatile("bar.sync 1, %0;" ::"r"(launch_.thread_count) : "memory");
    if (stopped()) return;
    move_slice<T, Op>(board_.operands, bytes, launch_.thread_count, launch_.scalar);
  }

  /// All have moved their part: the last warp says so to receivers and senders.
  __device__ __forceinline__ void tell(uint32_t send_begin, uint32_t sends, uint32_t recv_begin, uint32_t recvs) {
    __syncthreads();
    if (is_mover()) return;
    const uint32_t thread = threadIdx.x - launch_.thread_count;
    if (thread < sends) {
      const tutti_cuda_peer& to = board_.program.peers[send_begin + thread];
      __threadfence_system();
      store_relaxed(&connections_.mailbox_at(to.rank)->tail, number_of(to) + 1);
    }
    if (thread < recvs) {
      const tutti_cuda_peer& from = board_.program.peers[recv_begin + thread];
      store_relaxed(&connections_.mailbox_at(from.rank)->done, number_of(from) + 1);
    }
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
  if (threadIdx.x == 0) board.stopped = 0;
}

template <class T, class Op>
__global__ void __launch_bounds__(512) run_slices(const __grid_constant__ tutti_cuda_launch launch) {
  __shared__ SliceBoard board;
  const Connections connections(launch, blockIdx.x);
  const ProgramTrack track(launch, connections);
  const Part part(launch.block_bytes, launch.cut, blockIdx.x);
  load_program(launch, board);
  __syncthreads();
  SliceRunner<T, Op>(launch, connections, board, track.value(), part, launch.input, launch.output).run();
  track.advance();
}

/// Sends and receives: programs of one step.
template <class T>
__global__ void __launch_bounds__(512) run_slice_messages(const __grid_constant__ tutti_cuda_launch launch) {
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
    board.stopped = 0;
  }
  __syncthreads();
  auto* const buffer = static_cast<uint8_t*>(message.buffer);
  SliceRunner<T, Sum>(launch, connections, board, track.value(), part, buffer, buffer).run();
  track.advance(message.cut.messages);
}

}  // namespace tutti::device
