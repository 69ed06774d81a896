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
    // The other stream may be gone by now, so it cannot be asked; from here on, an event can.
    if (!several_) TUTTI_CUDA_TRY(cudaDeviceSynchronize());
    if (several_) TUTTI_CUDA_TRY(cudaStreamWaitEvent(stream, done_.get()));
    several_ = true;
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
  if (!several_) return {};
  TUTTI_TRY(make(done_));
  TUTTI_CUDA_TRY(cudaEventRecord(done_.get(), stream));
  return {};
}

}  // namespace tutti::nccl
