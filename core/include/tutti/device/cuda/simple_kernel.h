// SPDX-License-Identifier: Apache-2.0
// The kernel of Simple: plain data in slots or in registered outputs; mailboxes signal its arrival. For nvcc.
//
// The work of a CTA is a sequence of moves. A move is one slice of a folding step, of a send or of a receive. The
// planner's warp (in this file) walks the program, waits until peers permit the next move, and plans the move. The
// remaining roles of the pipeline execute it (pipeline.h).
//
// Threads: all lanes of the planner's warp call each function, unless it states otherwise.
#pragma once

#include <type_traits>

#include "tutti/device/cuda/pipeline.h"
#include "tutti/device/cuda/program_copy.h"
#include "tutti/device/cuda/sequence.h"

namespace tutti::device {

/// The parameters of one move: its step, the peers whose slots it reads and writes, and its size.
template <class Step>
struct SliceOf {
  const Step& step;
  uint32_t recv_begin, recv_count;
  uint32_t send_begin, send_count;
  uint64_t bytes;
  uint32_t after;  ///< the move waits for the signals of all moves before this turn
};

/// Waits for a peer's ready signal in `box`: the peer's output is free in the call that ends at sequence number `end`.
/// With `may_be_later`, the signal of a later call counts, too; a signal that is 2^31 messages old also counts as
/// later. Runs once per call and peer, so it is not inlined into the code of each move. Called by any lane.
template <class Form>
static __device__ __noinline__ void hear_ready_signal(const tutti_cuda_launch& launch, PipelineOf<Form>& pipeline,
                                                      const tutti_cuda_mailbox* box, uint32_t rank, uint32_t end,
                                                      bool may_be_later) {
  const auto stop = [&] { *const_cast<volatile uint32_t*>(&pipeline.stopped) = 1; };
  uint64_t since = 0;
  for (uint32_t polls = 1; !pipeline.is_stopped(); ++polls) {
    const ReadySignal ready = ready_signal_in(box);
    if (ready.is_of(end) && ready.place != launch.place) {
      give_up(launch.control, rank, TUTTI_MISMATCH);
      return stop();
    }
    if (ready.is_of(end) || (may_be_later && ready.is_after(end))) {
      pipeline.ready[rank] = ready.is_of(end) ? PipelineOf<Form>::kReady : PipelineOf<Form>::kHeardOf;
      return;
    }
    if (polls % kPollsPerLook != 0) continue;
    since = look(launch.control, launch.timeout_ns, rank, since);
    if (since == kStop) stop();
  }
}

/// The planner's warp. `kMessages`: runs one send or receive; otherwise a program.
template <class Form, bool kMessages>
class SimpleRunner {
 public:
  using Program = std::conditional_t<kMessages, typename Form::MessageProgram, typename Form::Program>;
  using Step = typename Form::Step;
  using Peer = typename Form::Peer;
  using Slice = SliceOf<Step>;
  using Pipeline = PipelineOf<Form>;
  using Move = MoveOf<Form>;

  __device__ __forceinline__ SimpleRunner(const tutti_cuda_launch& launch, const Program& program,
                                          const ConnectionsOf<Form>& connections, Pipeline& pipeline,
                                          Planner<Form>& planner, tutti_cuda_sequence sequence, const Part& part,
                                          const uint8_t* input, uint8_t* output)
      : launch_(launch),
        program_(program),
        connections_(connections),
        pipeline_(pipeline),
        planner_(planner),
        lane_(threadIdx.x % 32),
        part_(part),
        input_(input),
        output_(output),
        first_number_(sequence.next),
        overlaps_(!kMessages && program.stages > 1),
        wave_numbers_(program.messages * part.cut.slices) {
    deal<Form>(lane_, Form::kRanks, 32, [&](uint32_t rank) {
      pipeline.ready[rank] = 0;
      pipeline.heard[Pipeline::kFilled][rank] = sequence.next;
      pipeline.heard[Pipeline::kFreed][rank] = sequence.next + room_of(sequence) - launch.slot_count;
    });
  }

