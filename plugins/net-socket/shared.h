// SPDX-License-Identifier: Apache-2.0
// What the listeners and connections of one context share: settings, options of sockets, the event descriptor.
#pragma once

#include "system.h"
#include "tutti/sdk/plugin.h"
#include "tutti/status.h"

namespace tutti::net_socket {

inline constexpr uint32_t kMaxStreams = 16;

struct Shared {
  uint32_t streams = 1;
  uint64_t stripe_bytes = 0;
  int buffer_bytes = 0;       ///< 0: the system's choice
  Milliseconds grace{10000};  ///< a connection survives each silence shorter than this
  sdk::Host host{};
  mutable uint64_t arousals = 0;  ///< how often `events` has told of something; idle connections then look
  Fd events;                      ///< epoll, edge-triggered, of every socket with data, and of listeners

  /// A connection that has been silent for this long is lost.
  Milliseconds limit() const { return silence_limit(grace); }

  /// Options of a socket that will send data, or receive data.
  void prepare_sender(const Fd& socket) const;
  void prepare_receiver(const Fd& socket) const;
  /// Reports events of a socket with data.
  Status watch(const Fd& socket) const;

 private:
  int keepalive_idle_s() const;
};

}  // namespace tutti::net_socket
