// SPDX-License-Identifier: Apache-2.0
// The order of one communicator's operations on the GPU. They share connections, so they must run one after another,
// whichever streams they are given to: what NCCL promises, and what a stream alone gives only to its own.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <optional>
#include <span>
#include <type_traits>

#include "tutti/status.h"

namespace tutti::nccl {

/// Costs nothing but a look as long as a communicator is used with one stream. One thread at a time, with the
/// communicator's GPU as its own.
class StreamOrder {
 public:
  /// Before operations that were given to `streams` are enqueued, all to the first: they come after what these streams
  /// hold, and after this communicator's earlier operations. A graph being captured knows only its own.
  Status begin(std::span<const cudaStream_t> streams);
  /// After that: what these streams are given next comes after the operations.
  Status end(std::span<const cudaStream_t> streams);

 private:
  struct Destroy {
    void operator()(cudaEvent_t event) const { cudaEventDestroy(event); }
  };
  using Event = std::unique_ptr<std::remove_pointer_t<cudaEvent_t>, Destroy>;

  static Status make(Event& event);
  Status mark(cudaStream_t stream);
  Status join(cudaStream_t waiting, cudaStream_t first);

  bool capturing_ = false;              // between begin() and end()
  unsigned long long capture_ = 0;      // the latest capture an operation was in, and the stream it went to
  cudaStream_t captured_ = nullptr;     //
  std::optional<cudaStream_t> stream_;  // of the latest operation outside captures
  bool several_ = false;                // there was more than one of these; since then, `done_` is kept up to date
  Event done_;
  Event joint_;
};

}  // namespace tutti::nccl
