// SPDX-License-Identifier: Apache-2.0
// Which processes run the hubs of a group, and which ranks pass results on, as a rank learns it when all ranks have
// joined.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "bootstrap/process.h"
#include "bootstrap/result_tree.h"
#include "bootstrap/wire.h"

namespace tutti::bootstrap {

/// A process with a hub.
struct HubProcess {
  std::string origin;      ///< "node7 pid 42"
  std::vector<int> ranks;  ///< ranks of this process
};

/// "rank 0 (node7 pid 42)", "ranks 0,1 (node7 pid 42)"; without ranks "no rank (node7 pid 42)".
std::string to_text(const HubProcess& process);

struct Lineup {
  HubProcess primary;  ///< made the unique id
  HubProcess standby;  ///< without ranks if there is none
  BranchRole branch;   ///< the place of the rank that gets this lineup
  int standby_rank() const { return standby.ranks.empty() ? -1 : standby.ranks.front(); }
};

/// Chooses the standby: a process other than the process of the primary. It is on a different host if there are several
/// hosts; among the remaining candidates, the process of the lowest rank.
Lineup line_up(const RankProcess& primary, std::span<const RankProcess> ranks);

Bytes encode(const Lineup& lineup);
/// kInternal for bytes that encode() does not make.
Result<Lineup> decode_lineup(std::span<const std::byte> bytes, int rank_count);

}  // namespace tutti::bootstrap
