// SPDX-License-Identifier: Apache-2.0
// The connections that a set of plans uses, numbered.
#pragma once

#include <span>
#include <vector>

#include "program/plan.h"

namespace tutti::program {

/// A number for each directed pair of ranks that exchange messages. A proof looks a connection up with every message,
/// so the numbers are kept by the entries of each plan's peers. Does not change after construction: any thread.
class Connections {
 public:
  explicit Connections(std::span<const Plan> plans);
  /// The connections of rank 0, whose plan all ranks run in step, moved by their rank. The number of the connection to
  /// rank d is d. On it, rank 0 also finds the message of the rank d before it.
  static Connections of_rotation(const Plan& zero);

  /// Whether these are the connections of rank 0 alone.
  bool rotates() const { return rotates_; }

  /// The connection on which a rank receives from, and sends to, entry `peer` of its plan.peers.
  uint32_t incoming(uint32_t rank, uint32_t peer) const { return ends_[rank][peer].incoming; }
  uint32_t outgoing(uint32_t rank, uint32_t peer) const { return ends_[rank][peer].outgoing; }

  uint32_t size() const { return static_cast<uint32_t>(pairs_.size()); }
  uint32_t from(uint32_t connection) const { return pairs_[connection].from; }
  uint32_t to(uint32_t connection) const { return pairs_[connection].to; }

 private:
  static constexpr uint32_t kUnused = ~0u;

  struct Ends {
    uint32_t incoming = kUnused;
    uint32_t outgoing = kUnused;
  };
  struct Pair {
    uint32_t from;
    uint32_t to;
    auto operator<=>(const Pair&) const = default;
  };
  Connections() = default;
  template <class Take>
  void for_each_use(Take&& take);
  uint32_t number_of(const Pair& pair) const;

  std::span<const Plan> plans_;
  std::vector<std::vector<Ends>> ends_;  ///< by rank and entry of its plan.peers
  std::vector<Pair> pairs_;              ///< ascending; the index is the connection's number
  bool rotates_ = false;
  std::vector<uint32_t> first_of_;  ///< by sender: its first pair; one more entry at the end
};

}  // namespace tutti::program
