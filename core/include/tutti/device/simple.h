// SPDX-License-Identifier: Apache-2.0
// The Simple wire: plain data in the slot, the tail counter says that it is there. Full bandwidth, two lines of
// latency.
//
// A message is a 64-byte header and the payload. Instead of a payload the header may carry an address of the sender's
// memory, which the receiver then reads itself (one copy instead of two), where the connection allows it.
//
// Threads: each function works for the calling thread: the one that runs the work of this side of the connection.
// Units: lengths and addresses in bytes; steps in slots.
// Errors: accept() returns TUTTI_MISMATCH if the message differs from the expected one in length, step or signature.
#pragma once

#include "tutti/device/executor.h"

namespace tutti::device {

struct alignas(64) SimpleHeader {
  uint64_t bytes;
  uint64_t address;  ///< not zero: the payload is there, in the sender's memory
  uint64_t step;     ///< first step of the message: distinguishes it from an older message at the same address
  tutti_signature signature;
  uint32_t is_signed;  ///< first message of a call
};

struct Simple {
  static constexpr uint64_t kHeaderBytes = sizeof(SimpleHeader);

  static SimpleHeader& header(const tutti_connection& connection) {
    return *reinterpret_cast<SimpleHeader*>(slot_of(connection));
  }
  /// The latest header of the sender. If the sender's message has a different length, the header lies at a different
  /// address than expected.
  static const SimpleHeader& arrived(const tutti_connection& from) {
    const SimpleHeader& expected = header(from);
    if (expected.step == from.next_begin) return expected;
    const uint64_t turn = from.slot_count;
    const uint64_t other = from.next_begin == from.step ? (from.step / turn + 1) * turn : from.step;
    return *reinterpret_cast<const SimpleHeader*>(slot_at(from, other));
  }
  static uint64_t slot_bytes(uint64_t bytes) { return kHeaderBytes + bytes; }
  static uint8_t* payload(const tutti_connection& connection) { return slot_of(connection) + kHeaderBytes; }

  template <class Team>
  TUTTI_HD static bool filled(Team& team, tutti_connection& from, uint64_t /*bytes*/) {
    return slot_filled(team, from);
  }

  template <class Team>
  TUTTI_HD static bool overdue(Team& /*team*/, tutti_connection& /*from*/) {
    return false;
  }

  template <class Team>
  TUTTI_HD static int32_t accept(Team& /*team*/, tutti_work& work, tutti_connection& from, uint64_t bytes) {
    if (work.check == 0) return TUTTI_OK;
    const SimpleHeader& got = arrived(from);
    const bool first = from.call != work.call;
    from.call = work.call;
    const bool agreed = (got.is_signed != 0) == first && got.bytes == bytes && got.step == from.next_begin &&
                        got.signature.words[0] == work.signature.words[0] &&
                        got.signature.words[1] == work.signature.words[1];
    if (agreed) return TUTTI_OK;
    work.fault.theirs = got.signature;
    return TUTTI_MISMATCH;
  }

  template <class Team>
  TUTTI_HD static int32_t move(Team& team, tutti_work& work, const Operands& operands) {
    return team.move_simple(work, operands);
  }

  template <class Team>
  TUTTI_HD static void publish(Team& team, tutti_work& work, tutti_connection& to, uint64_t bytes) {
    SimpleHeader& out = header(to);
    out.bytes = bytes;
    out.step = to.next_begin;
    out.signature = work.signature;
    out.is_signed = to.call != work.call ? 1 : 0;
    to.call = work.call;
    publish_slot(team, to, slot_bytes(out.address == 0 ? bytes : 0));
  }
};

}  // namespace tutti::device
