// SPDX-License-Identifier: Apache-2.0
// The steps of each rank of a tree, for each collective.
#pragma once

#include <span>

#include "tutti/sdk/algorithm.h"
#include "tutti/sdk/trees.h"

namespace tutti::tree {

enum Variant : uint32_t {
  kDirect,     ///< everything moves up and down the tree at once: fewest steps
  kPipelined,  ///< all-reduce of large data: many chunks follow each other up, then down
  kVariantCount,
};

inline constexpr std::array<sdk::Algorithm::Variant, kVariantCount> kVariants = {{
    {"direct", 1u << TUTTI_ALL_REDUCE | 1u << TUTTI_BROADCAST | 1u << TUTTI_REDUCE},
    {"pipelined", 1u << TUTTI_ALL_REDUCE},
}};

/// How deep the trees of a communicator are.
struct Depth {
  uint32_t inside = 0;   ///< hops within machines on the way from the deepest rank to the root
  uint32_t between = 0;  ///< hops between machines
  uint32_t total() const { return inside + between; }
};
Depth depth_of(const sdk::Tree& tree, const tutti_topology& topology);

/// Chunks that follow each other in kPipelined: enough that filling the tree costs a quarter at most.
uint32_t pipelined_chunks(const Depth& depth);

/// The plan of one rank. The request's variant can do its collective.
sdk::PlanBuilder schedule(const tutti_plan_request& request, const sdk::Tree& tree, uint32_t pipelined_chunks);

/// See tutti_algorithm_cost. `streams`: the streams of the whole data that the busiest machine sends to its children.
/// `most_ranks`: the ranks of the machine with the most ranks.
tutti_algorithm_cost cost(uint32_t collective, uint32_t variant, const Depth& depth, uint32_t inside_link,
                          double streams, uint32_t most_ranks);

}  // namespace tutti::tree
