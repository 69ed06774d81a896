// SPDX-License-Identifier: Apache-2.0
// Plans in which every rank talks to every other, without anyone in between.
#pragma once

#include <array>

#include "tutti/sdk/algorithm.h"

namespace tutti::direct {

enum Variant : uint32_t {
  kOneShot,  ///< everything goes straight to where it is needed, to all peers at once
  kTwoShot,  ///< all-reduce: scattered to owners, reduced there, gathered from there
  kShifted,  ///< one peer at a time: in round k a rank sends k places on and receives from k places back
  kVariantCount,
};

inline constexpr std::array<sdk::Algorithm::Variant, kVariantCount> kVariants = {{
    {"one-shot", 1u << TUTTI_ALL_REDUCE | 1u << TUTTI_REDUCE_SCATTER | 1u << TUTTI_ALL_GATHER | 1u << TUTTI_BROADCAST |
                     1u << TUTTI_REDUCE | 1u << TUTTI_ALL_TO_ALL | 1u << TUTTI_GATHER | 1u << TUTTI_SCATTER},
    {"two-shot", 1u << TUTTI_ALL_REDUCE},
    {"shifted", 1u << TUTTI_ALL_GATHER | 1u << TUTTI_ALL_TO_ALL | 1u << TUTTI_GATHER | 1u << TUTTI_SCATTER},
}};

/// The plan of one rank. The request's variant can do its collective.
sdk::PlanBuilder schedule(const tutti_plan_request& request, uint32_t rank_count);

/// Numbers of ranks and machines on which costs depend.
struct Spread {
  uint32_t ranks;
  uint32_t fewest;  ///< ranks of the machine with the fewest ranks
  uint32_t most;    ///< ranks of the machine with the most ranks
  uint32_t inside;  ///< the kind of the links inside a machine, TUTTI_LINK_*
};
Spread spread_of(const tutti_topology& topology);

/// `congestion`: how many times longer a link takes when a rank sends to all peers at once.
tutti_algorithm_cost cost(uint32_t collective, uint32_t variant, const Spread& spread, double congestion);

}  // namespace tutti::direct
