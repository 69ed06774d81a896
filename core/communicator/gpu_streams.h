// SPDX-License-Identifier: Apache-2.0
// The streams and events of CUDA, as the order of a communicator's operations asks for them.
#pragma once

#include <array>
#include <memory>
#include <type_traits>

#include "communicator/stream_order.h"
#include "device/cuda/runtime.h"

namespace tutti::communicator {

/// The capture that a stream is in.
Result<std::optional<uint64_t>> capture_of(cudaStream_t stream);

/// Used by one thread at a time, whose GPU is the streams'.
class GpuStreams : public Streams {
 public:
  /// Makes the events of both marks.
  static Result<std::unique_ptr<Streams>> create();

  Result<std::optional<uint64_t>> capture(Stream stream) const override;
  Status record(Mark mark, Stream stream) override;
  Status wait(Stream stream, Mark mark) override;
  Status finish(Mark mark) override;
  Status finish_all() override;

 private:
  struct Destroy {
    void operator()(cudaEvent_t event) const { cudaEventDestroy(event); }
  };
  cudaEvent_t event(Mark mark) const { return events_[static_cast<size_t>(mark)].get(); }

  std::array<std::unique_ptr<std::remove_pointer_t<cudaEvent_t>, Destroy>, 2> events_;
};

/// A stream for what runs beside a call's, and the events that lead to it and back. It neither blocks nor waits for the
/// default stream.
class SideStream {
 public:
  SideStream() = default;  ///< none
  static Result<SideStream> create(int device);
  cudaStream_t stream() const { return stream_.get(); }
  cudaEvent_t fork() const { return fork_.get(); }
  cudaEvent_t join() const { return join_.get(); }

 private:
  struct Destroy {
    void operator()(cudaStream_t stream) const { cudaStreamDestroy(stream); }
    void operator()(cudaEvent_t event) const { cudaEventDestroy(event); }
  };
  using Event = std::unique_ptr<std::remove_pointer_t<cudaEvent_t>, Destroy>;
  static Result<Event> make_event();

  std::unique_ptr<std::remove_pointer_t<cudaStream_t>, Destroy> stream_;
  Event fork_;
  Event join_;
};

}  // namespace tutti::communicator
