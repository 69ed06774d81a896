// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/streams.h"

#include <atomic>
#include <memory>

namespace tutti::backend {

Result<std::unique_ptr<Streams>> GpuStreams::create() {
  auto streams = std::make_unique<GpuStreams>();
  for (cuda::Event& event : streams->events_) {
    TUTTI_ASSIGN(event, cuda::make_event());
  }
  return std::unique_ptr<Streams>(std::move(streams));
}

uint64_t GpuStreams::thread_of(Stream stream) const {
  if (static_cast<cudaStream_t>(stream) != cudaStreamPerThread) [[likely]]
    return 0;
  static std::atomic<uint64_t> threads{0};  // numbers need only differ
  thread_local const uint64_t number = ++threads;
  return number;
}

Result<std::optional<uint64_t>> GpuStreams::capture(Stream stream) const {
  return capture_of(static_cast<cudaStream_t>(stream));
}

Result<std::optional<uint64_t>> capture_of(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  unsigned long long id = 0;
  TUTTI_CUDA_TRY(cudaStreamGetCaptureInfo(stream, &status, &id));
  if (status != cudaStreamCaptureStatusActive) return std::optional<uint64_t>();
  return std::optional<uint64_t>(id);
}

Status GpuStreams::record(Mark mark, Stream stream) {
  TUTTI_CUDA_TRY(cudaEventRecord(event(mark), static_cast<cudaStream_t>(stream)));
  return {};
}

Status GpuStreams::wait(Stream stream, Mark mark) {
  TUTTI_CUDA_TRY(cudaStreamWaitEvent(static_cast<cudaStream_t>(stream), event(mark), 0));
  return {};
}

/// A capture of a different thread would refuse the wait.
Status GpuStreams::finish(Mark mark) {
  const cuda::CaptureScope capture;
  TUTTI_CUDA_TRY(cudaEventSynchronize(event(mark)));
  return {};
}

/// cudaDeviceSynchronize fails at once if a stream of the GPU is captured by another thread. cudaFree waits in any
/// case, but holds up all launches on the GPU, even launches for which kernels wait.
Status GpuStreams::finish_all() {
  const cuda::CaptureScope capture;
  const cudaError_t error = cudaDeviceSynchronize();
  if (error != cudaErrorStreamCaptureUnsupported) return cuda::check(error, "cudaDeviceSynchronize()");
  cudaGetLastError();  // clears the error
  void* memory = nullptr;
  TUTTI_CUDA_TRY(cudaMalloc(&memory, 1));
  TUTTI_CUDA_TRY(cudaFree(memory));
  return {};
}

Result<SideStream> SideStream::create(int device) {
  const cuda::DeviceScope scope(device);
  const cuda::CaptureScope capture;
  SideStream side;
  TUTTI_ASSIGN(side.stream_, cuda::make_side_stream());
  TUTTI_ASSIGN(side.fork_, cuda::make_event());
  TUTTI_ASSIGN(side.join_, cuda::make_event());
  return side;
}

}  // namespace tutti::backend