  /// Runs one strand of the program, in StrandForm. Loops do not overlap, and the other strands may be in different
  /// loops.
  __device__ __forceinline__ void run_strand(const Strand& strand) {
    strand_ = &strand;
    for (uint32_t loop = 0; loop < part_.cut.loops && !stopped_; ++loop) {
      number_ = first_number_ + loop * wave_numbers_;
      first_slice_ = 0;
      end_slice_ = part_.cut.slices;
      for (uint32_t s = strand.first(); s < strand.end(); ++s) {
        const Step step = program_.steps[s];
        if (strand.waits(s)) wait_for_strands(strand, s, loop);
        if (has_operation(step)) run_step(step, loop, 0);
        if ((step.flags & TUTTI_CUDA_STEP_SIGNAL) != 0) signal_strands(strand, s, loop);
      }
      end_wave(loop);
    }
  }

  __device__ __forceinline__ void run() {
    if (!kMessages && launch_.place != 0) open_output();
    for (uint32_t wave = 0; wave < part_.cut.loops + program_.stages - 1 && !stopped_; ++wave) {
      number_ = first_number_ + wave * wave_numbers_;
      if constexpr (kMessages) {
        run_message(wave);
      } else {
        wave_turn_ = planner_.turn();
        const uint32_t together = overlaps_ ? 1 : part_.cut.slices;
        for (uint32_t slice = 0; slice < part_.cut.slices; slice += together) run_steps(wave, slice, slice + together);
        end_wave(wave);
      }
    }
  }

 private:
  /// Signals all peers: their programs decide whether they need the signal. In both forms, a rank that stores to
  /// outputs has at most TUTTI_CUDA_SMALL_RANKS peers.
  __device__ __forceinline__ void open_output() const {
    if (lane_ < launch_.rank_count && lane_ != launch_.rank)
      connections_.signal_ready(lane_, first_number_ + part_.cut.messages);
  }

  /// Runs the single step of a message, without the code for programs: code that a launch runs for the first time is
  /// slow.
  __device__ __forceinline__ void run_message(uint32_t loop) {
    const Step step = program_.steps[0];
    if (!begin_loop(loop)) return;
    for (slice_ = 0; slice_ < part_.cut.slices; ++slice_) {
      at_ = slice_ * part_.cut.slice;
      post({step, 0, step.recv_count, 0, step.send_count, length(0), 0});
    }
  }

  /// If the steps belong to different loops, no step waits for a different step. All steps then move one slice before
  /// any step moves the next slice. This maximises the distance between a peer's send, the receive, and the next send
  /// to the slot. If the steps belong to one loop, a step moves all its slices, so that the first slices have arrived
  /// when the next step begins.
  __device__ __forceinline__ void run_steps(uint32_t wave, uint32_t first_slice, uint32_t end_slice) {
    first_slice_ = first_slice;
    end_slice_ = end_slice;
    uint32_t stage_before = 0;
    for (uint32_t s = 0; s < program_.step_count; ++s) {
      const Step step = program_.steps[s];
      run_step(step, wave, stage_before);
      stage_before = step.recv_stage;
    }
  }
  __device__ __forceinline__ void run_step(const Step& step, uint32_t wave, uint32_t stage_before) {
#pragma unroll 1
    for (uint32_t part = 0; part < (folds(step) ? 1 : 2); ++part) {
      const uint32_t stage = part == 0 ? step.stage : step.recv_stage;
      if (!begin_loop(wave - stage)) continue;
      const uint32_t moves = moves_of(step, part);
      for (slice_ = first_slice_; slice_ < end_slice_; ++slice_) {
        at_ = slice_ * part_.cut.slice;
        // A step of a later stage depends only on moves of earlier waves.
        uint32_t after = 0;
        if ((step.flags & TUTTI_CUDA_STEP_AFTER) != 0 && slice_ == first_slice_) {
          after = stage > stage_before ? wave_turn_ : planner_.turn();
        }
#pragma unroll 1  // one copy of the planner's code: more copies exceed the SM's instruction cache
        for (uint32_t i = 0; i < moves; ++i) post(slice_of(step, part, i, after));
      }
    }
  }

