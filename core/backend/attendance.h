// SPDX-License-Identifier: Apache-2.0
// Which calls this rank has made, and which calls the ranks had made that left: whether a call can still end.
//
// Collective calls have the same numbers on all ranks, from 1: a rank that left after call M is missing in the calls
// above M, and in no other. A rank ends call M only when it has done its part for all ranks, so slower ranks can end
// it. Messages are numbered for each pair of ranks and direction: message k to a rank that left is missing its receiver
// if the rank had made fewer than k receives.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "bootstrap/departure.h"

namespace tutti::backend {

/// One call, or one message of a group, and which of them it is.
struct Turn {
  enum class Kind : uint32_t { kCollective, kSend, kReceive };
  Kind kind = Kind::kCollective;
  uint32_t peer = 0;    ///< peer of a message
  uint64_t number = 0;  ///< from 1
};

/// A rank that left, and the first of this rank's calls that it has not made.
struct Absence {
  bootstrap::Departure departure;
  Turn turn;
};
/// "rank 3 left before call 17 (all_reduce of ...); rank 3 has done call 16, ...", and the remedy. `call`: the call or
/// message of the turn in words; empty: not known.
std::string describe(const Absence& absence, uint32_t own_rank, const std::string& call);

/// count() and uncount() by one thread at a time; all else by any thread.
class Attendance {
 public:
  explicit Attendance(uint32_t rank_count) : traffic_(rank_count) {}

  /// This rank makes a collective call, or exchanges a message with `peer`.
  Turn count(Turn::Kind kind, uint32_t peer = 0);
  /// The latest one was refused, and will not be made.
  void uncount(Turn::Kind kind, uint32_t peer = 0);
  uint64_t collectives() const { return collectives_.load(std::memory_order_relaxed); }

  /// Calls, or messages with that peer, that were counted.
  uint64_t count_of(Turn::Kind kind, uint32_t peer) const;

  /// A rank that makes no further call.
  void add(const bootstrap::Departure& departure);
  /// False as long as all ranks are there. Cheap.
  bool any_left() const { return left_.load(std::memory_order_acquire) != 0; }
  bool has_left(uint32_t rank) const;
  std::vector<bootstrap::Departure> departures() const;
  /// The lowest rank that has not left.
  uint32_t first_present() const;
  /// The first rank that left without its part in this call.
  std::optional<Absence> missing_in(const Turn& turn) const;
  /// The first rank that left without its part in a call that this rank has made. When two threads count and add at
  /// the same time, and ask afterwards, at least one of them finds the absence.
  std::optional<Absence> missing_in_any() const;

  /// This rank's own last words.
  bootstrap::Ending ending(std::string did) const;

 private:
  struct Traffic {
    std::atomic<uint64_t> sent{0};
    std::atomic<uint64_t> received{0};
  };
  std::atomic<uint64_t>& counter(Turn::Kind kind, uint32_t peer);

  // Relaxed: only the thread that makes calls writes. missing_in_any() orders them.
  std::atomic<uint64_t> collectives_{0};
  std::vector<Traffic> traffic_;
  // Ranks that left. add() changes it and missing_in_any() reads it by read-modify-writes, which have one order: the
  // later of the two threads sees all earlier changes of the earlier thread.
  mutable std::atomic<uint32_t> left_{0};
  mutable std::mutex mutex_;
  std::vector<bootstrap::Departure> departures_;  // in the order of their arrival
};

}  // namespace tutti::backend
