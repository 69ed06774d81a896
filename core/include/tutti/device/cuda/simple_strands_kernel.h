// SPDX-License-Identifier: Apache-2.0
// The kernel of Simple for programs with strands. For nvcc.
//
// Threads: all threads of the CTA call run_simple_strand() and the kernel.
#pragma once

#include "tutti/device/cuda/simple_kernel.h"

namespace tutti::device {

/// The share of a CTA in a launch of a program with strands. `pipeline` and `copy`, for the program, lie in shared
/// memory.
template <class T, class Op>
__device__ __forceinline__ void run_simple_strand(const tutti_cuda_launch& launch, PipelineOf<StrandForm>& pipeline,
                                                  LargeProgramCopy& copy) {
  const uint32_t index = blockIdx.x % launch.program_count;
  const Strand strand(launch, index);
  if (!strand.is_there()) return;
  const tutti_cuda_large_program& own = large_program(launch);
  const ConnectionsOf<StrandForm> connections(launch, blockIdx.x, &own);
  const ProgramSequence<StrandForm> sequence(launch, connections);
  sequence.signal_begin([&](uint32_t connection) { return strand.signals(connection); });
  const Part part(launch.block_bytes, launch.cut, blockIdx.x);
  const tutti_cuda_large_program& program = copy_program(own, copy);
  run_pipeline<T, Op>(pipeline, launch.scalar, [&](Planner<StrandForm>& planner) {
    planner.begin();
    SimpleRunner<StrandForm, false>(launch, program, connections, pipeline, planner, sequence.value(), part,
                                    launch.input, launch.output)
        .run_strand(strand);
  });
  sequence.advance(strand);
}

template <class T, class Op>
__global__ void __launch_bounds__(kPipelineThreads, kPipelinesPerSm)
    run_simple_strands(const __grid_constant__ tutti_cuda_launch launch) {
  __shared__ PipelineOf<StrandForm> pipeline;
  __shared__ LargeProgramCopy copy;
  run_simple_strand<T, Op>(launch, pipeline, copy);
}

}  // namespace tutti::device
