// SPDX-License-Identifier: Apache-2.0
// The kernel of wire formats with flags in the data (LL, LL128). It runs a program, or sends and receives. For nvcc.
//
// The time of a small message is latency: the time of instructions that depend on each other. The kernel therefore
// keeps the chain short. The parameters hold all that a CTA needs except its sequence, which the CTA loads together
// with its input. Warps need no barrier before their first store. Each thread polls only the data that it uses. A chunk
// is one message.
//
// Threads: all threads of the CTA call each function, unless it states otherwise. "A group" means the Wire::kTogether
// threads that execute together.
#pragma once

#include "tutti/device/cuda/flag_wrap.h"
#include "tutti/device/cuda/sequence.h"
#include "tutti/device/cuda/wire.h"

namespace tutti::device {

/// Runs the CTA's share of a launch. `kMessages`: runs one send or receive; otherwise a program.
template <class Form, class Wire, class T, class Op, bool kMessages>
class LLRunner {
 public:
  using Step = typename Form::Step;
  using Peer = typename Form::Peer;

  /// `peer` is used for messages only.
  __device__ __forceinline__ LLRunner(const tutti_cuda_launch& launch, const ConnectionsOf<Form>& connections,
                                      tutti_cuda_sequence sequence, const Part& part, const uint8_t* input,
                                      uint8_t* output, uint32_t peer)
      : launch_(launch),
        connections_(connections),
        part_(part),
        input_(input),
        output_(output),
        peer_(peer),
        first_number_(sequence.next),
        room_(room_of(sequence)),
        waits_(launch) {}

  __device__ __forceinline__ void run_program() {
    const uint32_t chunks = kIsLarge ? launch_.tables.first.chunks : launch_.program.chunks;
    for (uint32_t loop = 0; loop < part_.cut.loops; ++loop) {
      begin_loop(loop, chunks, kIsLarge ? launch_.tables.first.messages : launch_.program.messages);
      for (uint32_t s = 0; s < (kIsLarge ? launch_.tables.first.step_count : launch_.program.step_count); ++s) {
        Step step;
        if constexpr (kIsLarge) {
          step = launch_.tables.first.steps[s];
        } else {
          step = launch_.program.steps[s];
        }
        if ((step.flags & TUTTI_CUDA_STEP_MEET) != 0) __syncthreads();
        run_step(step);
      }
      if (is_long() && loop + 1 < part_.cut.loops) end_loop();
    }
  }

  /// Runs one strand of the program, in StrandForm. The other strands may be in different loops.
  __device__ __forceinline__ void run_strand(const Strand& strand) {
    const tutti_cuda_large_program& program = launch_.tables.first;
    for (uint32_t loop = 0; loop < part_.cut.loops; ++loop) {
      begin_loop(loop, program.chunks, program.messages);
      for (uint32_t s = strand.first(); s < strand.end(); ++s) {
        const Step step = program.steps[s];
        if (strand.waits(s)) wait_for_strands(strand, s, loop);
        if ((step.flags & TUTTI_CUDA_STEP_MEET) != 0) __syncthreads();
        run_step(step);
        if ((step.flags & TUTTI_CUDA_STEP_SIGNAL) == 0) continue;
        agree_to_stop_all();
        if (threadIdx.x == 0 && !waits_.is_stopped()) store_release_gpu(strand.word(), strand.count_after(s, loop));
      }
      if (is_long() && loop + 1 < part_.cut.loops) end_loop(&strand);
    }
  }

  __device__ __forceinline__ void run_message(const Step& step) {
    for (uint32_t loop = 0; loop < part_.cut.loops; ++loop) {
      begin_loop(loop, 1, 1);
      run_step(step);
    }
  }

 private:
  using Data = typename Wire::template Data<T>;
  static constexpr bool kIsLarge = Form::kIsLarge;
  static constexpr uint32_t kMostAtOnce = 7;  // messages that a folding thread loads at once

