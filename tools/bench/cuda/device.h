// SPDX-License-Identifier: Apache-2.0
// The parts of the CUDA runtime that measurements use, with owners and Status. All of it concerns the calling thread's
// current device.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "tutti/status.h"

namespace tutti::bench::cuda {

/// Ok, or a failure that names the operation and the reason.
Status status_of(cudaError_t error, std::string_view what);

struct Release {
  void operator()(CUstream_st* stream) const { cudaStreamDestroy(stream); }
  void operator()(CUevent_st* event) const { cudaEventDestroy(event); }
  void operator()(CUgraphExec_st* graph) const { cudaGraphExecDestroy(graph); }
  void operator()(std::byte* memory) const { cudaFree(memory); }
};
using Queue = std::unique_ptr<CUstream_st, Release>;
using Event = std::unique_ptr<CUevent_st, Release>;
using Graph = std::unique_ptr<CUgraphExec_st, Release>;
using Memory = std::unique_ptr<std::byte, Release>;

/// Makes device `rank` modulo the number of devices this thread's own; returns its name.
Result<std::string> select_device(int rank);

Result<Queue> make_queue();
Result<Event> make_event();
/// Zeroed.
Result<Memory> allocate(size_t bytes);

/// A graph of the work that `enqueue` puts on the queue. The graph can be launched there again and again.
Result<Graph> capture(cudaStream_t queue, const std::function<Status()>& enqueue);

/// Free memory of the device.
Result<size_t> free_bytes();

}  // namespace tutti::bench::cuda
