// SPDX-License-Identifier: Apache-2.0
// The kernel of LL for programs of one hop (tutti_cuda_one_hop), without a walk through steps. For nvcc.
//
// The time of a small message is latency: the time of instructions that depend on each other. The kernel therefore
// keeps the chain short. The parameters hold all addresses. The loads of the data to send do not wait for the sequence.
// It keeps the sent data in registers for the fold. It knows the destinations of all its messages before the first
// store.
//
// Threads: all threads of the CTA call each function.
#pragma once

#include "tutti/device/cuda/flag_wrap.h"
#include "tutti/device/cuda/sequence.h"

namespace tutti::device {

/// Runs the CTA's share. A thread moves one place, the same place of all messages. It sends all its messages before its
/// first wait, in every case. `kMost`: messages in each direction.
template <class T, class Op, uint32_t kMost>
class DirectRunner {
 public:
  __device__ __forceinline__ DirectRunner(const tutti_cuda_launch& launch, const Connections& connections,
                                          tutti_cuda_sequence sequence)
      : launch_(launch),
        hop_(launch.one_hop),
        connections_(connections),
        part_(launch.block_bytes, launch.cut, blockIdx.x),
        bytes_(static_cast<uint32_t>(part_.bytes)),
        sequence_(sequence),
        waits_(launch) {}

  __device__ __forceinline__ void run() {
    const uint32_t place = threadIdx.x;
    const bool exists = place < LLWire::places(bytes_);
    Sent sent;
    if (exists) sent = load(place);
    if (is_flag_wrap_due(sequence_.next, launch_.slot_count)) wrap_flags();
    if (!exists) return;
    send(sent, place);
    if (hop_.own == TUTTI_CUDA_OWN_KEPT && to(hop_.own_to) != from(hop_.own_from)) keep(hop_.own_to, place, sent.own);
    if (hop_.recv_count > 0) receive(place, sent.own);
  }

 private:
  using Data = Pack<T, LLWire::kDataBytes>;
  /// The data of one place.
  struct Sent {
    Data own;
    Data to[kMost];  // if `scatters` is set
  };

  __device__ __forceinline__ const uint8_t* from(uint64_t at) const { return launch_.input + at + part_.begin; }
  __device__ __forceinline__ uint8_t* to(uint64_t at) const { return launch_.output + at + part_.begin; }
  /// Bytes of the message from this place on.
  __device__ __forceinline__ uint32_t bytes_at(uint32_t place) const {
    return static_cast<uint32_t>(LLWire::bytes_at(place, bytes_));
  }

  /// Issues all loads of the place before it uses any of the data: a load behind a branch would wait for the previous
  /// load.
  __device__ __forceinline__ Sent load(uint32_t place) const {
    Sent sent;
    if (hop_.own == TUTTI_CUDA_OWN_UNUSED && hop_.send_count == 0) return sent;
    if (hop_.is_aligned != 0 && aligned<8>(from(0)) && LLWire::is_whole(place, bytes_)) {
      sent.own = LLWire::load_whole<T>(from(hop_.own_from), place);
      if (hop_.scatters != 0) {
#pragma unroll
        for (uint32_t i = 0; i < kMost; ++i) {
          sent.to[i] = LLWire::load_whole<T>(from(hop_.sends[i < hop_.send_count ? i : 0].at), place);
        }
      }
    } else {
      sent.own = load(hop_.own_from, place);
      if (hop_.scatters != 0) {
#pragma unroll
        for (uint32_t i = 0; i < kMost; ++i) {
          if (i < hop_.send_count) sent.to[i] = load(hop_.sends[i].at, place);
        }
      }
    }
    if (launch_.premultiplied == 0) return sent;
    sent.own = scaled(sent.own, launch_.scalar);
#pragma unroll
    for (uint32_t i = 0; i < kMost; ++i) sent.to[i] = scaled(sent.to[i], launch_.scalar);
    return sent;
  }
  __device__ __forceinline__ Data load(uint64_t at, uint32_t place) const {
    return load_pack<T, LLWire::kDataBytes>(from(at) + LLWire::offset(place), bytes_at(place));
  }
  __device__ __forceinline__ void keep(uint64_t at, uint32_t place, const Data& value) const {
    store_pack(to(at) + LLWire::offset(place), value, bytes_at(place));
  }

