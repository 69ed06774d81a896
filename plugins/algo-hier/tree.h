// SPDX-License-Identifier: Apache-2.0
// All-reduce along binary trees of machines. The data is cut into chunks, which follow each other.
//
// Source: P. Sanders, J. Speck, J. L. Träff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan",
// Parallel Computing 35 (2009).
#pragma once

#include <cstdint>

#include "hierarchy_view.h"
#include "tutti/sdk/algorithm.h"

namespace tutti::hier {

/// The double tree over three machines or more. Positions use its two trees in turn: a machine that has children in one
/// tree is a leaf in the other tree.
struct TreeShape {
  explicit TreeShape(uint32_t machines);

  uint32_t depth;         ///< hops from the deepest machine of the two trees to its root
  uint32_t ends;          ///< neighbours in a tree of the machine that has most
  uint32_t children = 2;  ///< number of children of the machine that has most
  uint32_t chunks;        ///< number of chunks of a part: to fill a tree takes a quarter of the time at most
};

/// Adds the steps of one rank.
void tree_all_reduce(sdk::PlanBuilder& plan, const HierarchyView& view, uint32_t channel);

}  // namespace tutti::hier
