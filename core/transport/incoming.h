// SPDX-License-Identifier: Apache-2.0
// The connections over which data of a rank may still come.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>

namespace tutti::transport {

/// Counts the receiving connections that stand, by sender: of all networks of a rank together. A connection whose
/// sender has said that it leaves does not count. Any thread.
class Incoming {
 public:
  void add(uint32_t sender) {
    const std::lock_guard lock(mutex_);
    ++connections_[sender];
  }
  /// After an add() of the same sender.
  void remove(uint32_t sender) {
    const std::lock_guard lock(mutex_);
    --connections_[sender];
  }
  bool has(uint32_t sender) const {
    const std::lock_guard lock(mutex_);
    const auto found = connections_.find(sender);
    return found != connections_.end() && found->second > 0;
  }

 private:
  mutable std::mutex mutex_;
  std::map<uint32_t, uint32_t> connections_;
};

}  // namespace tutti::transport
