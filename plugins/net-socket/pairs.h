// SPDX-License-Identifier: Apache-2.0
// Pairs of connections that share sockets. A connection carries messages one way. If the same two contexts have a
// connection in each direction, both connections use the sockets of one of them. TCP then acknowledges the data of one
// direction with the data of the other direction, and needs no packet of its own.
//
// Of two contexts, the one with the smaller id is called the first. The second context moves: when its connection A to
// the first context sends, and a connection B from the first context has brought a message, A ends with a header that
// names B (wire.h). All later messages of A go over the sockets of B, in the other direction. Connections pair up by
// number: the n-th connection to an address with the n-th connection from it. Connections with TLS do not pair up. With
// net.failover, no connections pair up: if one of a pair breaks, the other one breaks, too.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "data_socket.h"
#include "wire.h"

namespace tutti::net_socket {

using Sockets = std::vector<std::shared_ptr<DataSocket>>;

/// The other end of a connection that may pair up.
struct Partner {
  Id context{};
  Id connection{};
  uint32_t number = 0;  ///< counts connections from a context to an address, from 0
};

/// The connections of a context that offer their sockets. Any thread.
class Pairs {
 public:
  /// Identifies a connection among the connections between two contexts. Equal on both connections of a pair.
  struct PairKey {
    Id context{};
    uint32_t number = 0;
    std::string ends;  ///< IP addresses of both ends, this one first
    // NOLINTNEXTLINE(modernize-use-nullptr): clang-tidy 14 takes the zero of the ordering for a pointer
    auto operator<=>(const PairKey&) const = default;
  };
  /// A connection whose sockets are offered.
  struct Offer {
    Id connection{};
    Sockets sockets;
  };

  /// The number of a new connection to an address of a context.
  uint32_t next_number(const Id& context, const std::string& ip) {
    const std::lock_guard lock(mutex_);
    return numbers_[{context, ip}]++;
  }
  /// From a connection of the first context.
  void offer_sent(const Id& connection, const Sockets& sockets) {
    const std::lock_guard lock(mutex_);
    sent_[connection] = weak(sockets);
  }
  /// From a connection to the second context.
  void offer_received(PairKey key, const Id& connection, const Sockets& sockets) {
    const std::lock_guard lock(mutex_);
    received_[std::move(key)] = {connection, weak(sockets)};
    offers_.fetch_add(1, std::memory_order_relaxed);
  }
  /// Sockets of a connection of the first context; empty if it is closed, or unknown.
  Sockets find_sent(const Id& connection) const {
    const std::lock_guard lock(mutex_);
    const auto found = sent_.find(connection);
    return found != sent_.end() ? strong(found->second) : Sockets();
  }
  /// Takes an offer away; its sockets are empty if there is none.
  Offer take_received(const PairKey& key) {
    const std::lock_guard lock(mutex_);
    const auto found = received_.find(key);
    if (found == received_.end()) return {};
    Offer offer{found->second.first, strong(found->second.second)};
    received_.erase(found);
    return offer;
  }
  /// Takes back what a connection offered and no other connection has taken.
  void forget(const Id& connection) {
    const std::lock_guard lock(mutex_);
    sent_.erase(connection);
    std::erase_if(received_, [&](const auto& offer) { return offer.second.first == connection; });
  }
  /// Counts calls of offer_received. Relaxed: a connection that sees the count late looks at its next message.
  uint64_t offers() const { return offers_.load(std::memory_order_relaxed); }

 private:
  using Weak = std::vector<std::weak_ptr<DataSocket>>;
  static Weak weak(const Sockets& sockets) { return {sockets.begin(), sockets.end()}; }
  static Sockets strong(const Weak& weak) {
    Sockets sockets;
    for (const auto& one : weak) {
      if (auto socket = one.lock()) sockets.push_back(std::move(socket));
    }
    return sockets.size() == weak.size() ? sockets : Sockets();
  }

  mutable std::mutex mutex_;  // guards the maps
  std::map<std::pair<Id, std::string>, uint32_t> numbers_;
  std::map<Id, Weak> sent_;
  std::map<PairKey, std::pair<Id, Weak>> received_;
  std::atomic<uint64_t> offers_{0};
};

}  // namespace tutti::net_socket