  __device__ __forceinline__ void begin_loop(uint32_t loop, uint32_t chunks, uint32_t messages) {
    const uint64_t done = loop * chunks * part_.cut.chunk;
    first_ = part_.begin + done;
    left_ = part_.bytes > done ? part_.bytes - done : 0;
    chunk_bytes_ = loop + 1 < part_.cut.loops ? part_.cut.chunk : part_.cut.last_chunk;
    number_ = first_number_ + loop * messages;
    wraps_ = is_flag_wrap_due(number_ + messages - 1, launch_.slot_count + messages - 1);
  }

  __device__ __forceinline__ void run_step(const Step& step) {
    if (wraps_) rewrite_if_due(step);
    if ((step.flags & (TUTTI_STEP_GATHER | TUTTI_STEP_SCATTER)) != 0) {
      exchange(step);
    } else {
      fold_chunk(step);
    }
    if (is_long()) tell_done(step);
  }
  /// Whether the receiver must free slots before the call ends.
  __device__ __forceinline__ bool is_long() const { return part_.cut.messages > launch_.slot_count / 2; }

  __device__ __forceinline__ Peer peer(uint32_t index) const {
    if constexpr (kMessages) {
      Peer peer = {};
      peer.rank = static_cast<decltype(peer.rank)>(peer_);
      return peer;
    } else {
      if constexpr (kIsLarge) {
        return launch_.tables.first.peers[index];
      } else {
        return launch_.program.peers[index];
      }
    }
  }
  __device__ __forceinline__ uint32_t length(uint32_t chunk) const {
    return static_cast<uint32_t>(length_of(chunk, chunk_bytes_, left_));
  }
  __device__ __forceinline__ uint64_t offset(uint32_t block, uint32_t chunk) const {
    return block * launch_.block_bytes + first_ + chunk * chunk_bytes_;
  }
  __device__ __forceinline__ const uint8_t* source(uint32_t buffer, uint32_t block, uint32_t chunk) const {
    if constexpr (kIsLarge) {
      if (buffer == TUTTI_BUFFER_SCRATCH) return launch_.tables.scratch + offset(block, chunk);
    }
    return (buffer == TUTTI_BUFFER_INPUT ? input_ : output_) + offset(block, chunk);
  }

  /// The places of a message that a thread moves together. Places past the message's end do not exist.
  template <uint32_t kPlaces>
  struct Places {
    uint32_t first;
    uint32_t stride;  // distance between neighbouring places
    uint32_t bytes;   // bytes of the message

    __device__ __forceinline__ uint32_t at(uint32_t p) const { return first + p * stride; }
    __device__ __forceinline__ bool exists(uint32_t p) const { return at(p) < Wire::places(bytes); }
    __device__ __forceinline__ bool is_whole(uint32_t p) const { return Wire::is_whole(at(p), bytes); }
    /// Whether any place of the group's threads exists.
    __device__ __forceinline__ bool begin() const { return (first & ~(Wire::kTogether - 1)) < Wire::places(bytes); }
  };

  /// Folds the own chunk and the received messages to one value. Stores the value to the destination and sends it to
  /// peers.
  __device__ __forceinline__ void fold_chunk(const Step& step) {
    constexpr uint32_t kFew = Wire::kInFlight;
    if (step.recv_count <= 1) return fold_by<1, kFew>(step);
    if (step.recv_count <= 3) return fold_by<3, (kFew + 1) / 2>(step);
    if (step.recv_count <= kMostAtOnce) return fold_by<kMostAtOnce, 1>(step);
    return fold_by<kMostAtOnce, 1, true>(step);
  }

