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

/// The number of distances between machines, from 1 to machines - 1, that have this bit. So many machines' blocks a
/// rank passes on in a round of bruck_all_to_all().
uint32_t distances_with(uint32_t bit, uint32_t machines);

/// Adds the steps of one rank. There are three machines or more. Between machines, a rank sends one message in each of
/// log2(machines) rounds, rounded up. In round k, the blocks for all machines whose distance has bit k go 2^k machines
/// further.
void bruck_all_to_all(sdk::PlanBuilder& plan, const HierarchyView& view, const Hierarchy& hierarchy);

}  // namespace tutti::hier
