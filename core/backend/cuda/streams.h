// SPDX-License-Identifier: Apache-2.0
// The streams and events of CUDA, as the order of a communicator's operations asks for them.
#pragma once

#include <array>
#include <memory>

#include "backend/cuda/stream_order.h"
#include "device/cuda/runtime.h"

namespace tutti::backend {

/// The capture that a stream is in.
Result<std::optional<uint64_t>> capture_of(cudaStream_t stream);

/// Used by one thread at a time, whose GPU is the streams'.
class GpuStreams : public Streams {
 public:
  /// Makes the events of both marks.
  static Result<std::unique_ptr<Streams>> create();

  uint64_t thread_of(Stream stream) const override;
  Result<std::optional<uint64_t>> capture(Stream stream) const override;
  Status record(Mark mark, Stream stream) override;
  Status wait(Stream stream, Mark mark) override;
  Status finish(Mark mark) override;
  Status finish_all() override;

 private:
  cudaEvent_t event(Mark mark) const { return events_[static_cast<size_t>(mark)].get(); }

  std::array<cuda::Event, 2> events_;
};

/// A side stream for work beside a call's stream, and the events that fork to it and join it.
class SideStream {
 public:
  SideStream() = default;  ///< none
  static Result<SideStream> create(int device);
  cudaStream_t stream() const { return stream_.get(); }
  cudaEvent_t fork() const { return fork_.get(); }
  cudaEvent_t join() const { return join_.get(); }

 private:
  cuda::Stream stream_;
  cuda::Event fork_;
  cuda::Event join_;
};

}  // namespace tutti::backend