  /// A fold is one move. An exchange has two parts. Part 0 has a move for each send, and a move for the own chunk if
  /// the step copies it. Part 1 has a move for each receive.
  __device__ __forceinline__ uint32_t moves_of(const Step& step, uint32_t part) const {
    if (folds(step)) return 1;
    return part == 0 ? step.send_count + (copies_own(step) ? 1 : 0) : step.recv_count;
  }
  __device__ __forceinline__ Slice slice_of(const Step& step, uint32_t part, uint32_t i, uint32_t after) const {
    Slice slice{step, step.recv_begin, 0, step.send_begin, 0, 0, after};
    uint32_t chunk = step.source_chunk;
    if (folds(step)) {
      slice.recv_count = step.recv_count;
      slice.send_count = step.send_count;
      if (step.source == TUTTI_BUFFER_NONE && step.destination != TUTTI_BUFFER_NONE) chunk = step.destination_chunk;
    } else if (part == 1) {
      slice.recv_begin += i;
      slice.recv_count = 1;
      chunk = program_.peers[slice.recv_begin].chunk;
    } else if (i < step.send_count) {
      slice.send_begin += i;
      slice.send_count = 1;
      if (scatters(step)) chunk = program_.peers[slice.send_begin].chunk;
    }
    slice.bytes = length(chunk);
    return slice;
  }

  /// Returns whether the loop exists.
  __device__ __forceinline__ bool begin_loop(uint32_t loop) {
    if (loop >= part_.cut.loops) return false;
    const uint64_t done = loop * program_.chunks * part_.cut.chunk;
    first_ = part_.begin + done;
    left_ = part_.bytes > done ? part_.bytes - done : 0;
    chunk_bytes_ = loop + 1 < part_.cut.loops ? part_.cut.chunk : part_.cut.last_chunk;
    return true;
  }

  __device__ __forceinline__ static bool folds(const Step& step) {
    return (step.flags & (TUTTI_STEP_GATHER | TUTTI_STEP_SCATTER)) == 0;
  }
  /// Other steps only wait for strands, or let strands wait.
  __device__ __forceinline__ static bool has_operation(const Step& step) {
    return step.recv_count + step.send_count > 0 ||
           (step.source != TUTTI_BUFFER_NONE && step.destination != TUTTI_BUFFER_NONE);
  }
  __device__ __forceinline__ static bool scatters(const Step& step) {
    return (step.flags & TUTTI_STEP_SCATTER) != 0;
  }
  __device__ __forceinline__ bool copies_own(const Step& step) const {
    if (step.source == TUTTI_BUFFER_NONE || step.destination == TUTTI_BUFFER_NONE) return false;
    return source(step.source, step.source_block, step.source_chunk) !=
           (Form::kIsLarge && step.destination == TUTTI_BUFFER_SCRATCH ? launch_.tables.scratch : output_) +
               offset(step.destination_block, step.destination_chunk);
  }

  /// Bytes of the current slice within the chunk.
  __device__ __forceinline__ uint64_t length(uint32_t chunk) const {
    const uint64_t whole = length_of(chunk, chunk_bytes_, left_);
    if (at_ >= whole) return 0;
    return whole - at_ < part_.cut.slice ? whole - at_ : part_.cut.slice;
  }
  __device__ __forceinline__ uint64_t offset(uint32_t block, uint32_t chunk) const {
    return block * launch_.block_bytes + first_ + chunk * chunk_bytes_ + at_;
  }
  __device__ __forceinline__ const uint8_t* source(uint32_t buffer, uint32_t block, uint32_t chunk) const {
    if constexpr (Form::kIsLarge) {
      if (buffer == TUTTI_BUFFER_SCRATCH) return launch_.tables.scratch + offset(block, chunk);
    }
    return (buffer == TUTTI_BUFFER_INPUT ? input_ : output_) + offset(block, chunk);
  }
  __device__ __forceinline__ uint32_t number_of(const Peer& peer) const {
    const uint32_t number =
        overlaps_ ? slice_ * program_.messages + peer.message : peer.message * part_.cut.slices + slice_;
    return number_ + number - peer.lag * wave_numbers_;
  }

  /// Each lane waits for one peer: the lanes of the first half wait for data to read, the lanes of the second half wait
  /// for free slots. Empty messages are not sent, but they are signaled.
  __device__ __forceinline__ void post(const Slice& slice) {
    if (stopped_) return;
    Move& move = planner_.next();
    // Waits also if there is no data to move: later steps may rely on this order.
    if (slice.after > 0) {
      wait(
          Form::kIsLarge ? connections_.own_number() : launch_.rank, [&] { return pipeline_.all_told(slice.after); },
          [] {});
    }
    const bool is_there = slice.recv_count == 1 && program_.peers[slice.recv_begin].to_output != 0;
    const bool is_aligned = fill(slice, is_there, move);
    if (__any_sync(0xffffffffu, pipeline_.is_stopped())) {
      stopped_ = true;
    } else if (slice.bytes > 0 && !(is_there && slice.send_count == 0)) {
      planner_.plan(move, static_cast<uint32_t>(slice.bytes), is_aligned);
    } else {
      planner_.plan_words(move);
    }
  }

