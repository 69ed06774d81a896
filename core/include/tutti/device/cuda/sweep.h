// SPDX-License-Identifier: Apache-2.0
// Every 2^30 messages the sender gives all words of its slots a flag that is not older: else a word that no message was
// long enough to overwrite would one day look new. For nvcc.
#pragma once

#include "tutti/device/cuda/wire.h"

namespace tutti::device {

/// Whether one of the `last` messages up to `number` is the first in its slot of a period.
__device__ __forceinline__ bool is_sweep_due(uint32_t number, uint32_t last) {
  constexpr uint32_t kPeriod = 1u << 30;
  return (number & (kPeriod - 1)) < last;
}

/// All threads of the CTA, when message `number` may be put into the slot, and before any of it is.
static __device__ __noinline__ void sweep_slot(uint8_t* slot, uint64_t bytes, uint32_t number) {
  const uint64_t word = uint64_t{number} << 32 | number;  // as the flag of either wire
  for (uint64_t at = threadIdx.x * kWireBytes; at < bytes; at += blockDim.x * kWireBytes) {
    store_wire(slot + at, {word, word});
  }
  __syncthreads();
}

}  // namespace tutti::device
