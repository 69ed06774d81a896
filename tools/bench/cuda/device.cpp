// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/cuda/device.h"

#include <fmt/format.h>

#include "device/cuda/runtime.h"

namespace tutti::bench::cuda {

Status status_of(cudaError_t error, std::string_view what) {
  if (error == cudaSuccess) return {};
  return Status(Code::kDevice, fmt::format("{}: {} ({})", what, cudaGetErrorString(error), cudaGetErrorName(error)));
}

Result<std::string> select_device(int rank) {
  int devices = 0;
  TUTTI_TRY(status_of(cudaGetDeviceCount(&devices), "cannot use a CUDA device"));
  if (devices == 0) return Status(Code::kNotFound, "there is no CUDA device here");
  const int device = rank % devices;
  TUTTI_TRY(status_of(cudaSetDevice(device), fmt::format("cannot use CUDA device {}", device)));
  TUTTI_TRY(status_of(cudaFree(nullptr), fmt::format("cannot use CUDA device {}", device)));
  cudaDeviceProp properties{};
  TUTTI_TRY(status_of(cudaGetDeviceProperties(&properties, device), "cannot look at the CUDA device"));
  return std::string(properties.name);
}

Result<Queue> make_queue() {
  cudaStream_t stream = nullptr;
  TUTTI_TRY(status_of(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cannot make a stream"));
  Queue queue(stream);
  // At its first use a stream waits for the kernels of the process that run then. Ranks of one process may share a GPU,
  // and their kernels wait for each other, so the first use is before the first call.
  TUTTI_TRY(tutti::cuda::use_once(stream));
  return queue;
}

Result<Event> make_event() {
  cudaEvent_t event = nullptr;
  TUTTI_TRY(status_of(cudaEventCreate(&event), "cannot make an event"));
  return Event(event);
}

Result<Memory> allocate(size_t bytes) {
  void* memory = nullptr;
  const std::string what = fmt::format("cannot take {} MiB of device memory", bytes >> 20);
  TUTTI_TRY(status_of(cudaMalloc(&memory, bytes), what));
  Memory owner(static_cast<std::byte*>(memory));
  TUTTI_TRY(status_of(cudaMemset(memory, 0, bytes), what));
  TUTTI_TRY(status_of(cudaDeviceSynchronize(), what));
  return owner;
}

Result<Graph> capture(cudaStream_t queue, const std::function<Status()>& enqueue) {
  // Ranks may be threads: CUDA calls of their threads must not affect this capture.
  TUTTI_TRY(status_of(cudaStreamBeginCapture(queue, cudaStreamCaptureModeThreadLocal), "cannot begin to capture"));
  const Status enqueued = enqueue();
  cudaGraph_t graph = nullptr;
  const Status ended = status_of(cudaStreamEndCapture(queue, &graph), "cannot capture the calls");
  cudaGraphExec_t executable = nullptr;
  Status made = enqueued.ok() ? ended : enqueued;
  if (made.ok()) made = status_of(cudaGraphInstantiateWithFlags(&executable, graph, 0), "cannot make a graph");
  if (graph != nullptr) cudaGraphDestroy(graph);
  TUTTI_TRY(made);
  Graph owner(executable);
  TUTTI_TRY(status_of(cudaGraphUpload(executable, queue), "cannot upload a graph"));
  return owner;
}

Result<size_t> free_bytes() {
  size_t free = 0;
  size_t total = 0;
  TUTTI_TRY(status_of(cudaMemGetInfo(&free, &total), "cannot ask for free memory"));
  return free;
}

}  // namespace tutti::bench::cuda
