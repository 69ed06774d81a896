// SPDX-License-Identifier: Apache-2.0
// The list of peers of a plan under construction.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <unordered_map>
#include <vector>

#include "tutti/plugin/plan.h"
#include "tutti/status.h"

namespace tutti::program {

/// The peers of a plan under construction. Equal ranges are stored once.
class PeerPool {
 public:
  explicit PeerPool(std::vector<tutti_plan_peer>& peers) : peers_(peers) {}

  /// Sets `begin` to the first place where `range` stands, and appends the range where there is none.
  Status intern(std::span<const tutti_plan_peer> range, uint16_t& begin) {
    begin = 0;
    if (range.empty()) return {};
    std::vector<size_t>& places = places_[key(range.front())];
    const auto same = std::find_if(places.begin(), places.end(), [&](size_t place) { return stands(range, place); });
    const size_t found = same != places.end() ? *same : peers_.size();
    if (found > UINT16_MAX) {
      return {Code::kUnsupported, fmt::format("the steps name more than {} different peers", UINT16_MAX)};
    }
    begin = static_cast<uint16_t>(found);
    if (same == places.end()) append(range);
    return {};
  }

 private:
  static bool is_same(const tutti_plan_peer& a, const tutti_plan_peer& b) {
    return a.rank == b.rank && a.chunk == b.chunk;
  }
  static uint64_t key(const tutti_plan_peer& peer) { return uint64_t{peer.rank} << 32 | peer.chunk; }

  bool stands(std::span<const tutti_plan_peer> range, size_t place) const {
    if (peers_.size() - place < range.size()) return false;
    return std::equal(range.begin(), range.end(), peers_.begin() + static_cast<ptrdiff_t>(place), is_same);
  }

  void append(std::span<const tutti_plan_peer> range) {
    for (const tutti_plan_peer& peer : range) {
      places_[key(peer)].push_back(peers_.size());
      peers_.push_back(peer);
    }
  }

  std::vector<tutti_plan_peer>& peers_;
  std::unordered_map<uint64_t, std::vector<size_t>> places_;  ///< positions of each peer in peers_, ascending
};

}  // namespace tutti::program
