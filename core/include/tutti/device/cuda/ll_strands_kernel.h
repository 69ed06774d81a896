// SPDX-License-Identifier: Apache-2.0
// The kernel of wire formats with flags in the data, for programs with strands. For nvcc.
//
// Threads: all threads of the CTA call run_ll_strand() and the kernel.
#pragma once

#include "tutti/device/cuda/ll_kernel.h"

namespace tutti::device {

/// The share of a CTA in a launch of a program with strands. All channels run the first program.
template <class Wire, class T, class Op>
__device__ __forceinline__ void run_ll_strand(const tutti_cuda_launch& launch) {
  const Strand strand(launch, 0);
  if (!strand.is_there()) return;
  const ConnectionsOf<StrandForm> connections(launch, blockIdx.x, &launch.tables.first);
  const ProgramSequence<StrandForm> sequence(launch, connections);
  sequence.signal_begin([&](uint32_t connection) { return strand.signals(connection); });
  const Part part(launch.block_bytes, launch.cut, blockIdx.x);
  LLRunner<StrandForm, Wire, T, Op, false>(launch, connections, sequence.value(), part, launch.input, launch.output, 0)
      .run_strand(strand);
  sequence.advance(strand);
}

template <class Wire, class T, class Op>
__global__ void __launch_bounds__(Wire::kThreads) run_ll_strands(const __grid_constant__ tutti_cuda_launch launch) {
  run_ll_strand<Wire, T, Op>(launch);
}

}  // namespace tutti::device
