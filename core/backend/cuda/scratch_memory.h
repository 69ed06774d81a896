// SPDX-License-Identifier: Apache-2.0
// The scratch buffer of a communicator on a GPU. All calls of a communicator run one after the other on each GPU, also
// calls on different streams (docs/streams.md), so they share one buffer. A captured launch keeps the address of its
// buffer. So a buffer that has become too small stays, and later calls get a larger one.
//
// Threads: one at a time.
#pragma once

#include <cstdint>
#include <functional>

#include "tutti/status.h"

namespace tutti::backend {

class ScratchMemory {
 public:
  /// Allocates memory of the GPU, in bytes, which stays for as long as this object.
  using Allocate = std::function<Result<uint8_t*>(uint64_t bytes)>;
  explicit ScratchMemory(Allocate allocate) : allocate_(std::move(allocate)) {}

  /// A buffer of at least `bytes` (> 0). A new buffer has at least twice the size of the buffer before, as far as the
  /// GPU has so much memory, so all buffers together have at most four times the bytes of the largest request. Fails as
  /// the allocation does, with the number of bytes; the calls before are not affected.
  Result<uint8_t*> reserve(uint64_t bytes);

 private:
  Allocate allocate_;
  uint8_t* data_ = nullptr;
  uint64_t bytes_ = 0;
};

}  // namespace tutti::backend