  __device__ __forceinline__ void send(const Sent& sent, uint32_t place) {
    const uint32_t number = sequence_.next;
    if (room_of(sequence_) == 0) {
      for (uint32_t i = 0; i < hop_.send_count; ++i) connections_.wait_for_slot(hop_.send_ranks[i], number, waits_);
    }
    const uint64_t at = connections_.slot_at(number) + place * kWireBytes;
#pragma unroll
    for (uint32_t i = 0; i < kMost; ++i) {
      if (i >= hop_.send_count) continue;
      const Data value = hop_.scatters != 0 ? sent.to[i] : sent.own;
      store_wire(hop_.sends[i].slots + at, LLWire::encode<T>(value, place, number + 1));
    }
  }

  __device__ __forceinline__ void receive(uint32_t place, const Data& own) {
    const uint64_t at = connections_.slot_at(sequence_.next) + place * kWireBytes;
    const uint32_t flag = sequence_.next + 1;
    WireWord words[kMost] = {};
    uint32_t missing = 1;  // bit i: message i
    for (uint32_t polls = 1; missing != 0 && !waits_.is_stopped(); ++polls) {
#pragma unroll
      for (uint32_t i = 0; i < kMost; ++i) {
        if (i < hop_.recv_count) words[i] = load_wire(hop_.receives[i].slots + at);
      }
      missing = 0;
#pragma unroll
      for (uint32_t i = 0; i < kMost; ++i) {
        if (i < hop_.recv_count && !LLWire::arrived(words[i], place, flag)) missing |= 1u << i;
      }
      if (missing == 0 || polls % kPollsPerLook != 0) continue;
      waits_.look(hop_.recv_ranks[__ffs(static_cast<int>(missing)) - 1]);
    }
    waits_.end();
    Data got[kMost];
#pragma unroll
    for (uint32_t i = 0; i < kMost; ++i) got[i] = LLWire::decode<T>(words[i]);
    if (hop_.folds != 0) {
      const uint32_t position = hop_.own == TUTTI_CUDA_OWN_FOLDED ? hop_.own_position : kNoOwn;
      const uint32_t divisor = hop_.is_final != 0 ? launch_.divisor : 0;
      return keep(hop_.own_to, place, fold_in_order<Op>(got, hop_.recv_count, position, own, divisor));
    }
#pragma unroll
    for (uint32_t i = 0; i < kMost; ++i) {
      if (i < hop_.recv_count) keep(hop_.receives[i].at, place, got[i]);
    }
  }

  __device__ __forceinline__ void wrap_flags() {
    for (uint32_t i = 0; i < hop_.send_count; ++i) {
      if (room_of(sequence_) == 0) connections_.wait_for_slot(hop_.send_ranks[i], sequence_.next, waits_);
      rewrite_flags(hop_.sends[i].slots + connections_.slot_at(sequence_.next), launch_.slot_stride, sequence_.next);
    }
  }

  const tutti_cuda_launch& launch_;
  const tutti_cuda_one_hop& hop_;
  const Connections& connections_;
  const Part part_;
  const uint32_t bytes_;
  const tutti_cuda_sequence sequence_;
  Waits waits_;
};

template <class T, class Op>
__global__ void __launch_bounds__(LLWire::kThreads) run_direct(const __grid_constant__ tutti_cuda_launch launch) {
  const Connections connections(launch, blockIdx.x);
  const ProgramSequence<SmallForm> sequence(launch, connections);
  const uint32_t most = max(launch.one_hop.send_count, launch.one_hop.recv_count);
  if (most == 1) {
    DirectRunner<T, Op, 1>(launch, connections, sequence.value()).run();
  } else if (most <= 3) {
    DirectRunner<T, Op, 3>(launch, connections, sequence.value()).run();
  } else {
    DirectRunner<T, Op, TUTTI_CUDA_MAX_HOPS>(launch, connections, sequence.value()).run();
  }
  sequence.advance();
}

}  // namespace tutti::device
