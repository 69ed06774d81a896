// SPDX-License-Identifier: Apache-2.0
// Running a call on the GPU of a rank, with buffers that are checked on the host.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "tutti/communicator.h"

namespace tutti::matrix {

/// 0 in builds without CUDA.
int gpu_count();
/// Rank r uses GPU r modulo their number, from now on and in this thread.
void use_gpu(int rank);

/// Memory of the host that stands for memory of the GPU, and the positions of a call's buffers in it. Input and output
/// may be the same memory.
struct GpuBuffers {
  std::span<std::byte> in;
  size_t input;
  std::span<std::byte> out;
  size_t output;
};

/// Registers the memory of this thread's GPU that run_on_gpu() puts all buffers in. All ranks call it.
Result<std::vector<Registration>> register_buffers(Communicator& communicator);

/// Copies the memory to the GPU, makes the call there, waits for it, and copies all back. `graph`: the call is
/// captured, and a replay runs.
Status run_on_gpu(const GpuBuffers& buffers, bool graph,
                  const std::function<Status(void* input, void* output, Stream stream)>& call);

}  // namespace tutti::matrix
