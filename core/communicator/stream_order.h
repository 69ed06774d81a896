// SPDX-License-Identifier: Apache-2.0
// The order of one communicator's operations on its GPU. They share connections, so they must run one after another,
// whichever streams they are given to; a stream alone gives that only to its own.
//
// What is captured and what is not: operations outside of captures are in order, and so are those of one capture,
// unless ones of another capture come in between. Where graphs run is not known here: between a graph's replay and
// anything else the application keeps the order, by a stream or an event.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "tutti/communicator.h"

namespace tutti::communicator {

/// What the order asks of CUDA. Each mark is one event, which is used again and again.
class Streams {
 public:
  enum class Mark { kDone, kJoint };
  virtual ~Streams() = default;
  /// The capture that the stream is in.
  virtual Result<std::optional<uint64_t>> capture(Stream stream) const = 0;
  /// The mark comes after all that the stream holds.
  virtual Status record(Mark mark, Stream stream) = 0;
  /// What the stream is given next comes after the mark.
  virtual Status wait(Stream stream, Mark mark) = 0;
  /// Return when all before the mark, or all on the GPU, is through.
  virtual Status finish(Mark mark) = 0;
  virtual Status finish_all() = 0;
};

/// Costs an event for each operation: it must be recorded while the stream is there for sure, as the application may
/// destroy it afterwards, and CUDA crashes on a stream that is gone. One thread at a time, with the communicator's GPU
/// as its own.
class StreamOrder {
 public:
  explicit StreamOrder(std::unique_ptr<Streams> streams) : streams_(std::move(streams)) {}

  /// Before an operation is enqueued on a stream: it comes after this communicator's earlier operations.
  Status begin(Stream stream);
  /// After that, whether or not it was enqueued.
  Status end();

  /// Around the operations of a group, which all go to the first of its streams: they come after what all the streams
  /// hold, and before what these are given next. All communicators of a group gather before one of them enqueues, so
  /// that they do not wait for each other by chance. kInvalidArgument: not all streams are in one capture, or in none.
  Status gather(std::span<const Stream> streams);
  Status release(std::span<const Stream> streams);

  /// Returns when all operations are through; with those of captures, all that runs on the GPU.
  Status finish();

 private:
  using Mark = Streams::Mark;
  Status join(Stream waiting, Stream first);

  std::unique_ptr<Streams> streams_;
  Stream current_ = nullptr;           // between begin() and end(), and its capture
  std::optional<uint64_t> capturing_;  //
  std::optional<uint64_t> capture_;    // the latest that an operation was in, and the stream it went to
  Stream captured_ = nullptr;          //
  std::optional<Stream> latest_;       // stream of the latest operation outside of captures; kDone comes after that
};

}  // namespace tutti::communicator