  /// Loads kBatch messages of kPlaces places at once. Folds in ascending order of ranks, so that all ranks get the same
  /// bits.
  template <uint32_t kBatch, uint32_t kPlaces, bool kMany = false>
  __device__ __forceinline__ void fold_by(const Step& step) {
    const bool keeps = step.destination != TUTTI_BUFFER_NONE;
    const bool has_own = step.source != TUTTI_BUFFER_NONE;
    const uint32_t bytes = length(!has_own && keeps ? step.destination_chunk : step.source_chunk);
    const uint8_t* const from = source(step.source, step.source_block, step.source_chunk);
    uint8_t* const to = (kIsLarge && step.destination == TUTTI_BUFFER_SCRATCH ? launch_.tables.scratch : output_) +
                        offset(step.destination_block, step.destination_chunk);
    const bool folds = step.recv_count + (has_own ? 1u : 0u) > 1 || (step.flags & TUTTI_STEP_FINAL) != 0;
    const uint32_t divisor = (step.flags & TUTTI_STEP_FINAL) != 0 ? launch_.divisor : 0;
    for (Places<kPlaces> places{threadIdx.x, blockDim.x, bytes}; places.begin(); places.first += blockDim.x * kPlaces) {
      Data value[kPlaces];
      if (has_own) load_own(step.source, from, places, value);
      if constexpr (kMany) {
        fold_many<kBatch>(step, has_own, places, divisor, value);
      } else if (step.recv_count > 0) {
        Data got[kBatch][kPlaces];
        receive<kBatch>(step.recv_begin, step.recv_count, places, got);
        fold_few(got, step.recv_count, has_own ? step.own_position : kNoOwn, folds, divisor, value);
      } else if (folds) {
#pragma unroll
        for (uint32_t p = 0; p < kPlaces; ++p) value[p] = PackSum<T, Wire::kDataBytes, Op>(value[p]).value(divisor);
      }
      for (uint32_t i = 0; i < step.send_count; ++i) send(peer(step.send_begin + i), places, value);
      if (keeps) keep(to, places, value);
    }
  }

  /// `own`: the position of the own value among the contributions.
  template <uint32_t kBatch, uint32_t kPlaces>
  __device__ __forceinline__ void fold_few(const Data (&got)[kBatch][kPlaces], uint32_t count, uint32_t own, bool folds,
                                           uint32_t divisor, Data (&value)[kPlaces]) const {
#pragma unroll
    for (uint32_t p = 0; p < kPlaces; ++p) {
      if (!folds) {
        value[p] = got[0][p];
        continue;
      }
      Data contributions[kBatch];
#pragma unroll
      for (uint32_t i = 0; i < kBatch; ++i) contributions[i] = got[i][p];
      value[p] = fold_in_order<Op>(contributions, count, own, value[p], divisor);
    }
  }

  /// For more peers than kMostAtOnce.
  template <uint32_t kBatch, uint32_t kPlaces>
  __device__ __forceinline__ void fold_many(const Step& step, bool has_own, const Places<kPlaces>& places,
                                            uint32_t divisor, Data (&value)[kPlaces]) {
    PackSum<T, Wire::kDataBytes, Op> sum[kPlaces];
    for (uint32_t first = 0; first < step.recv_count; first += kBatch) {
      Data got[kBatch][kPlaces];
      const uint32_t count = min(step.recv_count - first, kBatch);
      receive<kBatch>(step.recv_begin + first, count, places, got);
#pragma unroll
      for (uint32_t i = 0; i < kBatch; ++i) {
        if (i >= count) break;
#pragma unroll
        for (uint32_t p = 0; p < kPlaces; ++p) {
          if (has_own && first + i == step.own_position) sum[p].take(value[p]);
          sum[p].take(got[i][p]);
        }
      }
    }
#pragma unroll
    for (uint32_t p = 0; p < kPlaces; ++p) {
      if (has_own && step.own_position == step.recv_count) sum[p].take(value[p]);
      value[p] = sum[p].value(divisor);
    }
  }

