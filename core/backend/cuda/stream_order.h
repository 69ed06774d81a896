// SPDX-License-Identifier: Apache-2.0
// The order of one communicator's operations on its GPU. They share connections, so they must run one after another, on
// any streams; a stream orders only its own work.
//
// Captures: operations outside of captures are in order, and so are the operations of one capture, unless operations of
// a different capture come between them. This class does not know when graphs run: the application keeps the order
// between a graph's replay and all other work, by a stream or an event.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "tutti/status.h"
#include "tutti/types.h"

namespace tutti::backend {

/// The functions of CUDA that the order needs. Each mark is one event, which is used again and again.
class Streams {
 public:
  enum class Mark { kDone, kJoint };
  virtual ~Streams() = default;
  /// The thread whose stream `stream` means if this thread names it: cudaStreamPerThread means a different stream in
  /// each thread. 0: the handle means the same stream in all threads.
  virtual uint64_t thread_of(Stream stream) const = 0;
  /// The capture that the stream is in.
  virtual Result<std::optional<uint64_t>> capture(Stream stream) const = 0;
  /// Records the mark after the present work of the stream.
  virtual Status record(Mark mark, Stream stream) = 0;
  /// Orders the stream's later work after the mark.
  virtual Status wait(Stream stream, Mark mark) = 0;
  /// Return when all work before the mark, or all work of the GPU, is complete.
  virtual Status finish(Mark mark) = 0;
  virtual Status finish_all() = 0;
};

/// Costs an event for each operation. The event must be recorded while the stream certainly exists: the application may
/// destroy it afterwards, and CUDA crashes on a destroyed stream. One thread at a time, with the communicator's GPU as
/// its current GPU.
class StreamOrder {
 public:
  explicit StreamOrder(std::unique_ptr<Streams> streams) : streams_(std::move(streams)) {}

  /// Before an operation is enqueued on a stream: it comes after this communicator's earlier operations.
  Status begin(Stream stream);
  /// After that, whether or not it was enqueued.
  Status end();

  /// To be called before and after the operations of a group, which all go to the first of its streams. The operations
  /// run after the earlier work of all the streams, and before their later work. All communicators of a group gather
  /// before any of them enqueues, so that they do not wait for each other by chance. kInvalidArgument: some of the
  /// streams are in a capture, and not all of them in the same capture.
  Status gather(std::span<const Stream> streams);
  /// Orders the later work of `waiting` after the present work of `first`. If `first` is captured, so is `waiting`.
  Status join(Stream waiting, Stream first);
  Status release(std::span<const Stream> streams);

  /// Returns when all operations are complete. If an operation was ever captured, its graph may run on any stream, so
  /// all work of the GPU is complete then. CUDA invalidates a capture of another thread on this GPU. To watch graphs by
  /// user objects of CUDA would cost 1.6 µs per graph launch (bench/gpu_launches.cu).
  Status finish();

 private:
  using Mark = Streams::Mark;
  /// A handle, and the thread in which it has its meaning; 0: all threads.
  struct Place {
    Stream stream = nullptr;
    uint64_t thread = 0;
    bool operator==(const Place&) const = default;
  };
  Place place_of(Stream stream) const { return {stream, streams_->thread_of(stream)}; }
  Status follow_capture();

  std::unique_ptr<Streams> streams_;
  Place current_;                      // between begin() and end(), and its capture
  std::optional<uint64_t> capturing_;  //
  std::optional<uint64_t> capture_;    // the latest that an operation was in, and the stream it went to
  Place captured_;                     //
  std::optional<Place> latest_;        // stream of the latest operation outside of captures; kDone comes after that
};

}  // namespace tutti::backend
