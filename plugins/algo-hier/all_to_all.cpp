// SPDX-License-Identifier: Apache-2.0
// The two-dimensional hierarchical all-to-all of C. Hwang et al., "Tutel: Adaptive Mixture-of-Experts at Scale", Proc.
// MLSys 5 (2023). Position q of a machine collects the blocks of its machine for position q of all machines. Then it
// sends the blocks for each machine to its counterpart there. The blocks arrive at their last rank, so no delivery
// inside the machine follows.
#include "all_to_all.h"

#include <algorithm>

namespace tutti::hier {
namespace {

using sdk::Buffer;
using sdk::PlanBuilder;

/// Whether one message to a neighbour has the blocks for all other machines.
bool joins_machines(const Hierarchy& hierarchy) {
  return hierarchy.machine_stride() != 0;
}

/// The first scratch chunk of the machine so many machines after this machine. A chunk for each position follows.
uint32_t scratch_of(const HierarchyView& view, uint32_t distance) {
  return (distance - 1) * view.positions();
}

/// Exchanges the blocks for `count` other machines, from the machine at `distance` on. The blocks that arrive, and the
/// own blocks, go to scratch memory.
void collect(PlanBuilder& plan, const HierarchyView& view, const Hierarchy& hierarchy, uint32_t distance,
             uint32_t count) {
  const uint32_t machine = view.machine_after(distance);
  const uint32_t scratch = scratch_of(view, distance);
  PlanBuilder::Step& step = plan.step().own(Buffer::kInput, hierarchy.rank_at(machine, view.position()));
  step.to_scratch(scratch + view.position()).gather_to_scratch();
  step.chunks(count, hierarchy.machine_stride(), view.positions());
  view.for_other_positions([&](uint32_t position) {
    const uint32_t neighbour = view.neighbour(position);
    step.scatter(neighbour, hierarchy.rank_at(machine, position)).gather(neighbour, scratch + position);
  });
}

/// The blocks that stay in the machine.
void exchange_inside(PlanBuilder& plan, const HierarchyView& view) {
  PlanBuilder::Step& step = plan.step().own(Buffer::kInput, view.rank()).to_output(view.rank());
  view.for_other_positions([&](uint32_t position) {
    const uint32_t neighbour = view.neighbour(position);
    step.scatter(neighbour, neighbour).gather(neighbour, neighbour);
  });
}

/// The blocks of all ranks of the machine at `distance`. If the ranks have different distances from each other, the
/// blocks go through scratch memory, because one stride does not name their places in the output.
void receive(PlanBuilder& plan, const HierarchyView& view, const Hierarchy& hierarchy, uint32_t distance) {
  const uint32_t machine = view.machine_after(distance);
  PlanBuilder::Step& step = plan.step().recv(view.counterpart(machine));
  if (const uint32_t stride = hierarchy.position_stride(machine); stride != 0) {
    step.to_output(hierarchy.rank_at(machine, 0)).chunks(view.positions(), 1, stride);
    return;
  }
  const uint32_t scratch = scratch_of(view, distance);  // its blocks have been sent
  step.to_scratch(scratch).chunks(view.positions());
  for (uint32_t position = 0; position < view.positions(); ++position) {
    plan.step().own(Buffer::kScratch, scratch + position).to_output(hierarchy.rank_at(machine, position));
  }
}

}  // namespace

uint32_t messages_per_neighbour(const Hierarchy& hierarchy) {
  return joins_machines(hierarchy) ? 2 : hierarchy.machines();
}

void exchange_all_to_all(PlanBuilder& plan, const HierarchyView& view, const Hierarchy& hierarchy) {
  const uint32_t others = view.machines() - 1;
  const uint32_t joined = joins_machines(hierarchy) ? others : 1;
  plan.scratch(others * view.positions()).message_chunks(std::max(view.positions(), joined));
  for (uint32_t k = 1; k <= others; k += joined) collect(plan, view, hierarchy, k, joined);
  for (uint32_t k = 1; k <= others; ++k) {
    PlanBuilder::Step& step = plan.step().own(Buffer::kScratch, scratch_of(view, k)).chunks(view.positions());
    step.send(view.counterpart(view.machine_after(k)));
  }
  exchange_inside(plan, view);  // while the blocks of the other machines are on their way
  for (uint32_t k = others; k >= 1; --k) receive(plan, view, hierarchy, k);
}

}  // namespace tutti::hier
