// SPDX-License-Identifier: Apache-2.0
#include "cost_table.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string_view>

namespace tutti::tuner_nccl {
namespace {

constexpr std::string_view kExcluded = "the NCCL tuner plugin excludes this algorithm with this protocol";

std::string_view view(const tutti_str& text) {
  return {text.data, static_cast<std::size_t>(text.size)};
}

bool takes_part(const tutti_candidate& candidate) {
  return std::isfinite(candidate.predicted_us) && candidate.predicted_us >= 0;
}

void change(float before, float after, tutti_candidate& candidate) {
  if (!std::isfinite(after) || after < 0) {
    candidate.predicted_us = -1;
    candidate.reason = {kExcluded.data(), kExcluded.size()};
    return;
  }
  // The fastest candidate of the cell takes the plugin's time. A slower one never becomes faster than it.
  const bool is_fastest = static_cast<float>(candidate.predicted_us) <= before;
  candidate.predicted_us = is_fastest ? after : std::max<double>(candidate.predicted_us, after);
}

}  // namespace

std::optional<std::size_t> cell_of(const tutti_candidate& candidate) {
  constexpr std::array<std::string_view, 2> algorithms = {"tree", "ring"};
  constexpr std::array<std::string_view, kProtocols> protocols = {"ll", "ll128", "simple"};
  const auto* row = std::ranges::find(algorithms, view(candidate.algorithm));
  const auto* column = std::ranges::find(protocols, view(candidate.protocol));
  if (row == algorithms.end() || column == protocols.end()) return std::nullopt;
  return static_cast<std::size_t>(row - algorithms.begin()) * kProtocols +
         static_cast<std::size_t>(column - protocols.begin());
}

CostTable fill(const sdk::Candidates& candidates) {
  CostTable table;
  table.fill(kIgnored);
  for (const tutti_candidate& candidate : candidates) {
    const auto cell = cell_of(candidate);
    if (!cell || !takes_part(candidate)) continue;
    const auto time = static_cast<float>(candidate.predicted_us);
    if (!std::isfinite(time)) continue;
    table[*cell] = table[*cell] < 0 ? time : std::min(table[*cell], time);
  }
  return table;
}

void apply(const CostTable& before, const CostTable& after, int channels, const sdk::Candidates& candidates) {
  for (tutti_candidate& candidate : candidates) {
    const auto cell = cell_of(candidate);
    if (!cell || !takes_part(candidate) || before[*cell] < 0) continue;
    if (after[*cell] != before[*cell]) change(before[*cell], after[*cell], candidate);
    if (channels > 0) candidate.channels = std::min(static_cast<uint32_t>(channels), candidate.max_channels);
  }
}

}  // namespace tutti::tuner_nccl