  /// Issues all loads before it uses any of the data: a load behind a branch would wait for the previous load. If a
  /// place is not whole, place 0 is loaded instead, and its data is not used.
  template <uint32_t kPlaces>
  __device__ __forceinline__ void load_own(uint32_t buffer, const uint8_t* from, const Places<kPlaces>& places,
                                           Data (&value)[kPlaces]) const {
    const bool direct = aligned<8>(from) && places.bytes >= Wire::kDataBytes;
    bool rest = !direct;
    if (direct) {
#pragma unroll
      for (uint32_t p = 0; p < kPlaces; ++p) {
        value[p] = Wire::template load_whole<T>(from, places.is_whole(p) ? places.at(p) : 0);
      }
    }
#pragma unroll
    for (uint32_t p = 0; p < kPlaces; ++p) rest = rest || (places.exists(p) && !places.is_whole(p));
    if (rest) {
#pragma unroll
      for (uint32_t p = 0; p < kPlaces; ++p) {
        const int32_t here = Wire::bytes_at(places.at(p), places.bytes);
        if (here <= 0 || (direct && places.is_whole(p))) continue;
        value[p] = load_pack<T, Wire::kDataBytes>(from + Wire::offset(places.at(p)), static_cast<uint32_t>(here));
      }
    }
    if (launch_.premultiplied == 0 || buffer != TUTTI_BUFFER_INPUT) return;
#pragma unroll
    for (uint32_t p = 0; p < kPlaces; ++p) value[p] = scaled(value[p], launch_.scalar);
  }
  template <uint32_t kPlaces>
  __device__ __forceinline__ void keep(uint8_t* to, const Places<kPlaces>& places, const Data (&value)[kPlaces]) const {
    const bool direct = aligned<8>(to);
#pragma unroll
    for (uint32_t p = 0; p < kPlaces; ++p) {
      const int32_t here = Wire::bytes_at(places.at(p), places.bytes);
      if (direct && places.is_whole(p)) {
        Wire::template store_whole<T>(to, places.at(p), value[p]);
      } else if (here > 0) {
        store_pack(to + Wire::offset(places.at(p)), value[p], static_cast<uint32_t>(here));
      }
    }
  }

  /// Sends, then copies the own chunk while the sends are under way, then receives. Different threads move the messages
  /// of different peers.
  __device__ __forceinline__ void exchange(const Step& step) {
    send_all(step);
    if (step.source != TUTTI_BUFFER_NONE && step.destination != TUTTI_BUFFER_NONE) copy_own(step);
    receive_all(step);
  }

  __device__ __forceinline__ void send_all(const Step& step) {
    const bool scatters = (step.flags & TUTTI_STEP_SCATTER) != 0;
    for_each_tile(step.send_begin, step.send_count, scatters ? kNoChunk : step.source_chunk,
                  [&](const Peer& to, const Tile& tile) {
                    const uint32_t block = scatters ? to.block : step.source_block;
                    const uint32_t chunk = scatters ? to.chunk : step.source_chunk;
                    Data values[Wire::kInFlight];
                    load_own(step.source, source(step.source, block, chunk), tile, values);
                    send(to, tile, values);
                  });
  }

  __device__ __forceinline__ void receive_all(const Step& step) {
    for_each_tile(step.recv_begin, step.recv_count, kNoChunk, [&](const Peer& from, const Tile& tile) {
      Data got[1][Wire::kInFlight];
      receive_from<1>(
          1, tile, [&](uint32_t) { return from; }, got);
      const bool to_scratch = kIsLarge && (step.flags & TUTTI_STEP_TO_SCRATCH) != 0;
      keep((to_scratch ? launch_.tables.scratch : output_) + offset(from.block, from.chunk), tile, got[0]);
    });
  }

  __device__ __forceinline__ void copy_own(const Step& step) {
    const uint8_t* const from = source(step.source, step.source_block, step.source_chunk);
    uint8_t* const to = (kIsLarge && step.destination == TUTTI_BUFFER_SCRATCH ? launch_.tables.scratch : output_) +
                        offset(step.destination_block, step.destination_chunk);
    const uint32_t bytes = length(step.source_chunk);
    if (from == to) return;
    for (uint32_t at = threadIdx.x * 8; at < bytes; at += blockDim.x * 8) {
      Pack<T, 8> value = load_pack<T, 8>(from + at, bytes - at);
      store_pack(to + at, value, bytes - at);
    }
  }

  using Tile = Places<Wire::kInFlight>;
  static constexpr uint32_t kNoChunk = ~0u;

