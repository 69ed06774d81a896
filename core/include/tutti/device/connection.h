// SPDX-License-Identifier: Apache-2.0
// The handshake of one connection on the host: a ring of slots with two counters. The sender advances the tail when it
// has filled a slot. The receiver advances the head when it has emptied a slot. Each side keeps its own step, and the
// last value that it read of the other counter. It reads the cache line of that counter only when this value is used
// up.
//
// A Team supplies the memory accesses: acquire(counter), publish(counter, value), ring(bell).
//
// Threads: one thread of each side at a time. Each side has a tutti_connection of its own, and advances one of the two
// counters.
// Units: steps and counters in slots, which never restart; sizes in bytes.
// Errors: none. The functions do not wait.
#pragma once

#include "tutti/device/numeric.h"
#include "tutti/plugin/protocol.h"

namespace tutti::device {

/// Both sides, before anything else is asked about the next message: where a message that takes `bytes` of slots lies.
TUTTI_HD void place_message(tutti_connection& connection, uint64_t bytes) {
  const uint64_t stride = connection.slot_stride;
  const uint64_t slots = bytes <= stride ? 1 : (bytes + stride - 1) / stride;
  const uint64_t left = connection.slot_count - (connection.step & (connection.slot_count - 1));
  connection.next_begin = connection.step + (slots <= left ? 0 : left);
  connection.next_end = connection.next_begin + slots;
}

/// Sender: whether the slots of the next message are free.
template <class Team>
TUTTI_HD bool slot_free(Team& team, tutti_connection& connection) {
  if (connection.next_end <= connection.seen + connection.slot_count) return true;
  connection.seen = team.acquire(connection.head);
  return connection.next_end <= connection.seen + connection.slot_count;
}

/// Receiver: whether the sender has written a message, of any length, by the tail counter.
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

/// Start of the slot of a step.
TUTTI_HD uint8_t* slot_at(const tutti_connection& connection, uint64_t step) {
  return connection.slots + (step & (connection.slot_count - 1)) * connection.slot_stride;
}

/// Start of the next message.
TUTTI_HD uint8_t* slot_of(const tutti_connection& connection) {
  return slot_at(connection, connection.next_begin);
}

/// Sender: hands over the message it wrote, which takes `bytes`.
template <class Team>
TUTTI_HD void publish_slot(Team& team, tutti_connection& connection, uint64_t bytes) {
  if (connection.sizes != nullptr) connection.sizes[connection.step & (connection.slot_count - 1)] = bytes;
  connection.step = connection.next_end;
  team.publish(connection.tail, connection.step);
  team.ring(connection.peer_bell);
}

/// Receiver: gives the slots of the message it read back.
template <class Team>
TUTTI_HD void release_slot(Team& team, tutti_connection& connection) {
  connection.step = connection.next_end;
  team.publish(connection.head, connection.step);
  team.ring(connection.peer_bell);
}

}  // namespace tutti::device
