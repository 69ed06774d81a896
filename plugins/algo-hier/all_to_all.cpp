// SPDX-License-Identifier: Apache-2.0
// The two-dimensional hierarchical all-to-all of C. Hwang et al., "Tutel: Adaptive Mixture-of-Experts at Scale", Proc.
// MLSys 5 (2023). Position q of a machine collects the blocks of its machine for position q of all machines. Then it
// sends the blocks for each machine to its counterpart there. The blocks arrive at their last rank, so no delivery
// inside the machine follows. Between many machines, small blocks travel by the index algorithm of J. Bruck et al.,
// "Efficient algorithms for all-to-all communications in multiport message-passing systems", IEEE TPDS 8 (1997).
#include "all_to_all.h"

#include <algorithm>
#include <vector>

namespace tutti::hier {
namespace {

using sdk::Buffer;
using sdk::PlanBuilder;

/// The other machines whose blocks are in one message to a neighbour: all of them, or one.
uint32_t joined_machines(const Hierarchy& hierarchy) {
  return hierarchy.machine_stride() != 0 ? hierarchy.machines() - 1 : 1;
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
  step.to_scratch(scratch + view.position());
  if (view.positions() > 1) step.gather_to_scratch();
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

/// Moves the blocks of all ranks of a machine from scratch chunk `scratch` on to the output.
void deliver(PlanBuilder& plan, const HierarchyView& view, const Hierarchy& hierarchy, uint32_t machine,
             uint32_t scratch) {
  const uint32_t stride = view.positions() > 1 ? hierarchy.position_stride(machine) : 0;
  const uint32_t joined = stride != 0 ? view.positions() : 1;
  for (uint32_t position = 0; position < view.positions(); position += joined) {
    PlanBuilder::Step& step = plan.step().own(Buffer::kScratch, scratch + position);
    step.to_output(hierarchy.rank_at(machine, position)).chunks(joined, 1, stride);
  }
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
  deliver(plan, view, hierarchy, machine, scratch);
}

/// Brings the own blocks for the other machines to scratch memory, and the blocks of the neighbours.
void collect_all(PlanBuilder& plan, const HierarchyView& view, const Hierarchy& hierarchy) {
  const uint32_t joined = joined_machines(hierarchy);
  for (uint32_t k = 1; k < view.machines(); k += joined) collect(plan, view, hierarchy, k, joined);
}

/// Machines whose blocks lie side by side in scratch memory: `count` machines, from the machine at `distance` on.
struct Run {
  uint32_t distance;
  uint32_t count;
};

/// The machines whose distance has this bit.
std::vector<Run> runs_of(uint32_t bit, uint32_t machines) {
  std::vector<Run> runs;
  for (uint32_t distance = bit; distance < machines; distance += 2 * bit) {
    runs.push_back({distance, std::min(bit, machines - distance)});
  }
  return runs;
}

/// One round: passes the blocks of all machines whose distance has this bit on by so many machines. Several runs are
/// packed at scratch chunk `packed`, so that they are one message.
void pass_on(PlanBuilder& plan, const HierarchyView& view, uint32_t bit, uint32_t packed) {
  const std::vector<Run> runs = runs_of(bit, view.machines());
  const uint32_t count = distances_with(bit, view.machines()) * view.positions();
  const bool packs = runs.size() > 1;
  const uint32_t first = packs ? packed : scratch_of(view, runs[0].distance);
  const auto for_runs = [&](auto action) {
    uint32_t to = first;
    for (const Run& run : runs) {
      const uint32_t chunks = run.count * view.positions();
      action(scratch_of(view, run.distance), to, chunks);
      to += chunks;
    }
  };
  const auto copy = [&](uint32_t from, uint32_t to, uint32_t chunks) {
    plan.step().own(Buffer::kScratch, from).to_scratch(to).chunks(chunks);
  };
  if (packs) for_runs(copy);
  plan.step().own(Buffer::kScratch, first).chunks(count).send(view.counterpart(view.machine_after(bit)));
  const uint32_t sender = view.counterpart(view.machine_after(view.machines() - bit));
  plan.step().recv(sender).to_scratch(first).chunks(count);
  if (packs) for_runs([&](uint32_t to, uint32_t from, uint32_t chunks) { copy(from, to, chunks); });
}

}  // namespace

uint32_t messages_per_neighbour(const Hierarchy& hierarchy) {
  return 1 + (hierarchy.machines() - 1) / joined_machines(hierarchy);
}

void exchange_all_to_all(PlanBuilder& plan, const HierarchyView& view, const Hierarchy& hierarchy) {
  const uint32_t others = view.machines() - 1;
  plan.scratch(others * view.positions()).message_chunks(std::max(view.positions(), joined_machines(hierarchy)));
  collect_all(plan, view, hierarchy);
  for (uint32_t k = 1; k <= others; ++k) {
    PlanBuilder::Step& step = plan.step().own(Buffer::kScratch, scratch_of(view, k)).chunks(view.positions());
    step.send(view.counterpart(view.machine_after(k)));
  }
  exchange_inside(plan, view);  // while the blocks of the other machines are on their way
  for (uint32_t k = others; k >= 1; --k) receive(plan, view, hierarchy, k);
}

uint32_t distances_with(uint32_t bit, uint32_t machines) {
  uint32_t count = 0;
  for (uint32_t distance = bit; distance < machines; ++distance) count += (distance & bit) != 0 ? 1 : 0;
  return count;
}

void bruck_all_to_all(PlanBuilder& plan, const HierarchyView& view, const Hierarchy& hierarchy) {
  const uint32_t machines = view.machines();
  const uint32_t held = (machines - 1) * view.positions();
  uint32_t most = joined_machines(hierarchy);
  for (uint32_t bit = 1; bit < machines; bit *= 2) {
    most = std::max(most, distances_with(bit, machines) * view.positions());
  }
  plan.scratch(held + most).message_chunks(most);
  collect_all(plan, view, hierarchy);
  for (uint32_t bit = 1; bit < machines; bit *= 2) pass_on(plan, view, bit, held);
  exchange_inside(plan, view);
  // The blocks that lie where those for a machine were are from the machine that is as far away in the other direction.
  for (uint32_t k = 1; k < machines; ++k) {
    deliver(plan, view, hierarchy, view.machine_after(machines - k), scratch_of(view, k));
  }
}

}  // namespace tutti::hier
