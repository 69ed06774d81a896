// SPDX-License-Identifier: Apache-2.0
// Flag wrap-around: every 2^30 messages, the sender rewrites the flags in all words of its slots with a recent number.
// Without this, a word that only longer messages overwrite would look new after 2^32 messages. For nvcc.
//
// Threads: any thread calls is_flag_wrap_due(). All threads of the CTA call rewrite_flags() together.
// Units: `number` and `last` in messages of the connection, modulo 2^32; `bytes` is the size of the slot.
#pragma once

#include "tutti/device/cuda/wire.h"

namespace tutti::device {

/// Whether one of the `last` messages up to `number` is the first message of a period in its slot.
__device__ __forceinline__ bool is_flag_wrap_due(uint32_t number, uint32_t last) {
  constexpr uint32_t kPeriod = 1u << 30;
  return (number & (kPeriod - 1)) < last;
}

/// Rewrites the flags of one slot. All threads of the CTA, when message `number` may use the slot and before any of it
/// is stored.
static __device__ __noinline__ void rewrite_flags(uint8_t* slot, uint64_t bytes, uint32_t number) {
  const uint64_t word = uint64_t{number} << 32 | number;  // fits the flags of LL and of LL128
  for (uint64_t at = threadIdx.x * kWireBytes; at < bytes; at += blockDim.x * kWireBytes) {
    store_wire(slot + at, {word, word});
  }
  __syncthreads();
}

}  // namespace tutti::device
