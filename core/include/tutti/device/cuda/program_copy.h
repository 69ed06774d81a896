// SPDX-License-Identifier: Apache-2.0
// Copies of programs in shared memory, which threads of a CTA read faster than memory of the GPU. For nvcc.
//
// Threads: all threads of the CTA call each function.
// Units: bytes.
#pragma once

#include "tutti/plugin/cuda.h"

namespace tutti::device {

/// Copies words to shared memory. All threads of the CTA. `bytes`: a multiple of 4.
__device__ __forceinline__ void copy_words(const void* from, void* to, uint32_t bytes) {
  for (uint32_t i = threadIdx.x; i < bytes / 4; i += blockDim.x) {
    reinterpret_cast<uint32_t*>(to)[i] = reinterpret_cast<const uint32_t*>(from)[i];
  }
}

/// A program of the large form in shared memory.
struct LargeProgramCopy {
  static constexpr uint32_t kBytes = 8 << 10;  // of steps and peers; longer programs stay in this GPU's memory
  tutti_cuda_large_program program;
  __align__(8) uint8_t numbers[kBytes];
};

/// Makes `to` the program `from`. All threads of the CTA. They use the returned program after a barrier.
__device__ __forceinline__ const tutti_cuda_program& copy_program(const tutti_cuda_program& from,
                                                                  tutti_cuda_program& to) {
  copy_words(&from, &to, sizeof to);
  return to;
}
__device__ __forceinline__ const tutti_cuda_large_program& copy_program(const tutti_cuda_large_program& from,
                                                                        LargeProgramCopy& to) {
  const uint32_t steps = (from.step_count * uint32_t{sizeof *from.steps} + 7) / 8 * 8;
  const uint32_t peers = from.peer_count * uint32_t{sizeof *from.peers};
  const bool fits = steps + peers <= LargeProgramCopy::kBytes;
  if (fits) {
    copy_words(from.steps, to.numbers, steps);
    copy_words(from.peers, to.numbers + steps, peers);
  }
  if (threadIdx.x != 0) return to.program;
  to.program = from;
  if (!fits) return to.program;
  to.program.steps = reinterpret_cast<const tutti_cuda_large_step*>(to.numbers);
  to.program.peers = reinterpret_cast<const tutti_cuda_large_peer*>(to.numbers + steps);
  return to.program;
}

}  // namespace tutti::device
