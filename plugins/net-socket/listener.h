// SPDX-License-Identifier: Apache-2.0
// How connections come to be: a listener that knows its friends by a secret, and the connecting side. Nothing blocks.
#pragma once

#include <list>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/socket.h"
#include "connection.h"
#include "wire.h"

namespace tutti::net_socket {

/// Settings of the plugin, and the event descriptor of the context.
struct Shared {
  uint32_t streams = 1;
  uint64_t stripe_bytes = 0;
  int buffer_bytes = 0;  ///< 0: the system's choice
  base::Milliseconds silence{10000};
  sdk::Host host{};
  base::Fd events;  ///< epoll, edge-triggered, of every socket

  /// Options of a socket that carries data; watches it.
  Status prepare(const base::Fd& socket) const;
  Status watch(const base::Fd& socket) const;
};

class Listener {
 public:
  static Result<std::unique_ptr<Listener>> open(const base::SocketAddress& address, const Shared& shared);
  const Address& address() const { return address_; }
  /// Null: none yet. Strangers, and streams that do not introduce themselves in time, are dropped.
  Result<std::unique_ptr<Connection>> accept();

 private:
  static constexpr std::chrono::seconds kHelloLimit{10};

  explicit Listener(const Shared& shared) : shared_(shared) {}
  struct Guest {
    base::Fd socket;
    base::Time deadline;
    Hello hello;
    size_t read = 0;
  };
  struct Group {
    std::array<uint8_t, 16> connection{};
    std::vector<base::Fd> streams;
    uint32_t missing = 0;
    base::Time deadline;
  };
  Status greet();
  void read_hellos();
  void introduce(Guest& guest);

  const Shared& shared_;
  base::Fd socket_;
  Address address_;
  std::list<Guest> guests_;
  std::list<Group> groups_;
};

/// The connecting side, while it lasts.
class Connecting {
 public:
  static Result<std::unique_ptr<Connecting>> start(const Address& address, const Shared& shared);
  /// Null: not yet.
  Result<std::unique_ptr<Connection>> advance();

 private:
  Connecting(const Address& address, const Shared& shared) : shared_(shared), address_(address) {}
  Result<base::Fd> open_stream() const;
  Result<bool> advance_stream(size_t index);

  const Shared& shared_;
  Address address_;
  base::SocketAddress to_;
  Hello hello_;
  struct Stream {
    base::Fd socket;
    bool connected = false;
    size_t sent = 0;
  };
  std::vector<Stream> streams_;
};

}  // namespace tutti::net_socket
