// SPDX-License-Identifier: Apache-2.0
// Messages of a relay (carried_relay.h, carried_line_relay.h) over the connections of slots that host ranks use
// (Net::pair()). Such connections fail over (net.failover), and their messages have checksums (check.data).
#pragma once

#include <cstdint>
#include <span>

#include "tutti/plugin/protocol.h"
#include "tutti/status.h"

namespace tutti::transport {

/// Both directions between this rank and a peer. One thread at a time.
class SlotCarrier {
 public:
  /// The connections outlive this object.
  SlotCarrier(tutti_connection& out, tutti_connection& in) : out_(out), in_(in) {}

  /// Room for the next message to the peer. Empty: no slot is free.
  std::span<uint8_t> room();
  /// Sends the first `bytes` bytes of room().
  void send(uint64_t bytes);
  /// Gives each message that has come to `take`, a Status(std::span<const uint8_t>), and frees its slot. True if any
  /// has come. The first failure of `take` ends it.
  template <class Take>
  Result<bool> receive(Take&& take) {
    bool moved = false;
    for (auto message = next(); !message.empty(); message = next()) {
      TUTTI_TRY(take(message));
      release();
      moved = true;
    }
    return moved;
  }

 private:
  /// The next message of the peer. Empty: none has come.
  std::span<const uint8_t> next();
  void release();
  static uint64_t slot_of(const tutti_connection& connection) { return connection.step & (connection.slot_count - 1); }

  tutti_connection& out_;
  tutti_connection& in_;
};

}  // namespace tutti::transport
