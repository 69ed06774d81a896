// SPDX-License-Identifier: Apache-2.0
#include "communicator/gpu_streams.h"

namespace tutti::communicator {
Result<std::unique_ptr<Streams>> GpuStreams::create() {
  auto streams = std::make_unique<GpuStreams>();
  for (auto& event : streams->events_) {
    cudaEvent_t made = nullptr;
    TUTTI_CUDA_TRY(cudaEventCreateWithFlags(&made, cudaEventDisableTiming));
    event.reset(made);
  }
  return std::unique_ptr<Streams>(std::move(streams));
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

Status GpuStreams::finish(Mark mark) {
  TUTTI_CUDA_TRY(cudaEventSynchronize(event(mark)));
  return {};
}

Status GpuStreams::finish_all() {
  TUTTI_CUDA_TRY(cudaDeviceSynchronize());
  return {};
}

Result<SideStream::Event> SideStream::make_event() {
  cudaEvent_t made = nullptr;
  TUTTI_CUDA_TRY(cudaEventCreateWithFlags(&made, cudaEventDisableTiming));
  return Event(made);
}

/// Streams of one priority share queues of the hardware, in which its work could come behind a kernel that waits.
Result<SideStream> SideStream::create(int device) {
  const cuda::DeviceScope scope(device);
  const cuda::CaptureScope capture;
  SideStream side;
  int least = 0;
  int greatest = 0;
  cudaStream_t made = nullptr;
  TUTTI_CUDA_TRY(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  TUTTI_CUDA_TRY(cudaStreamCreateWithPriority(&made, cudaStreamNonBlocking, greatest));
  side.stream_.reset(made);
  TUTTI_ASSIGN(side.fork_, make_event());
  TUTTI_ASSIGN(side.join_, make_event());
  return side;
}

}  // namespace tutti::communicator
