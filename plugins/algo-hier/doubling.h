// SPDX-License-Identifier: Apache-2.0
// All-gather by recursive doubling and reduce-scatter by recursive halving between counterparts; R. Thakur, R.
// Rabenseifner, W. Gropp, "Optimization of collective communication operations in MPICH", Int. J. High Perform. Comput.
// Appl. 19 (2005). A rank sends log2(machines) messages to other machines, which have the blocks of several machines.
#pragma once

#include "hierarchy_view.h"
#include "tutti/sdk/algorithm.h"

namespace tutti::hier {

/// Each adds the steps of one rank. The number of machines is 4, 8, 16, ..., and machine_stride() is not 0.
void doubling_all_gather(sdk::PlanBuilder& plan, const HierarchyView& view, const Hierarchy& hierarchy);
void doubling_reduce_scatter(sdk::PlanBuilder& plan, const HierarchyView& view, const Hierarchy& hierarchy);

}  // namespace tutti::hier
