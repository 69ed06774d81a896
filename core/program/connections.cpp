// SPDX-License-Identifier: Apache-2.0
#include "program/connections.h"

#include <algorithm>

namespace tutti::program {

Connections::Connections(std::span<const Plan> plans) : plans_(plans), ends_(plans.size()) {
  for (size_t rank = 0; rank < plans.size(); ++rank) ends_[rank].resize(plans[rank].peers.size());
  for_each_use([&](const Pair& pair, uint32_t& number) {
    if (number != kUnused) return;
    number = 0;  // the pair is known; its number is set below
    pairs_.push_back(pair);
  });
  std::sort(pairs_.begin(), pairs_.end());
  pairs_.erase(std::unique(pairs_.begin(), pairs_.end()), pairs_.end());
  for (uint32_t rank = 0; rank <= plans.size(); ++rank) {
    const auto first = std::lower_bound(pairs_.begin(), pairs_.end(), Pair{rank, 0});
    first_of_.push_back(static_cast<uint32_t>(first - pairs_.begin()));
  }
  for_each_use([&](const Pair& pair, uint32_t& number) { number = number_of(pair); });
}

Connections Connections::of_rotation(const Plan& zero) {
  Connections made;
  made.rotates_ = true;
  made.ends_.emplace_back();
  for (const tutti_plan_peer& peer : zero.peers) {
    made.ends_[0].push_back({(zero.rank_count - peer.rank) % zero.rank_count, peer.rank});
  }
  for (uint32_t to = 0; to < zero.rank_count; ++to) made.pairs_.push_back({0, to});
  return made;
}

/// Calls `take` with the ranks of each use of a connection, and with the place of the connection's number.
template <class Take>
void Connections::for_each_use(Take&& take) {
  for (uint32_t rank = 0; rank < plans_.size(); ++rank) {
    const Plan& plan = plans_[rank];
    for (const tutti_plan_step& step : plan.steps) {
      for (uint32_t i = step.recv_begin; i < step.recv_begin + uint32_t{step.recv_count}; ++i) {
        take(Pair{plan.peers[i].rank, rank}, ends_[rank][i].incoming);
      }
      for (uint32_t i = step.send_begin; i < step.send_begin + uint32_t{step.send_count}; ++i) {
        take(Pair{rank, plan.peers[i].rank}, ends_[rank][i].outgoing);
      }
    }
  }
}

uint32_t Connections::number_of(const Pair& pair) const {
  const auto begin = pairs_.begin() + first_of_[pair.from];
  const auto end = pairs_.begin() + first_of_[pair.from + 1];
  return static_cast<uint32_t>(std::lower_bound(begin, end, pair) - pairs_.begin());
}

}  // namespace tutti::program
