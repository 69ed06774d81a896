// SPDX-License-Identifier: Apache-2.0
// Acknowledgements that messages carry, for connections that fail over (kept_tasks.h).
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace tutti::transport {

/// The statements of the sender and the receiver of one key. Each message of the sender states how many messages
/// the receiver has taken. The peer certainly knows the statement when it has acknowledged the message that carries it.
/// One thread at a time: that of the sender and the receiver.
class Receipts {
 public:
  /// `slots`: of a connection, a power of two.
  explicit Receipts(uint32_t slots) : carried_(slots) {}

  /// The receiver takes message `step`, which states that the peer has taken `heard` messages.
  void take(uint64_t step, uint64_t heard) {
    taken_ = step + 1;
    heard_ = std::max(heard_, heard);
  }
  /// The statement for message `step` of the sender.
  uint64_t state(uint64_t step) {
    stated_ = taken_;
    return carried_[step & (carried_.size() - 1)] = taken_;
  }
  /// The peer has acknowledged the messages of the sender before `next`, the latest for the first time.
  void confirm(uint64_t next) { told_ = std::max(told_, carried_[(next - 1) & (carried_.size() - 1)]); }
  /// An acknowledgement of its own tells the peer.
  void tell() { told_ = stated_ = taken_; }

  uint64_t taken() const { return taken_; }               ///< messages that the receiver has taken
  uint64_t unstated() const { return taken_ - stated_; }  ///< taken messages that no statement includes
  uint64_t untold() const { return taken_ - told_; }      ///< messages of which the peer may not know
  uint64_t heard() const { return heard_; }               ///< messages that the peer has taken, by its own statements

 private:
  uint64_t taken_ = 0;
  uint64_t stated_ = 0;
  uint64_t told_ = 0;
  uint64_t heard_ = 0;
  std::vector<uint64_t> carried_;  // by slot: the statement of the message in it
};

}  // namespace tutti::transport
