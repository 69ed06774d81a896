// SPDX-License-Identifier: Apache-2.0
// The subject of a measurement on a device: one rank's communicator in a library, Tutti itself or a library with NCCL's
// C API.
#pragma once

#include <memory>
#include <string_view>

#include "tools/bench/measure.h"

namespace tutti::bench {

/// The smallest memory that CUDA shares between processes alone, and that libraries register.
inline constexpr size_t kRegisteredGrain = size_t{2} << 20;

class Library {
 public:
  /// Leaves the communicator: every rank does so at about the same time, after its last call has ended on the device.
  virtual ~Library() = default;

  /// Memory of the device for as long as this lives, registered where the library can. Every rank makes the same calls.
  /// `bytes`: a multiple of kRegisteredGrain.
  virtual Result<std::byte*> take_registered(size_t bytes) = 0;

  /// Sets the call of the next run().
  virtual Status prepare(const check::Problem& problem) = 0;
  /// Enqueues one call of this kind, or records it if the stream is being captured.
  virtual Status run(const void* input, void* output, Stream stream) = 0;
  /// The calls of run() between these two functions are enqueued by the second function.
  virtual Status start_group() = 0;
  virtual Status end_group() = 0;
  /// The name of the algorithm and protocol that run the call.
  virtual Result<Ran> ran() const = 0;
  /// Of this rank's communicator; zero in libraries that do not count.
  virtual Counters counters() const { return {}; }
  /// Failures after a call had returned.
  virtual Status async_error() const = 0;
  /// Ends all work on the device; afterwards nothing can be run.
  virtual void abort(std::string_view reason) = 0;
  /// Name, version and path; the rest is for the caller to find out.
  virtual LibraryFacts facts() const = 0;
};

/// Both join every rank of `control` on the calling thread's CUDA device; all ranks call them together.
Result<std::unique_ptr<Library>> join_tutti(const Request& request, Communicator& control);
/// `path` as dlopen takes it.
Result<std::unique_ptr<Library>> join_nccl(const std::string& path, Communicator& control);

}  // namespace tutti::bench
