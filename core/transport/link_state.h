// SPDX-License-Identifier: Apache-2.0
// The state of a network connection, for the texts of time-outs.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "transport/connection.h"
#include "transport/failover.h"

namespace tutti::transport {

class Net;

/// One direction of a key. The thread of the connection's task writes it, any thread reads it. The net knows all of its
/// states.
class LinkState {
 public:
  enum class Phase : uint32_t {
    kAbsent,      ///< sender: connect has not ended; receiver: the peer has not connected
    kIntroduces,  ///< sender: the first message, which names this rank, is not complete
    kStands,
    kBroken,
    kLeft,  ///< receiver: the sender has said that it leaves
  };
  LinkState(const Net& net, const Key& key, bool sends);
  ~LinkState();
  LinkState(const LinkState&) = delete;
  LinkState& operator=(const LinkState&) = delete;

  void enter(Phase phase);
  /// Requests are numbered from 0 and complete in this order.
  void count(uint64_t posted, uint64_t completed) {
    posted_.store(posted, std::memory_order_relaxed);
    completed_.store(completed, std::memory_order_relaxed);
  }
  /// The connection is made by these devices, not by those of the key.
  void go_by(const Route& route) {
    device_.store(route.device, std::memory_order_relaxed);
    peer_device_.store(route.peer_device, std::memory_order_relaxed);
    by_.store(route.net, std::memory_order_relaxed);
  }
  const Key& key() const { return key_; }
  /// Whether this rank has sends that are not complete, or has data for a connection that does not stand yet.
  bool owes() const;
  /// "from rank 0 (host a, eth0) to rank 1 (host b, eth0): connected; oldest outstanding request: send of message 3".
  std::string describe() const;

 private:
  std::string ends() const;

  const Net& net_;
  const Key key_;
  const bool sends_;
  // Relaxed: no other data depends on them, and a text may be a moment old.
  std::atomic<Phase> phase_{Phase::kAbsent};
  std::atomic<uint64_t> posted_{0};
  std::atomic<uint64_t> completed_{0};
  std::atomic<const Net*> by_{nullptr};  // null: net_
  std::atomic<uint32_t> device_{0};
  std::atomic<uint32_t> peer_device_{0};
};

}  // namespace tutti::transport