  /// Distributes the places of `count` messages over the threads, tile by tile. All messages have the length of chunk
  /// `chunk`. With kNoChunk, each message has the length of its peer's chunk.
  template <class Action>
  __device__ __forceinline__ void for_each_tile(uint32_t first, uint32_t count, uint32_t chunk, Action&& action) const {
    const uint32_t most = Wire::places(static_cast<uint32_t>(min(chunk_bytes_, left_)));
    if (count == 0 || most == 0) return;
    // Threads per tile: a power of two, at most a warp, so that a group stays together.
    const uint32_t needed = max(most, Wire::kTogether);
    const uint32_t shift = needed >= 32 ? 5 : 32 - __clz(needed - 1);
    const uint32_t width = 1u << shift;
    const uint32_t tiles = ((most - 1) >> shift) / Wire::kInFlight + 1;  // per message
    for (uint32_t t = threadIdx.x >> shift; t < count * tiles; t += blockDim.x >> shift) {
      const uint32_t tile = tiles == 1 ? 0 : t / count;
      const Peer with = peer(first + t - tile * count);
      const uint32_t begin = (tile * Wire::kInFlight << shift) + (threadIdx.x & (width - 1));
      const Tile places{begin, width, length(chunk == kNoChunk ? with.chunk : chunk)};
      if (places.begin()) action(with, places);
    }
  }

  template <uint32_t kPlaces>
  __device__ __forceinline__ void send(Peer to, const Places<kPlaces>& places, const Data (&value)[kPlaces]) {
    const uint32_t number = number_ + to.message;
    if (number - first_number_ >= room_) wait_for_slot(to.rank, number);
    uint8_t* const slot = connections_.slot_to(to.rank, number);
    agree_to_stop();
    Wire::meet();  // threads may diverge, also directly after a vote
#pragma unroll
    for (uint32_t p = 0; p < kPlaces; ++p) {
      if (!places.exists(p)) continue;
      store_wire(slot + places.at(p) * kWireBytes, Wire::template encode<T>(value[p], places.at(p), number + 1));
    }
  }

  template <uint32_t kBatch, uint32_t kPlaces>
  __device__ __forceinline__ void receive(uint32_t first, uint32_t count, const Places<kPlaces>& places,
                                          Data (&got)[kBatch][kPlaces]) {
    receive_from<kBatch>(
        count, places, [&](uint32_t i) { return peer(first + (i < count ? i : 0)); }, got);
  }
  /// Receives `count` messages from the peers of these indices. Issues all loads before it checks the data.
  template <uint32_t kBatch, uint32_t kPlaces, class PeerOf>
  __device__ __forceinline__ void receive_from(uint32_t count, const Places<kPlaces>& places, PeerOf&& peer_of,
                                               Data (&got)[kBatch][kPlaces]) {
    const uint8_t* from[kBatch];
    uint32_t flag[kBatch];
#pragma unroll
    for (uint32_t i = 0; i < kBatch; ++i) {
      const Peer source = peer_of(i);
      flag[i] = number_ + source.message + 1;
      from[i] = connections_.slot_from(source.rank, flag[i] - 1) + places.first * kWireBytes;
    }
    const auto wanted = [&](uint32_t i, uint32_t p) { return i < count && places.exists(p); };
    WireWord words[kBatch][kPlaces];
    const auto load = [&] {
#pragma unroll
      for (uint32_t i = 0; i < kBatch; ++i) {
#pragma unroll
        for (uint32_t p = 0; p < kPlaces; ++p) {
          if (wanted(i, p)) words[i][p] = load_wire(from[i] + p * places.stride * kWireBytes);
        }
      }
    };
    wait_until(peer_of(0).rank, [&] {
      load();
      bool arrived = true;
#pragma unroll
      for (uint32_t i = 0; i < kBatch; ++i) {
#pragma unroll
        for (uint32_t p = 0; p < kPlaces; ++p) {
          if (wanted(i, p)) arrived = arrived && Wire::arrived(words[i][p], places.first, flag[i]);
        }
      }
      return arrived;
    });
    if constexpr (Wire::kLoadsAgain) load();
#pragma unroll
    for (uint32_t i = 0; i < kBatch; ++i) {
#pragma unroll
      for (uint32_t p = 0; p < kPlaces; ++p) {
        if (wanted(i, p)) got[i][p] = Wire::template decode<T>(words[i][p]);
      }
    }
  }

