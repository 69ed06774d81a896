// SPDX-License-Identifier: Apache-2.0
// The tree in which ranks pass the results of calls on, so that the primary does not send each result to each rank.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "bootstrap/process.h"

namespace tutti::bootstrap {

/// The part of a rank in the tree.
struct BranchRole {
  int parent = -1;            ///< the rank that sends results to this rank; -1: the primary does
  std::vector<int> children;  ///< the ranks to which this rank sends results
};

/// With fewer ranks, the primary sends all results itself: further connections would cost more time than they save.
inline constexpr size_t kLeastRanksOfTree = 64;
/// Results of fewer bytes come from the primary, without a detour.
inline constexpr size_t kLeastBytesForTree = size_t{4} << 10;
/// Most hosts to which the primary or a rank sends a result.
inline constexpr size_t kTreeFanOut = 8;

/// The roles of all ranks, by rank. On each host but the primary's host, the lowest rank leads: it passes results on to
/// the further ranks of its host. The leaders form a complete tree of kTreeFanOut branches below the primary, so a
/// result reaches n hosts in log(n) steps. The ranks of the primary's host have no parent.
std::vector<BranchRole> branch_roles(const std::string& primary_host, std::span<const RankProcess> ranks);

}  // namespace tutti::bootstrap
