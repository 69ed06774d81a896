// SPDX-License-Identifier: Apache-2.0
// The list of peers of a plan under construction. Header only, for plugins.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tutti/plugin/plan.h"

namespace tutti::sdk {

/// The peers of a plan under construction. Equal ranges of several steps are stored once. An index by peers finds them:
/// a plan may have a step, and a range, for each rank. Threads: one thread at a time.
class PeerList {
 public:
  /// `peers` is empty at the first place(), and changes by place() alone.
  explicit PeerList(std::vector<tutti_plan_peer>& peers) : peers_(peers) {}

  /// Sets `begin` to the first place where `range` stands, and appends the range where there is none. `range` is not a
  /// part of the list. False if tutti_plan_step cannot name the place; the list is then as before.
  bool place(std::span<const tutti_plan_peer> range, uint16_t& begin) {
    begin = 0;
    if (range.empty()) return true;
    const size_t at = find(range);
    if (at > UINT16_MAX) return false;
    begin = static_cast<uint16_t>(at);
    if (at == peers_.size()) append(range);
    return true;
  }

 private:
  static constexpr uint32_t kNone = ~0u;
  struct Places {
    uint32_t first, last;
  };

  static bool is_same(const tutti_plan_peer& a, const tutti_plan_peer& b) {
    return a.rank == b.rank && a.chunk == b.chunk;
  }
  static uint64_t key(const tutti_plan_peer& peer) { return uint64_t{peer.rank} << 32 | peer.chunk; }

  /// The end of the list if the range stands nowhere.
  size_t find(std::span<const tutti_plan_peer> range) const {
    const auto places = places_.find(key(range.front()));
    if (places == places_.end()) return peers_.size();
    for (size_t at = places->second.first; at != kNone; at = next_[at]) {
      if (stands(range, at)) return at;
    }
    return peers_.size();
  }

  bool stands(std::span<const tutti_plan_peer> range, size_t at) const {
    if (peers_.size() - at < range.size()) return false;
    return std::equal(range.begin(), range.end(), peers_.begin() + static_cast<ptrdiff_t>(at), is_same);
  }

  void append(std::span<const tutti_plan_peer> range) {
    for (const tutti_plan_peer& peer : range) {
      const auto at = static_cast<uint32_t>(peers_.size());
      const auto [places, is_new] = places_.try_emplace(key(peer), Places{at, at});
      if (!is_new) next_[std::exchange(places->second.last, at)] = at;
      next_.push_back(kNone);
      peers_.push_back(peer);
    }
  }

  std::vector<tutti_plan_peer>& peers_;
  std::unordered_map<uint64_t, Places> places_;  ///< the places of each peer in peers_
  std::vector<uint32_t> next_;                   ///< by place: the next place of an equal peer, or kNone
};

}  // namespace tutti::sdk