  /// Fills the operands of the move. Returns whether the addresses of this lane are multiples of 16. `is_there`: the
  /// received data lies at its destination in the output already.
  __device__ __forceinline__ bool fill(const Slice& slice, bool is_there, Move& move) {
    const Step& step = slice.step;
    const bool receives_only = !folds(step) && slice.recv_count > 0;
    const bool sends_only = !folds(step) && slice.send_count > 0;
    const bool has_own = step.source != TUTTI_BUFFER_NONE && !receives_only;
    const bool has_place = (step.destination != TUTTI_BUFFER_NONE && !sends_only) || receives_only;
    const bool keeps = has_place && !is_there;
    const uint32_t own_position = folds(step) ? step.own_position : 0;
    bool is_aligned = true;
    // Both halves of the warp run the common part together.
    const uint32_t half = lane_ / 16;
    const bool sends = half == Pipeline::kFreed;
    for (uint32_t i = lane_ % 16; sends ? i < slice.send_count && slice.bytes > 0 : i < slice.recv_count; i += 16) {
      const Peer peer = program_.peers[(sends ? slice.send_begin : slice.recv_begin) + i];
      const uint32_t number = number_of(peer);
      if (!sends && slice.bytes > 0 && is_there) hear_of(peer.rank);
      if (slice.bytes > 0) wait_heard(half, peer.rank, number);
      uint8_t* const slot = connections_.slot(sends, peer.rank, number);
      if (sends) {
        connections_.tell_length(peer.rank, number, slice.bytes);
        uint8_t* const place = peer.to_output != 0 ? output_of(peer) : slot;
        move.operands.to[i + (keeps ? 1 : 0)] = place;
        is_aligned = is_aligned && aligned<16>(place);
      } else if (!is_there) {
        move.operands.from[i + (has_own && i >= own_position ? 1 : 0)] = slot;
      }
      tutti_cuda_mailbox* const box = connections_.mailbox_at(peer.rank);
      const uint32_t signal = Form::kIsLarge ? half * Form::kRanks + i : lane_;
      move.boxes[signal] = sends ? &box->tail : &box->done;
      move.numbers[signal] = number + 1;
      if constexpr (!Form::kIsLarge) break;  // so that the machine code has no loop
    }
    if (lane_ != 31) return is_aligned;
    move.operands.from_count = slice.recv_count + (has_own ? 1 : 0);
    move.operands.to_count = slice.send_count + (keeps ? 1 : 0);
    const bool scales = has_own && launch_.premultiplied != 0 && step.source == TUTTI_BUFFER_INPUT;
    move.operands.scaled = scales ? own_position : kNone;
    move.operands.divisor = (step.flags & TUTTI_STEP_FINAL) != 0 ? launch_.divisor : 0;
    if (has_own) {
      const uint8_t* const own = own_source(slice);
      move.operands.from[own_position] = own;
      is_aligned = is_aligned && aligned<16>(own);
    }
    if (has_place) {
      uint8_t* const place = destination(slice);
      if (keeps) move.operands.to[0] = place;
      if (is_there) move.operands.from[0] = place;
      is_aligned = is_aligned && aligned<16>(place);
    }
    return is_aligned;
  }
  __device__ __forceinline__ const uint8_t* own_source(const Slice& slice) const {
    const Step& step = slice.step;
    if (!scatters(step) || slice.send_count == 0) return source(step.source, step.source_block, step.source_chunk);
    const Peer& to = program_.peers[slice.send_begin];
    return source(step.source, to.block, to.chunk);
  }
  __device__ __forceinline__ uint8_t* destination(const Slice& slice) const {
    const Step& step = slice.step;
    if (folds(step) || slice.recv_count == 0) {
      return (Form::kIsLarge && step.destination == TUTTI_BUFFER_SCRATCH ? launch_.tables.scratch : output_) +
             offset(step.destination_block, step.destination_chunk);
    }
    const Peer& from = program_.peers[slice.recv_begin];
    const bool to_scratch = Form::kIsLarge && (step.flags & TUTTI_STEP_TO_SCRATCH) != 0;
    return (to_scratch ? launch_.tables.scratch : output_) + offset(from.block, from.chunk);
  }

