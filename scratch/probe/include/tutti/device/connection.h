// SPDX-License-Identifier: Apache-2.0
// The handshake of one connection on the host: a ring of slots, a tail that the sender advances when it
// has filled a slot, a head that the receiver advances when it has emptied one. Each side keeps its own step and the
// last value it saw of the other's counter, so that the other side's line is read only when that value is used up.
//
// A Team supplies the memory accesses: acquire(counter), publish(counter, value), ring(bell).
#pragma once

#include "tutti/device/numeric.h"
#include "tutti/plugin/protocol.h"

namespace tutti::device {

/// Sender: whether the slot of the next step is free.
template <class Team>
TUTTI_HD bool slot_free(Team& team, tutti_connection& connection) {
  if (connection.step < connection.seen + connection.slot_count) return true;
  connection.seen = team.acquire(connection.head);
  return connection.step < connection.seen + connection.slot_count;
}

/// Receiver: whether the slot of the next step is filled, by the tail counter.
template <class Team>
TUTTI_HD bool slot_filled(Team& team, tutti_connection& connection) {
  if (connection.step < connection.seen) return true;
  connection.seen = team.acquire(connection.tail);
  return connection.step < connection.seen;
}

/// Sender: whether the receiver has freed all slots before step `until`.
template <class Team>
TUTTI_HD bool freed(Team& team, tutti_connection& connection, uint64_t until) {
  if (connection.seen < until) connection.seen = team.acquire(connection.head);
  return connection.seen >= until;
}

/// Start of the slot of the next step.
TUTTI_HD uint8_t* slot_of(const tutti_connection& connection) {
  return connection.slots + (connection.step & (connection.slot_count - 1)) * connection.slot_stride;
}

/// Sender: hands over the slot it filled, of which `bytes` are in use.
template <class Team>
TUTTI_HD void publish_slot(Team& team, tutti_connection& connection, uint64_t bytes) {
  if (connection.sizes != nullptr) connection.sizes[connection.step & (connection.slot_count - 1)] = bytes;
  team.publish(connection.tail, ++connection.step);
  team.ring(connection.peer_bell);
}

/// Receiver: gives the slot it emptied back.
template <class Team>
TUTTI_HD void release_slot(Team& team, tutti_connection& connection) {
  team.publish(connection.head, ++connection.step);
  team.ring(connection.peer_bell);
}

}  // namespace tutti::device