  /// Repeats `ask` until all threads of the group have their data.
  template <class Ask>
  __device__ __forceinline__ void wait_until(uint32_t rank, Ask&& ask) {
    for (uint32_t polls = 1; !waits_.is_stopped(); ++polls) {
      Wire::meet();
      if (Wire::all_arrived(ask())) break;
      if (polls % kPollsPerLook != 0) continue;
      waits_.look(kIsLarge ? connections_.rank_of(rank) : rank);
      agree_to_stop();
    }
    if (!waits_.is_stopped()) waits_.end();
  }
  /// The threads of a group meet in every wait, so they stop together. They meet here, too.
  __device__ __forceinline__ void agree_to_stop() {
    waits_.set_stopped(!Wire::all_arrived(!waits_.is_stopped()));
  }
  __device__ __forceinline__ void wait_for_slot(uint32_t rank, uint32_t number) {
    connections_.wait_for_slot(rank, number, waits_);
  }

  /// Each of the first threads waits for one strand.
  __device__ __forceinline__ void wait_for_strands(const Strand& strand, uint32_t step, uint32_t loop) {
    if (threadIdx.x < TUTTI_CUDA_MAX_STRANDS) {
      StrandWait wait = strand.wait(step, loop, threadIdx.x);
      for (uint32_t polls = 1; !waits_.is_stopped() && !wait.is_over(); ++polls) {
        if (polls % kPollsPerLook != 0) continue;
        if (wait.has_moved()) waits_.end();
        waits_.look_beside();
      }
      if (!waits_.is_stopped()) waits_.end();
    }
    agree_to_stop_all();
  }
  /// All threads of the CTA stop together, so that no strand uses data which another thread did not get. They meet
  /// here, too.
  __device__ __forceinline__ void agree_to_stop_all() {
    waits_.set_stopped(__syncthreads_or(waits_.is_stopped() ? 1 : 0) != 0);
  }

  /// Signals that the slots which a step has emptied are free, if the call has more messages than slots.
  __device__ __forceinline__ void tell_done(const Step& step) {
    if (step.recv_count == 0) return;
    __syncthreads();
    deal<Form>(threadIdx.x, step.recv_count, blockDim.x, [&](uint32_t i) {
      const Peer from = peer(step.recv_begin + i);
      const uint32_t done = number_ + from.message + 1;
      if ((done & (launch_.slot_count / 2 - 1)) == 0) store_relaxed(&connections_.mailbox_at(from.rank)->done, done);
    });
  }

  /// Signals also the numbers that a connection has not used. `strand`: in StrandForm.
  __device__ __forceinline__ void end_loop(const Strand* strand = nullptr) const {
    __syncthreads();
    deal<Form>(threadIdx.x, kIsLarge ? connections_.count() : launch_.rank_count, blockDim.x, [&](uint32_t rank) {
      if (rank == (kIsLarge ? connections_.own_number() : launch_.rank)) return;
      if constexpr (Form::kHasStrands) {
        if (!strand->signals(rank)) return;
      }
      store_relaxed(&connections_.mailbox_at(rank)->done,
                    number_ + (kIsLarge ? launch_.tables.first.messages : launch_.program.messages));
    });
  }

  __device__ __forceinline__ void rewrite_if_due(const Step& step) {
    for (uint32_t i = 0; i < step.send_count; ++i) {
      const Peer to = peer(step.send_begin + i);
      const uint32_t number = number_ + to.message;
      if (is_flag_wrap_due(number, launch_.slot_count)) wrap_flags(to.rank, number);
    }
  }
  __device__ __forceinline__ void wrap_flags(uint32_t rank, uint32_t number) {
    if (number - first_number_ >= room_) wait_for_slot(rank, number);
    agree_to_stop();
    rewrite_flags(connections_.slot_to(rank, number), launch_.slot_stride, number);
  }

