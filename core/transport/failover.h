// SPDX-License-Identifier: Apache-2.0
// Fail-over of connections (net.failover): a connection that breaks is made again over another device or network.
//
// The sender of such a connection keeps each message in its slot until the receiver has acknowledged it. Messages of
// the opposite direction carry acknowledgements. The receiver also sends acknowledgements over a connection of its own,
// in the opposite direction. If one of the two connections breaks, both ends give both up. The sender connects by the
// next route, with a higher generation. The receiver drops what it has of earlier generations, connects back, and
// states the number of the message that it expects next. The sender goes on with this message. So each message is
// delivered exactly once, and in order. A sender with nothing to send may not notice a break. A receiver that does
// therefore tells the sender, by a connection with this purpose on each route. A receiver that does not know the
// connection yet cannot do this. So the sender makes a connection again from time to time until the receiver has
// connected back once.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "transport/connection.h"

namespace tutti::transport {

class Channel;
class Net;
enum class Purpose : uint32_t;

/// A pair of devices of one network, which joins this rank and a peer.
struct Route {
  const Net* net = nullptr;
  uint32_t device = 0;       ///< of this rank
  uint32_t peer_device = 0;  ///< of the peer
  bool operator==(const Route&) const = default;
};

/// A connection that has come in, and the devices by which it came.
struct Arrival {
  Route route;
  Purpose purpose{};
  uint32_t generation = 0;
  std::unique_ptr<Channel> channel;
};

/// Something that takes connections again and again.
class Rejoiner {
 public:
  virtual ~Rejoiner() = default;
  /// Called within the engine's round.
  virtual void arrive(Arrival arrival) = 0;
};

/// The networks of a rank, and the record of its fail-overs.
class Failover {
 public:
  /// `limit`: the time for a connection by one route.
  explicit Failover(std::chrono::nanoseconds limit) : limit_(limit) {}
  /// Before the first connection; the networks outlive their use.
  void set_nets(std::vector<const Net*> nets) { nets_ = std::move(nets); }
  const std::vector<const Net*>& nets() const { return nets_; }
  /// The same on all ranks.
  uint32_t index_of(const Net& net) const;
  std::chrono::nanoseconds limit() const { return limit_; }

  /// All routes to a peer, each once. The first is the route that `home` takes for the key.
  std::vector<Route> routes(const Net& home, const Key& key) const;

  /// Records that a connection to a peer went from one route to another, and `resent` messages are sent again. The log
  /// names each such change once.
  void report(const Key& key, const Route& from, const Route& to, uint64_t resent, const std::string& why);
  /// "fail-over: from rank 0 (host a, eth0) to ... by network 'ucx', ... : 2 connections": a line for each change.
  /// Empty: there was none. Any thread.
  std::string describe() const;
  /// Numbers since the creation of the communicator.
  struct Counts {
    uint64_t failovers = 0;
    uint64_t resent_messages = 0;
  };
  /// Any thread.
  Counts counts() const;

 private:
  const std::chrono::nanoseconds limit_;
  std::vector<const Net*> nets_;
  mutable std::mutex mutex_;               // guards changes_ and counts_
  std::map<std::string, size_t> changes_;  // number of connections
  Counts counts_;
};

/// "network 'ucx', from rank 0 (host a, eth1) to rank 1 (host b, eth1)": a route for connections that this rank makes.
std::string describe(const Route& route, const Key& key);

/// Lets all networks look for connections at once, while it exists.
class Haste {
 public:
  explicit Haste(const Failover& failover);
  ~Haste();
  Haste(const Haste&) = delete;
  Haste& operator=(const Haste&) = delete;

 private:
  const Failover& failover_;
};

}  // namespace tutti::transport
