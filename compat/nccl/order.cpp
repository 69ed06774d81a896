// SPDX-License-Identifier: Apache-2.0
#include "nccl/order.h"

#include "device/cuda/runtime.h"

namespace tutti::nccl {

Status StreamOrder::make(Event& event) {
  if (event != nullptr) return {};
  cudaEvent_t made = nullptr;
  TUTTI_CUDA_TRY(cudaEventCreateWithFlags(&made, cudaEventDisableTiming));
  event.reset(made);
  return {};
}

Status StreamOrder::join(cudaStream_t waiting, cudaStream_t first) {
  TUTTI_TRY(make(joint_));
  TUTTI_CUDA_TRY(cudaEventRecord(joint_.get(), first));
  TUTTI_CUDA_TRY(cudaStreamWaitEvent(waiting, joint_.get()));
  return {};
}

/// After all that the stream holds. It may be gone by now, with work left: then all work of the GPU has to end.
Status StreamOrder::mark(cudaStream_t stream) {
  TUTTI_TRY(make(done_));
  if (cudaEventRecord(done_.get(), stream) == cudaSuccess) return {};
  cudaGetLastError();  // that is not an error of this call
  TUTTI_CUDA_TRY(cudaDeviceSynchronize());
  return {};
}

Status StreamOrder::begin(std::span<const cudaStream_t> streams) {
  const cudaStream_t stream = streams.front();
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  unsigned long long capture = 0;
  TUTTI_CUDA_TRY(cudaStreamGetCaptureInfo(stream, &status, &capture));
  capturing_ = status == cudaStreamCaptureStatusActive;
  if (capturing_) {
    if (capture == capture_ && captured_ != stream) TUTTI_TRY(join(stream, captured_));
    capture_ = capture;
  } else if (stream_ && *stream_ != stream) {
    if (!several_) TUTTI_TRY(mark(*stream_));
    several_ = true;
    TUTTI_CUDA_TRY(cudaStreamWaitEvent(stream, done_.get()));
  }
  for (const cudaStream_t other : streams.subspan(1)) TUTTI_TRY(join(stream, other));
  return {};
}

Status StreamOrder::end(std::span<const cudaStream_t> streams) {
  const cudaStream_t stream = streams.front();
  for (const cudaStream_t other : streams.subspan(1)) TUTTI_TRY(join(other, stream));
  if (capturing_) {
    captured_ = stream;
    return {};
  }
  stream_ = stream;
  return several_ ? mark(stream) : Status();
}

}  // namespace tutti::nccl