  const tutti_cuda_launch& launch_;
  const ConnectionsOf<Form>& connections_;
  const Part part_;
  const uint8_t* const input_;
  uint8_t* const output_;
  const uint32_t peer_;
  const uint32_t first_number_;
  const uint32_t room_;  // messages for which a free slot is certain
  uint64_t first_ = 0;   // offset in each block at which the loop begins, in bytes
  uint64_t left_ = 0;    // bytes from first_ to the end of the part
  uint64_t chunk_bytes_ = 0;
  uint32_t number_ = 0;  // number of the loop's first message
  bool wraps_ = false;   // whether the flags of slots must be rewritten before a message of this loop
  Waits waits_;
};

/// Loads the input of the first step into the cache, so that it arrives together with the sequence.
template <class Form, class Wire>
__device__ __forceinline__ void prefetch_input(const tutti_cuda_launch& launch, const Part& part) {
  const typename Form::Step* steps;
  const typename Form::Peer* peers;
  if constexpr (Form::kIsLarge) {
    steps = launch.tables.first.steps;
    peers = launch.tables.first.peers;
  } else {
    steps = launch.program.steps;
    peers = launch.program.peers;
  }
  const typename Form::Step& step = steps[0];
  if (step.source != TUTTI_BUFFER_INPUT) return;
  uint32_t block = step.source_block;
  uint32_t chunk = step.source_chunk;
  uint32_t place = threadIdx.x;
  if ((step.flags & TUTTI_STEP_SCATTER) != 0 && step.send_count > 0) {
    const typename Form::Peer& to = peers[step.send_begin + threadIdx.x % step.send_count];
    block = to.block;
    chunk = to.chunk;
    place = threadIdx.x / step.send_count;
  }
  const uint64_t at = chunk * (part.cut.loops > 1 ? part.cut.chunk : part.cut.last_chunk) + Wire::offset(place);
  if (at >= part.bytes) return;
  prefetch(launch.input + block * launch.block_bytes + part.begin + at);
}

/// The share of a CTA in a launch of a program.
template <class Form, class Wire, class T, class Op>
__device__ __forceinline__ void run_ll_program(const tutti_cuda_launch& launch) {
  const ConnectionsOf<Form> connections(launch, blockIdx.x, &first_program<Form>(launch));
  const ProgramSequence<Form> sequence(launch, connections);
  if constexpr (Form::kIsLarge) sequence.signal_begin([](uint32_t) { return true; });
  const Part part(launch.block_bytes, launch.cut, blockIdx.x);
  prefetch_input<Form, Wire>(launch, part);
  LLRunner<Form, Wire, T, Op, false>(launch, connections, sequence.value(), part, launch.input, launch.output, 0)
      .run_program();
  sequence.advance();
}

/// The share of a CTA in a launch of sends and receives. The element type does not matter.
template <class Form, class Wire, class T>
__device__ __forceinline__ void run_stripes_of_lines(const tutti_cuda_launch& launch) {
  const WorkAssignment assignment(launch);
  assignment.for_each_stripe(launch, [&](const tutti_cuda_message& message, uint32_t stripe) {
    const ConnectionsOf<Form> connections(launch, stripe, row_of(message));
    const MessageSequence sequence(launch, connections, stripe, message);
    const Part part(message.bytes, message.cut, stripe);
    LLRunner<Form, Wire, T, Sum, true>(launch, connections, sequence.value(), part,
                                       static_cast<const uint8_t*>(message.from), static_cast<uint8_t*>(message.to),
                                       message.peer)
        .run_message(assignment.template step<typename Form::Step>());
    __syncthreads();
    if (threadIdx.x != 0) return;
    sequence.advance(message.cut.messages);
    sequence.tell(message.cut.messages);
  });
}

/// The kernels of the small form.
template <class Wire, class T, class Op>
__global__ void __launch_bounds__(Wire::kThreads) run_ll(const __grid_constant__ tutti_cuda_launch launch) {
  run_ll_program<SmallForm, Wire, T, Op>(launch);
}
template <class Wire, class T>
__global__ void __launch_bounds__(Wire::kThreads) run_ll_messages(const __grid_constant__ tutti_cuda_launch launch) {
  run_stripes_of_lines<SmallForm, Wire, T>(launch);
}

/// The kernels of the large form.
template <class Wire, class T, class Op>
__global__ void __launch_bounds__(Wire::kThreads) run_large_ll(const __grid_constant__ tutti_cuda_launch launch) {
  run_ll_program<LargeForm, Wire, T, Op>(launch);
}
template <class Wire, class T>
__global__ void __launch_bounds__(Wire::kThreads)
    run_large_ll_messages(const __grid_constant__ tutti_cuda_launch launch) {
  run_stripes_of_lines<LargeForm, Wire, T>(launch);
}

}  // namespace tutti::device
