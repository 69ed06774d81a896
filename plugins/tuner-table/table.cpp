// SPDX-License-Identifier: Apache-2.0
#include "table.h"

#include <algorithm>

#include "tutti/sdk/plugin.h"

namespace tutti::tuner_table {

const Entry* Table::find(uint32_t collective, uint64_t bytes, bool registered) const {
  if (collective >= entries.size()) return nullptr;
  const auto first = [&](bool of_registered) -> const Entry* {
    for (const Entry& entry : entries[collective]) {
      if (entry.registered == of_registered && bytes <= entry.max_bytes) return &entry;
    }
    return nullptr;
  };
  const Entry* const own = registered ? first(true) : nullptr;
  return own != nullptr ? own : first(false);
}

uint32_t Table::most_channels() const {
  uint32_t most = 0;
  for (const auto& list : entries) {
    for (const Entry& entry : list) most = std::max(most, entry.channels);
  }
  return most;
}

bool Table::is_empty() const {
  return std::all_of(entries.begin(), entries.end(), [](const std::vector<Entry>& list) { return list.empty(); });
}

Conditions conditions_of(const tutti_topology& topology) {
  Conditions here{TUTTI_VERSION, {}, topology.rank_count, topology.node_count};
  // A host of an older ABI has no name to tell (PLG-5).
  if (topology.struct_size >= sizeof topology && topology.gpu_name.size > 0) here.gpu = sdk::view(topology.gpu_name);
  return here;
}

std::string difference(const Conditions& measured, const Conditions& here) {
  std::string text;
  const auto compare = [&](const char* what, const std::string& there, const std::string& now) {
    if (there == now) return;
    text.append(text.empty() ? "" : "; ").append(what).append(" ").append(there).append(" there, ");
    text.append(now).append(" here");
  };
  const auto device = [](const std::string& gpu) { return gpu.empty() ? "none" : "'" + gpu + "'"; };
  compare("Tutti", measured.tutti_version, here.tutti_version);
  compare("GPU", device(measured.gpu), device(here.gpu));
  compare("ranks", std::to_string(measured.ranks), std::to_string(here.ranks));
  compare("nodes", std::to_string(measured.nodes), std::to_string(here.nodes));
  return text;
}

}  // namespace tutti::tuner_table
