// SPDX-License-Identifier: Apache-2.0
// All-to-all in two levels: first inside the machines, then between counterparts. So two machines exchange one message
// for each pair of counterparts, which has all blocks that the pair moves.
#pragma once

#include "hierarchy_view.h"
#include "tutti/sdk/algorithm.h"

namespace tutti::hier {

/// Messages that a rank sends to each neighbour. Two: one with the blocks for the other machines, one with the block
/// for the neighbour. If one stride does not name the blocks for the other machines, one for each machine.
uint32_t messages_per_neighbour(const Hierarchy& hierarchy);

/// Adds the steps of one rank. There are two machines or more, and two ranks or more on each.
void exchange_all_to_all(sdk::PlanBuilder& plan, const HierarchyView& view, const Hierarchy& hierarchy);

}  // namespace tutti::hier
