// SPDX-License-Identifier: Apache-2.0
// The wire format LL ("low latency"). Every 8-byte word carries 4 bytes of data and a 4-byte flag, the step's number,
// so data and its arrival signal travel together. Half the bandwidth, one cache line of latency. (As in NCCL 2; flags
// in data go back to active messages.)
//
// A slot begins with the two words of the call's signature, which the first message of a call writes. The data words
// follow.
//
// Threads: each function works for the calling thread: the one that runs the work of this side of the connection.
// Units: lengths in bytes of data, words of 8 bytes, steps in slots.
// Errors: accept() returns TUTTI_MISMATCH if the message differs from the expected one in length or signature.
#pragma once

#include "tutti/device/executor.h"

namespace tutti::device {

struct LL {
  static constexpr uint64_t kSignatureWords = 2;

  /// The flag of the connection's next step. It always differs from the flags in this slot: they belong to earlier
  /// steps, and every 2^32 steps the sender overwrites whole slots (see needs_flag_wrap).
  TUTTI_HD static uint32_t flag(const tutti_connection& connection) {
    return static_cast<uint32_t>(connection.step + 1);
  }

  /// The sender fills the whole slot once in each 2^32 steps, so that no word is ever older than that. It does so in
  /// the last steps whose flags are not 0: then no word has the flag 0, of memory that was never written, when step
  /// 2^32 - 1 comes, and none has a flag of the next steps.
  TUTTI_HD static bool needs_flag_wrap(const tutti_connection& connection) {
    return static_cast<uint32_t>(connection.step + 1 + connection.slot_count) < connection.slot_count;
  }

  TUTTI_HD static uint64_t word(uint32_t data, uint32_t flag) { return static_cast<uint64_t>(flag) << 32 | data; }
  TUTTI_HD static uint64_t* words(const tutti_connection& connection) {
    return reinterpret_cast<uint64_t*>(slot_of(connection));
  }
  TUTTI_HD static uint64_t data_words(uint64_t bytes) { return (bytes + 3) / 4; }
  TUTTI_HD static uint64_t slot_bytes(uint64_t bytes) {
    return (kSignatureWords + data_words(bytes)) * sizeof(uint64_t);
  }

  /// Words of one slot become visible in order (the last is stored with release): the last flag speaks for all.
  /// Behind a network only the counter does, since a word may arrive in parts.
  template <class Team>
  TUTTI_HD static bool filled(Team& team, tutti_connection& from, uint64_t bytes) {
    if ((from.flags & TUTTI_CONNECTION_NETWORK) != 0) return slot_filled(team, from);
    const uint64_t last = team.acquire(words(from) + kSignatureWords + data_words(bytes) - 1);
    return static_cast<uint32_t>(last >> 32) == flag(from);
  }

  /// A peer whose call is shorter never writes the word that filled() polls; its tail tells, and accept() finds the
  /// difference.
  template <class Team>
  TUTTI_HD static bool overdue(Team& team, tutti_connection& from) {
    return slot_filled(team, from);
  }

  template <class Team>
  TUTTI_HD static int32_t accept(Team& team, tutti_work& work, tutti_connection& from, uint64_t bytes) {
    if (work.check == 0) return TUTTI_OK;
    const uint64_t* got = words(from);
    const bool first = from.call != work.call;
    const uint64_t sign[2] = {team.peek(got), team.peek(got + 1)};
    const bool is_signed = static_cast<uint32_t>(sign[0] >> 32) == flag(from);
    from.call = work.call;
    bool agreed = is_signed == first;
    for (int i = 0; is_signed && i < 2; ++i) {
      work.fault.theirs.words[i] = static_cast<uint32_t>(sign[i]);
      agreed = agreed && work.fault.theirs.words[i] == work.signature.words[i];
    }
    const uint64_t last = team.peek(got + kSignatureWords + data_words(bytes) - 1);
    agreed = agreed && static_cast<uint32_t>(last >> 32) == flag(from);
    return agreed ? TUTTI_OK : TUTTI_MISMATCH;
  }

  template <class Team>
  TUTTI_HD static int32_t move(Team& team, tutti_work& work, const Operands& operands) {
    return team.move_ll(work, operands);
  }

  template <class Team>
  TUTTI_HD static void publish(Team& team, tutti_work& work, tutti_connection& to, uint64_t bytes) {
    to.call = work.call;
    publish_slot(team, to, slot_bytes(bytes));
  }
};

}  // namespace tutti::device