  /// Each of the first lanes waits for one strand. Bulk copies may then load what the strands have stored, by threads
  /// or by bulk copies of their own CTA: both need the fence.
  __device__ __forceinline__ void wait_for_strands(const Strand& strand, uint32_t step, uint32_t loop) {
    StrandWait wait = lane_ < TUTTI_CUDA_MAX_STRANDS ? strand.wait(step, loop, lane_) : StrandWait();
    uint64_t since = 0;
    for (uint32_t polls = 1; !wait.is_over() && !pipeline_.is_stopped(); ++polls) {
      if (polls % kPollsPerLook != 0) continue;
      since = look_beside(launch_, wait.has_moved() ? 0 : since);
      if (since == kStop) *const_cast<volatile uint32_t*>(&pipeline_.stopped) = 1;
    }
    stopped_ = __any_sync(0xffffffffu, pipeline_.is_stopped()) != 0;
    fence_bulk();
  }
  /// Plans a move that says that a step is complete: its moves are.
  __device__ __forceinline__ void signal_strands(const Strand& strand, uint32_t step, uint32_t loop) {
    if (stopped_) return;
    Move& move = planner_.next();
    if (lane_ == 0) {
      move.boxes[0] = strand.word();
      move.numbers[0] = strand.count_after(step, loop);
    }
    planner_.plan_strand_signal(move);
  }

  /// Signals the numbers that a connection has not used: if it carries fewer messages than the busiest connection, and
  /// in waves in which some stages have no loop.
  __device__ __forceinline__ void end_wave(uint32_t wave) {
    const bool last = wave + 2 > part_.cut.loops + program_.stages - 1;
    const bool whole = wave + 1 >= program_.stages && wave < part_.cut.loops;
    if (last || stopped_ || (whole && !has_gaps())) return;
    Move& move = planner_.next();
    deal<Form>(lane_, Form::kIsLarge ? connections_.count() : launch_.rank_count, 32, [&](uint32_t rank) {
      if (rank == (Form::kIsLarge ? connections_.own_number() : launch_.rank)) return;
      if constexpr (Form::kHasStrands) {
        if (!strand_->signals(rank)) return;
      }
      move.boxes[rank] = &connections_.mailbox_at(rank)->done;
      move.numbers[rank] = first_number_ + (wave + 1 - program_.lag) * wave_numbers_;
    });
    planner_.plan_words(move);
  }
  /// Whether any peer sends fewer messages in a loop than the busiest connection carries. Each lane checks one or two
  /// connections. Computed once.
  __device__ __forceinline__ bool has_gaps() {
    if (gaps_ != kUnknown) return gaps_ != 0;
    uint32_t received = 0;
    uint32_t second = 0;  // on connection lane + 32
    for (uint32_t s = 0; s < program_.step_count; ++s) {
      const Step& step = program_.steps[s];
      for (uint32_t i = 0; i < step.recv_count; ++i) received += program_.peers[step.recv_begin + i].rank == lane_;
      if constexpr (Form::kIsLarge) {
        for (uint32_t i = 0; i < step.recv_count; ++i) second += program_.peers[step.recv_begin + i].rank == lane_ + 32;
      }
    }
    bool gaps = received > 0 && received < program_.messages;
    if constexpr (Form::kIsLarge) gaps = gaps || (second > 0 && second < program_.messages);
    gaps_ = __any_sync(0xffffffffu, gaps) ? 1 : 0;
    return gaps_ != 0;
  }

