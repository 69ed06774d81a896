// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/lineup.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "bootstrap/rank_list.h"

namespace tutti::bootstrap {
namespace {

constexpr size_t kParts = 6;

HubProcess process_with(uint64_t process, std::span<const RankProcess> ranks) {
  HubProcess found;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    if (ranks[rank].process != process) continue;
    found.origin = ranks[rank].origin;
    found.ranks.push_back(static_cast<int>(rank));
  }
  return found;
}

Bytes pack_ranks(const std::vector<int>& ranks) {
  const auto bytes = std::as_bytes(std::span(ranks));
  return Bytes(bytes.begin(), bytes.end());
}

Result<std::vector<int>> unpack_ranks(const Bytes& bytes, int rank_count) {
  std::vector<int> ranks(bytes.size() / sizeof(int));
  if (!ranks.empty()) std::memcpy(ranks.data(), bytes.data(), ranks.size() * sizeof(int));
  const bool known = std::all_of(ranks.begin(), ranks.end(), [&](int r) { return r >= 0 && r < rank_count; });
  if (bytes.size() % sizeof(int) != 0 || !known) return Status(Code::kInternal, "a lineup names unknown ranks");
  return ranks;
}

}  // namespace

std::string to_text(const HubProcess& process) {
  if (process.ranks.empty()) return fmt::format("no rank ({})", process.origin);
  return fmt::format("{} ({})", rank_list(process.ranks), process.origin);
}

Lineup line_up(const RankProcess& primary, std::span<const RankProcess> ranks) {
  Lineup lineup;
  lineup.primary = process_with(primary.process, ranks);
  lineup.primary.origin = primary.origin;
  const RankProcess* chosen = nullptr;
  for (const RankProcess& candidate : ranks) {
    if (candidate.process == primary.process) continue;
    if (chosen == nullptr || (chosen->host == primary.host && candidate.host != primary.host)) chosen = &candidate;
  }
  if (chosen != nullptr) lineup.standby = process_with(chosen->process, ranks);
  return lineup;
}

Bytes encode(const Lineup& lineup) {
  const std::array<Bytes, kParts> parts = {to_bytes(lineup.primary.origin),    pack_ranks(lineup.primary.ranks),
                                           to_bytes(lineup.standby.origin),    pack_ranks(lineup.standby.ranks),
                                           pack_ranks({lineup.branch.parent}), pack_ranks(lineup.branch.children)};
  return pack(parts);
}

Result<Lineup> decode_lineup(std::span<const std::byte> bytes, int rank_count) {
  TUTTI_ASSIGN(const std::vector<Bytes> parts, unpack(bytes));
  if (parts.size() != kParts) return Status(Code::kInternal, fmt::format("a lineup has {} parts", kParts));
  Lineup lineup;
  lineup.primary.origin = to_text(parts[0]);
  lineup.standby.origin = to_text(parts[2]);
  TUTTI_ASSIGN(lineup.primary.ranks, unpack_ranks(parts[1], rank_count));
  TUTTI_ASSIGN(lineup.standby.ranks, unpack_ranks(parts[3], rank_count));
  TUTTI_ASSIGN(lineup.branch.children, unpack_ranks(parts[5], rank_count));
  if (parts[4] == pack_ranks({-1})) return lineup;
  TUTTI_ASSIGN(const std::vector<int> parent, unpack_ranks(parts[4], rank_count));
  if (parent.size() != 1) return Status(Code::kInternal, "a lineup names one parent");
  lineup.branch.parent = parent.front();
  return lineup;
}

}  // namespace tutti::bootstrap
