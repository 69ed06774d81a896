// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/result_tree.h"

#include <map>

namespace tutti::bootstrap {

std::vector<BranchRole> branch_roles(const std::string& primary_host, std::span<const RankProcess> ranks) {
  std::vector<BranchRole> roles(ranks.size());
  if (ranks.size() < kLeastRanksOfTree) return roles;
  std::vector<int> leaders;
  std::map<std::string, int> leader_of;
  for (int rank = 0; rank < static_cast<int>(ranks.size()); ++rank) {
    const std::string& host = ranks[static_cast<size_t>(rank)].host;
    if (host == primary_host) continue;
    BranchRole& role = roles[static_cast<size_t>(rank)];
    const auto [known, is_leader] = leader_of.emplace(host, rank);
    if (!is_leader) {
      role.parent = known->second;
    } else {
      const size_t above = leaders.size() / kTreeFanOut;  // 0: the primary
      if (above > 0) role.parent = leaders[above - 1];
      leaders.push_back(rank);
    }
    if (role.parent >= 0) roles[static_cast<size_t>(role.parent)].children.push_back(rank);
  }
  return roles;
}

}  // namespace tutti::bootstrap