  /// Waits until a message has arrived (kFilled), or until its slot is free (kFreed). Stores the peers' signals, so
  /// that they are not loaded again. Called by any lane.
  __device__ __forceinline__ void wait_heard(uint32_t half, uint32_t rank, uint32_t number) {
    const tutti_cuda_mailbox* const box = connections_.mailbox_of(rank);
    const uint32_t* const word = half == Pipeline::kFilled ? &box->tail : &box->done;
    const uint32_t wanted = half == Pipeline::kFilled ? number : number - launch_.slot_count;
    uint32_t& known = pipeline_.heard[half][Form::kIsLarge && kMessages ? 0 : rank];
    // `tail` is at most `slot_count` messages ahead. All other numbers are older, also by more than 2^31 messages: a
    // connection may rest while different connections carry messages. `done` is at most 2^29 messages old, and may be
    // ahead by any number: a receiver that gave up has ended its call.
    const uint32_t most_ahead = half == Pipeline::kFilled ? launch_.slot_count : 1u << 31;
    wait(
        rank, [&] { return known - wanted - 1 < most_ahead; },
        [&] { known = half == Pipeline::kFilled ? load_acquire(word) : load_relaxed(word); });
  }
  /// The destination of the slice in the receiver's output. Waits for the receiver's ready signal. Called by any lane.
  __device__ __forceinline__ uint8_t* output_of(const Peer& to) {
    if (pipeline_.ready[to.rank] != Pipeline::kReady) wait_open(to.rank, false);
    return launch_.outputs[to.rank] + offset(to.output_block, to.output_chunk);
  }
  /// Waits for the ready signal of a sender that stores to this output. The signal may belong to a later call already.
  /// Called by any lane.
  __device__ __forceinline__ void hear_of(uint32_t rank) {
    if (pipeline_.ready[rank] == 0) wait_open(rank, true);
  }
  __device__ __forceinline__ void wait_open(uint32_t rank, bool may_be_later) {
    hear_ready_signal(launch_, pipeline_, connections_.mailbox_of(rank), rank, first_number_ + part_.cut.messages,
                      may_be_later);
  }
  /// Waits until `condition` holds. Calls `ask` before each check except the first. Called by any lane.
  template <class Condition, class Ask>
  __device__ __forceinline__ void wait(uint32_t rank, Condition&& condition, Ask&& ask) {
    uint64_t since = 0;
    for (uint32_t polls = 1; !condition() && !pipeline_.is_stopped(); ++polls) {
      ask();
      if (polls % kPollsPerLook != 0) continue;
      since = look(launch_.control, launch_.timeout_ns, Form::kIsLarge ? connections_.rank_of(rank) : rank, since);
      if (since == kStop) *const_cast<volatile uint32_t*>(&pipeline_.stopped) = 1;
    }
  }

