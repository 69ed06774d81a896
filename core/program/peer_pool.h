// SPDX-License-Identifier: Apache-2.0
// The list of peers of a plan under construction.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tutti/plugin/plan.h"
#include "tutti/status.h"

namespace tutti::program {

/// The peers of a plan under construction. Equal ranges are stored once.
class PeerPool {
 public:
  /// `peers` is empty at the first intern(), and changes by intern() alone.
  explicit PeerPool(std::vector<tutti_plan_peer>& peers) : peers_(peers) {}

  /// Sets `begin` to the first place where `range` stands, and appends the range where there is none.
  Status intern(std::span<const tutti_plan_peer> range, uint16_t& begin) {
    begin = 0;
    if (range.empty()) return {};
    const size_t place = find(range);
    if (place > UINT16_MAX) {
      return {Code::kUnsupported, fmt::format("the steps name more than {} different peers", UINT16_MAX)};
    }
    begin = static_cast<uint16_t>(place);
    if (place == peers_.size()) append(range);
    return {};
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
    for (size_t place = places->second.first; place != kNone; place = next_[place]) {
      if (stands(range, place)) return place;
    }
    return peers_.size();
  }

  bool stands(std::span<const tutti_plan_peer> range, size_t place) const {
    if (peers_.size() - place < range.size()) return false;
    return std::equal(range.begin(), range.end(), peers_.begin() + static_cast<ptrdiff_t>(place), is_same);
  }

  void append(std::span<const tutti_plan_peer> range) {
    for (const tutti_plan_peer& peer : range) {
      const auto place = static_cast<uint32_t>(peers_.size());
      const auto [places, is_new] = places_.try_emplace(key(peer), Places{place, place});
      if (!is_new) next_[std::exchange(places->second.last, place)] = place;
      next_.push_back(kNone);
      peers_.push_back(peer);
    }
  }

  std::vector<tutti_plan_peer>& peers_;
  std::unordered_map<uint64_t, Places> places_;  ///< the places of each peer in peers_
  std::vector<uint32_t> next_;                   ///< by place: the next place of an equal peer, or kNone
};

}  // namespace tutti::program
