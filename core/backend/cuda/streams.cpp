// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/streams.h"

#include <memory>

namespace tutti::backend {

Result<std::unique_ptr<Streams>> GpuStreams::create() {
  auto streams = std::make_unique<GpuStreams>();
  for (cuda::Event& event : streams->events_) {
    TUTTI_ASSIGN(event, cuda::make_event());
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

/// A graph owns a user object. CUDA destroys this object after the graph and all executable graphs that were made of it
/// are destroyed and have run.
Status GpuStreams::watch_graph(Stream stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  unsigned long long id = 0;
  cudaGraph_t graph = nullptr;
  TUTTI_CUDA_TRY(cudaStreamGetCaptureInfo(static_cast<cudaStream_t>(stream), &status, &id, &graph));
  auto count = std::make_unique<Count>(graphs_);
  cudaUserObject_t object = nullptr;
  TUTTI_CUDA_TRY(cudaUserObjectCreate(&object, count.get(), forget_graph, 1, cudaUserObjectNoDestructorSync));
  ++*graphs_;
  count.release();
  TUTTI_CUDA_TRY(cudaGraphRetainUserObject(graph, object, 1, cudaGraphUserObjectMove));
  return {};
}

/// Called by a thread of CUDA, which may not call CUDA.
void CUDART_CB GpuStreams::forget_graph(void* count) {
  const std::unique_ptr<Count> owned(static_cast<Count*>(count));
  --**owned;
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
