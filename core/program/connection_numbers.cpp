// SPDX-License-Identifier: Apache-2.0
#include "program/connection_numbers.h"

#include <algorithm>

#include "tutti/plugin/cuda.h"

namespace tutti::program {
namespace {

constexpr uint32_t kMostByRank = TUTTI_CUDA_MAX_CONNECTIONS + 1;  // ranks whose numbers are ranks

}  // namespace

ConnectionNumbers ConnectionNumbers::of(const Plan& plan) {
  std::vector<uint32_t> peers;
  if (plan.rank_count <= kMostByRank) return {{}, plan.rank_count};
  for (const tutti_plan_step& step : plan.steps) {
    for (const tutti_plan_peer& peer : plan.recv(step)) peers.push_back(peer.rank);
    for (const tutti_plan_peer& peer : plan.send(step)) peers.push_back(peer.rank);
  }
  return {std::move(peers), plan.rank_count};
}

ConnectionNumbers ConnectionNumbers::of(const Program& program, uint32_t rank_count) {
  std::vector<uint32_t> peers;
  if (rank_count <= kMostByRank) return {{}, rank_count};
  for (const tutti_program_peer& peer : program.peers) peers.push_back(peer.rank);
  return {std::move(peers), rank_count};
}

ConnectionNumbers::ConnectionNumbers(std::vector<uint32_t> peers, uint32_t rank_count)
    : rank_count_(rank_count), are_ranks_(rank_count <= kMostByRank) {
  if (are_ranks_) return;
  ranks_ = std::move(peers);
  std::sort(ranks_.begin(), ranks_.end());
  ranks_.erase(std::unique(ranks_.begin(), ranks_.end()), ranks_.end());
}

uint32_t ConnectionNumbers::number_of(uint32_t rank) const {
  if (are_ranks_) return rank;
  return static_cast<uint32_t>(std::lower_bound(ranks_.begin(), ranks_.end(), rank) - ranks_.begin());
}

}  // namespace tutti::program