  const tutti_cuda_launch& launch_;
  const Program& program_;
  const ConnectionsOf<Form>& connections_;
  Pipeline& pipeline_;
  Planner<Form>& planner_;
  const uint32_t lane_;
  const Part part_;
  const uint8_t* const input_;
  uint8_t* const output_;
  const uint32_t first_number_;
  const bool overlaps_;
  const uint32_t wave_numbers_;  // sequence numbers per wave
  uint64_t first_ = 0;
  uint64_t left_ = 0;
  uint64_t chunk_bytes_ = 0;
  uint64_t at_ = 0;  // offset of the slice in its chunk, in bytes
  uint32_t slice_ = 0;
  // First slice of the current group: a step moves all slices of a group before the next step begins.
  uint32_t first_slice_ = 0;
  uint32_t end_slice_ = 0;
  uint32_t number_ = 0;     // number of the wave's first message
  uint32_t wave_turn_ = 0;  // turn of the wave's first move
  static constexpr uint32_t kUnknown = 2;
  uint32_t gaps_ = kUnknown;
  bool stopped_ = false;
  const Strand* strand_ = nullptr;  // in StrandForm
};

/// Runs the roles of all warps after the pipeline is initialised. `plan` is the role of the planner; it must call
/// planner.begin(). All threads of the CTA.
template <class T, class Op, class Form, class Plan>
__device__ __forceinline__ void run_pipeline(PipelineOf<Form>& pipeline, uint64_t scalar, Plan&& plan) {
  constexpr uint32_t kFirstStorer = kWorkerWarps + 2;
  const uint32_t warp = threadIdx.x / 32;
  const uint32_t lane = threadIdx.x % 32;
  if (threadIdx.x == 0) pipeline.init();
  if (warp != kWorkerWarps) __syncthreads();
  if (warp < kWorkerWarps) {
    work<T, Op>(pipeline, scalar);
  } else if (warp == kWorkerWarps) {
    Planner<Form> planner(pipeline, lane);
    plan(planner);
    planner.end();
  } else if (warp == kWorkerWarps + 1) {
    load(pipeline, lane);
  } else if (warp < kFirstStorer + kStorers) {
    if (lane == 0) store(pipeline, warp - kFirstStorer);
    __syncwarp();
  } else {
    tell(pipeline, lane);
  }
}

/// The program of a CTA, of the large form.
__device__ __forceinline__ const tutti_cuda_large_program& large_program(const tutti_cuda_launch& launch) {
  return launch.program_count > 1 ? launch.tables.programs[blockIdx.x % launch.program_count] : launch.tables.first;
}

/// The share of a CTA in a launch of a program. `pipeline` and `copy`, for the program, lie in shared memory.
template <class Form, class T, class Op, class Copy>
__device__ __forceinline__ void run_simple_program(const tutti_cuda_launch& launch, PipelineOf<Form>& pipeline,
                                                   Copy& copy) {
  const typename Form::Program* own = nullptr;
  if constexpr (Form::kIsLarge) own = &large_program(launch);
  const ConnectionsOf<Form> connections(launch, blockIdx.x, own);
  const ProgramSequence<Form> sequence(launch, connections);
  if constexpr (Form::kIsLarge) sequence.signal_begin([](uint32_t) { return true; });
  const Part part(launch.block_bytes, launch.cut, blockIdx.x);
  if constexpr (!Form::kIsLarge) {
    own = launch.programs != nullptr ? launch.programs + blockIdx.x % launch.program_count : &launch.program;
  }
  const typename Form::Program& program = copy_program(*own, copy);
  run_pipeline<T, Op>(pipeline, launch.scalar, [&](Planner<Form>& planner) {
    planner.begin();
    SimpleRunner<Form, false>(launch, program, connections, pipeline, planner, sequence.value(), part, launch.input,
                              launch.output)
        .run();
  });
  sequence.advance();
}

/// The share of a CTA in a launch of messages. Each message is a program of one step. The pipeline is filled once and
/// drained once for all messages. `pipeline` and `program` lie in shared memory.
template <class Form, class T>
__device__ __forceinline__ void run_stripes_of_slices(const tutti_cuda_launch& launch, PipelineOf<Form>& pipeline,
                                                      typename Form::MessageProgram& program) {
  run_pipeline<T, Sum>(pipeline, launch.scalar, [&](Planner<Form>& planner) {
    const WorkAssignment assignment(launch);
    if (threadIdx.x % 32 == 0) {
      program.steps[0] = assignment.step<typename Form::Step>();
      program.peers[0] = {};
      program.step_count = program.chunks = program.messages = program.stages = 1;
    }
    assignment.for_each_stripe(launch, [&](const tutti_cuda_message& message, uint32_t stripe) {
      const ConnectionsOf<Form> connections(launch, stripe, row_of(message));
      const MessageSequence sequence(launch, connections, stripe, message);
      const Part part(message.bytes, message.cut, stripe);
      if (threadIdx.x % 32 == 0) program.peers[0].rank = message.peer;
      __syncwarp();
      planner.begin();
      SimpleRunner<Form, true>(launch, program, connections, pipeline, planner, sequence.value(), part,
                               static_cast<const uint8_t*>(message.from), static_cast<uint8_t*>(message.to))
          .run();
      __syncwarp();
      // The signaler reports each message as read, also empty messages.
      if (threadIdx.x % 32 == 0) sequence.advance(message.cut.messages);
    });
  });
}

/// The kernels of the small form.
template <class T, class Op>
__global__ void __launch_bounds__(kPipelineThreads, kPipelinesPerSm)
    run_simple(const __grid_constant__ tutti_cuda_launch launch) {
  __shared__ PipelineOf<SmallForm> pipeline;
  __shared__ tutti_cuda_program program;
  run_simple_program<SmallForm, T, Op>(launch, pipeline, program);
}
template <class T>
__global__ void __launch_bounds__(kPipelineThreads, kPipelinesPerSm)
    run_simple_messages(const __grid_constant__ tutti_cuda_launch launch) {
  __shared__ PipelineOf<SmallForm> pipeline;
  __shared__ tutti_cuda_program program;
  run_stripes_of_slices<SmallForm, T>(launch, pipeline, program);
}

/// The kernels of the large form.
template <class T, class Op>
__global__ void __launch_bounds__(kPipelineThreads, kPipelinesPerSm)
    run_large_simple(const __grid_constant__ tutti_cuda_launch launch) {
  __shared__ PipelineOf<LargeForm> pipeline;
  __shared__ LargeProgramCopy copy;
  run_simple_program<LargeForm, T, Op>(launch, pipeline, copy);
}
template <class T>
__global__ void __launch_bounds__(kPipelineThreads, kPipelinesPerSm)
    run_large_simple_messages(const __grid_constant__ tutti_cuda_launch launch) {
  __shared__ PipelineOf<LargeForm> pipeline;
  __shared__ LargeMessageProgram program;
  run_stripes_of_slices<LargeForm, T>(launch, pipeline, program);
}

}  // namespace tutti::device
