// SPDX-License-Identifier: Apache-2.0
// All-gather between counterparts for any number of machines; J. Bruck et al., "Efficient algorithms for all-to-all
// communications in multiport message-passing systems", IEEE Trans. Parallel Distrib. Syst. 8 (1997). The
// reduce-scatter has the same messages in reverse order. Between machines, a rank sends one message in each of
// log2(machines) rounds, rounded up.
#pragma once

#include "hierarchy_view.h"
#include "tutti/sdk/algorithm.h"

namespace tutti::hier {

/// Each adds the steps of one rank. There are three machines or more, and machine_stride() is not 0.
void bruck_all_gather(sdk::PlanBuilder& plan, const HierarchyView& view, const Hierarchy& hierarchy);
void bruck_reduce_scatter(sdk::PlanBuilder& plan, const HierarchyView& view, const Hierarchy& hierarchy);

}  // namespace tutti::hier
