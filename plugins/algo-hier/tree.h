// SPDX-License-Identifier: Apache-2.0
// All-reduce between counterparts along binary trees. The data is cut into chunks, which follow each other.
//
// Source: P. Sanders, J. Speck, J. L. Träff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan",
// Parallel Computing 35 (2009).
#pragma once

#include <cstdint>

#include "hierarchy_view.h"
#include "tutti/sdk/algorithm.h"

namespace tutti::hier {

/// The double tree over machines. Positions use its two trees in turn: a machine that has children in one tree is a
/// leaf in the other tree.
struct TreeShape {
  /// `trees`: how many of the two trees are used.
  TreeShape(uint32_t machines, uint32_t trees);

  uint32_t depth = 0;     ///< hops from the deepest machine to the root
  uint32_t ends = 0;      ///< neighbours in a tree of the machine that has most
  uint32_t children = 0;  ///< number of children of the machine that has most, in both trees
  uint32_t chunks = 0;    ///< number of chunks of a part
};

/// The number of the tree that a position uses in a channel.
constexpr uint32_t tree_of(uint32_t position, uint32_t channel) {
  return (position + channel) % 2;
}

/// Chunks of a part: enough that a quarter of the time fills the tree, at most.
uint32_t tree_chunks(uint32_t machines);

void tree_all_reduce(sdk::PlanBuilder& plan, const HierarchyView& view, uint32_t channel);

}  // namespace tutti::hier
