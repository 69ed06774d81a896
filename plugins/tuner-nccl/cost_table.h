// SPDX-License-Identifier: Apache-2.0
// The cost table of NCCL's tuner plugins, filled from candidates and read back into them.
#pragma once

#include <array>
#include <cstddef>
#include <optional>

#include "tutti/sdk/tuner.h"

namespace tutti::tuner_nccl {

inline constexpr std::size_t kAlgorithms = 7;  // tree, ring, two of CollNet, two of NVLS, PAT
inline constexpr std::size_t kProtocols = 3;   // LL, LL128, Simple
inline constexpr float kIgnored = -1.0F;       // marks a cell that no candidate fills

/// Times in µs, as NCCL lays them out: a row per algorithm, contiguous.
using CostTable = std::array<float, kAlgorithms * kProtocols>;

/// The index of the candidate's cell. Empty if NCCL has no name for its algorithm or protocol.
std::optional<std::size_t> cell_of(const tutti_candidate& candidate);

/// Each cell receives the smallest time of its candidates.
CostTable fill(const sdk::Candidates& candidates);

/// Changes the candidates as the plugin changed the table. `before` is the result of fill. A cell that is ignored in
/// `before` stays without effect. A changed cell that is negative or not finite excludes its candidates.
/// `channels`: 0 or less leaves the channels; a larger number is limited to max_channels.
void apply(const CostTable& before, const CostTable& after, int channels, const sdk::Candidates& candidates);

}  // namespace tutti::tuner_nccl
