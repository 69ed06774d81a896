// SPDX-License-Identifier: Apache-2.0
// The kernel of Simple for programs with strands. For nvcc.
//
// Threads: all threads of the CTA call run_simple_strand() and the kernel.
#pragma once

#include "tutti/device/cuda/simple_kernel.h"

namespace tutti::device {

/// The share of a CTA in a launch of a program with strands. `pipeline` and `program` lie in shared memory.
template <class T, class Op>
__device__ __forceinline__ void run_simple_strand(const tutti_cuda_launch& launch, PipelineOf<StrandForm>& pipeline,
                                                  tutti_cuda_large_program& program) {
  const uint32_t index = blockIdx.x % launch.program_count;
  const Strand strand(launch, index);
  if (!strand.is_there()) return;
  const ConnectionsOf<StrandForm> connections(launch, blockIdx.x);
  const ProgramSequence<StrandForm> sequence(launch, connections);
  const Part part(launch.block_bytes, launch.cut, blockIdx.x);
  copy_program(launch.tables.programs + index, program);
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
  __shared__ __align__(16) tutti_cuda_large_program program;  // copied by words
  run_simple_strand<T, Op>(launch, pipeline, program);
}

}  // namespace tutti::device
