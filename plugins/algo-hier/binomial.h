// SPDX-License-Identifier: Apache-2.0
// Broadcast and reduce along a binomial tree of machines, as in R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of
// collective communication operations in MPICH", Int. J. High Perform. Comput. Appl. 19 (2005). Each position moves its
// part along a tree of counterparts.
#pragma once

#include "hierarchy_view.h"
#include "tutti/sdk/algorithm.h"

namespace tutti::hier {

/// Messages of the root's machine: its children in the tree.
uint32_t binomial_children(uint32_t machines);
/// Messages on the longest way from the root's machine to a leaf.
uint32_t binomial_depth(uint32_t machines);

/// Each adds the steps of one rank. `root_machine` is the machine of the rank `root`.
void binomial_broadcast(sdk::PlanBuilder& plan, const HierarchyView& view, uint32_t root_machine, uint32_t root);
void binomial_reduce(sdk::PlanBuilder& plan, const HierarchyView& view, uint32_t root_machine, uint32_t root);

}  // namespace tutti::hier
