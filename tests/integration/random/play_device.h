// SPDX-License-Identifier: Apache-2.0
// Where a rank's buffers are, and how calls are made there: in memory of the host, or on its GPU.
#pragma once

#include <functional>
#include <memory>
#include <span>

#include "tutti/communicator.h"

namespace tutti::sequence {

/// Used by one thread.
class PlayDevice {
 public:
  virtual ~PlayDevice() = default;
  /// Puts the image there, and returns where it lies: always the same address.
  virtual Result<std::byte*> load(std::span<std::byte> image) = 0;
  /// Waits for everything that was put on the streams.
  virtual Status finish() = 0;
  /// Copies the image back.
  virtual Status store(std::span<std::byte> image) = 0;
  virtual Stream stream(uint32_t index) const = 0;
  /// Records the calls that `make` makes, on any of the streams, for replay() on stream 0.
  virtual Status record(std::function<Status()> make) = 0;
  virtual Status replay() = 0;
};

/// Records by keeping `make`.
std::unique_ptr<PlayDevice> make_host_device();
/// On the calling thread's GPU; records graphs. Takes all its memory at once: the allocations of one rank would wait
/// for kernels of a rank that shares its GPU.
Result<std::unique_ptr<PlayDevice>> make_gpu_device(uint32_t streams, size_t most_bytes);

}  // namespace tutti::sequence
