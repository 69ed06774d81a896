// SPDX-License-Identifier: Apache-2.0
// The connections between two ranks, and their keys.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "tutti/plugin/protocol.h"

namespace tutti::transport {

/// Collectives and send/recv never share a connection: each keeps its own order.
enum class Traffic : uint32_t { kCollective = 0, kPointToPoint = 1 };
inline constexpr uint32_t kTrafficCount = 2;

/// One direction between this rank and `peer`.
struct Key {
  uint32_t peer = 0;  ///< rank
  Traffic traffic = Traffic::kCollective;
  uint32_t channel = 0;
  uint32_t protocol = 0;  ///< index in the communicator's list of protocols
  // By which network devices a connection is made when it is first used; not part of its identity.
  uint32_t device = TUTTI_NO_NET;       ///< this rank's
  uint32_t peer_device = TUTTI_NO_NET;  ///< the peer's
};

/// By which network devices a channel sends to a peer, and receives from the peer; TUTTI_NO_NET: any.
struct Ports {
  uint32_t device = TUTTI_NO_NET;       ///< this rank's, which sends
  uint32_t peer_device = TUTTI_NO_NET;  ///< the peer's, which receives
  uint32_t receives_by = TUTTI_NO_NET;  ///< this rank's, which receives
  bool operator==(const Ports&) const = default;
};

/// By peer: the network of the path to the peer, in place of the call's network. Nothing: the call decides. Empty: the
/// call decides for all peers.
using Paths = std::vector<std::optional<uint32_t>>;

/// The network to a peer, in a call over `network`.
inline uint32_t network_to(uint32_t peer, uint32_t network, const Paths& paths) {
  return paths.empty() ? network : paths[peer].value_or(network);
}

/// The extent of the keys of one peer: every kind of traffic × channel × protocol, in one flat order.
struct KeySpace {
  uint32_t channels = 1;
  std::vector<tutti_slot_layout> protocols;  ///< layout of a connection, per protocol

  uint32_t size() const { return kTrafficCount * channels * static_cast<uint32_t>(protocols.size()); }
  uint32_t index(const Key& key) const {
    const auto count = static_cast<uint32_t>(protocols.size());
    return (static_cast<uint32_t>(key.traffic) * channels + key.channel) * count + key.protocol;
  }
};

/// Counters and slots of one connection, as they lie in memory: tail and head each on a line of their own, then the
/// slots.
inline constexpr uint64_t kCountersBytes = 128;
inline uint64_t connection_bytes(const tutti_slot_layout& layout) {
  return kCountersBytes + layout.slot_count * layout.slot_stride;
}

/// Messages of any length that certainly fit a connection. If messages take several slots, the slots of one message may
/// stay empty.
inline uint32_t message_count(const tutti_slot_layout& layout) {
  return layout.message_slots <= 1 ? layout.slot_count : layout.slot_count / layout.message_slots - 1;
}

/// Slots that a message of so many chunks takes at most, each chunk on a cache line of its own. `payload_bytes`: of a
/// slot. `chunk_slots`: slots of the longest message with one chunk.
inline uint64_t slots_of_message(uint64_t payload_bytes, uint32_t chunk_slots, uint32_t message_chunks) {
  constexpr uint64_t kLineBytes = 64;
  const uint64_t lines = payload_bytes < kLineBytes ? 1 : payload_bytes / kLineBytes;
  const uint64_t least = (message_chunks + lines - 1) / lines;
  return std::max<uint64_t>({1, chunk_slots, least});
}

/// A connection over the memory at `base`, with nothing sent yet.
inline tutti_connection connection_at(uint8_t* base, const tutti_slot_layout& layout, uint32_t peer) {
  tutti_connection connection{};
  connection.tail = reinterpret_cast<uint64_t*>(base);
  connection.head = reinterpret_cast<uint64_t*>(base + kCountersBytes / 2);
  connection.slots = base + kCountersBytes;
  connection.slot_stride = layout.slot_stride;
  connection.slot_count = layout.slot_count;
  connection.payload_bytes = layout.slot_bytes;
  connection.peer = peer;
  return connection;
}

}  // namespace tutti::transport
