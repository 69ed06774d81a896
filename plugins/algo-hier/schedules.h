// SPDX-License-Identifier: Apache-2.0
// The steps of each rank of a hierarchy, for each collective and variant; and their cost.
#pragma once

#include <array>
#include <string_view>

#include "hierarchy.h"
#include "tutti/sdk/algorithm.h"

namespace tutti::hier {

enum Variant : uint32_t {
  kExchange,  ///< each rank sends to all its counterparts: one hop between machines
  kDoubling,  ///< recursive doubling or halving between counterparts, for three machines and more; of blocks, for 4, 8,
              ///< 16, ... machines
  kRing,      ///< all-reduce: rings of counterparts, for 3 machines and more
  kBruck,     ///< blocks pass other machines on their way, for 3 machines and more; all-to-all, for 4 and more
  kMultiplying,  ///< all-reduce: recursive multiplying between counterparts, for 5 machines and more
  kBinomial,     ///< broadcast and reduce: binomial trees of counterparts, for 4 machines and more
  kTree,         ///< all-reduce: binary trees of counterparts, for 3 machines and more
  kVariantCount,
};

inline constexpr std::array<sdk::Algorithm::Variant, kVariantCount> kVariants = {{
    {"exchange", 1u << TUTTI_ALL_REDUCE | 1u << TUTTI_REDUCE_SCATTER | 1u << TUTTI_ALL_GATHER | 1u << TUTTI_BROADCAST |
                     1u << TUTTI_REDUCE | 1u << TUTTI_ALL_TO_ALL},
    {"doubling", 1u << TUTTI_ALL_REDUCE | 1u << TUTTI_REDUCE_SCATTER | 1u << TUTTI_ALL_GATHER},
    {"ring", 1u << TUTTI_ALL_REDUCE},
    {"bruck", 1u << TUTTI_ALL_TO_ALL | 1u << TUTTI_REDUCE_SCATTER | 1u << TUTTI_ALL_GATHER},
    {"multiplying", 1u << TUTTI_ALL_REDUCE},
    {"binomial", 1u << TUTTI_BROADCAST | 1u << TUTTI_REDUCE},
    {"tree", 1u << TUTTI_ALL_REDUCE},
}};

/// Whether the input or the output of a collective has one block per rank. The other collectives divide their single
/// block into parts.
constexpr bool has_blocks(uint32_t collective) {
  return collective == TUTTI_REDUCE_SCATTER || collective == TUTTI_ALL_GATHER || collective == TUTTI_ALL_TO_ALL;
}

/// Why a variant cannot do a collective on the hierarchy; empty: it can.
std::string_view obstacle(const Hierarchy& hierarchy, uint32_t collective, uint32_t variant);

/// The plan of one rank. The variant does the collective, and has no obstacle.
sdk::PlanBuilder schedule(const tutti_plan_request& request, const Hierarchy& hierarchy);

/// The cost of a variant that does the collective and has no obstacle. `inside` is the kind of link between ranks of
/// one machine (TUTTI_LINK_*). See tutti_algorithm_cost.
tutti_algorithm_cost cost(uint32_t collective, uint32_t variant, const Hierarchy& hierarchy, uint32_t inside);

}  // namespace tutti::hier
