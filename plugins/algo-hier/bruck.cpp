// SPDX-License-Identifier: Apache-2.0
#include "bruck.h"

#include <algorithm>
#include <bit>

#include "blocks.h"

namespace tutti::hier {
namespace {

using sdk::Buffer;
using sdk::PlanBuilder;

// The distance of a machine is the number of machines from this machine to it. The round of distance d, a power of two,
// moves the blocks of several machines by d machines.

/// Machines whose blocks the round of a distance moves.
uint32_t moved_by(uint32_t distance, uint32_t machines) {
  return std::min(distance, machines - distance);
}

uint32_t last_distance(uint32_t machines) {
  return std::bit_floor(machines - 1);
}

/// Blocks of the longest message between machines.
uint32_t longest(uint32_t machines) {
  const uint32_t last = last_distance(machines);
  return std::max(last / 2, moved_by(last, machines));
}

uint32_t rank_after(const HierarchyView& view, uint32_t distance) {
  return view.counterpart(view.machine_after(distance));
}

uint32_t rank_before(const HierarchyView& view, uint32_t distance) {
  return view.counterpart(view.machine_after(view.machines() - distance));
}

/// Copies the blocks from distance `from` to `end`, at most `most` blocks in a step.
void copy_to_scratch(PlanBuilder& plan, const Blocks& blocks, uint32_t from, uint32_t end, uint32_t most) {
  for (; from < end; from += most) blocks.take(plan.step(), from, std::min(most, end - from)).to_scratch(from);
}

}  // namespace

void bruck_all_gather(PlanBuilder& plan, const HierarchyView& view, const Hierarchy& hierarchy) {
  const uint32_t stride = hierarchy.machine_stride();
  const uint32_t machines = view.machines();
  plan.message_chunks(view.positions() > 1 ? machines : longest(machines));
  plan.step()
      .own(Buffer::kInput, 0)
      .to_output(view.rank())
      .send(rank_before(view, 1))
      .gather(rank_after(view, 1), rank_after(view, 1));
  for (uint32_t distance = 2; distance < machines; distance *= 2) {
    PlanBuilder::Step& round = plan.step().own(Buffer::kOutput, view.rank());
    round.chunks(moved_by(distance, machines), stride, stride);
    round.send(rank_before(view, distance)).gather(rank_after(view, distance), rank_after(view, distance));
  }
  share_blocks(plan, view, hierarchy);
}

/// In the round of a distance, each machine keeps the blocks of nearer machines. It passes the sums of the other blocks
/// on to the machine at this distance.
void bruck_reduce_scatter(PlanBuilder& plan, const HierarchyView& view, const Hierarchy& hierarchy) {
  const uint32_t machines = view.machines();
  const uint32_t last = last_distance(machines);
  const bool has_neighbours = view.positions() > 1;
  plan.scratch(has_neighbours ? machines : last);
  plan.message_chunks(has_neighbours ? machines : longest(machines));
  // By distance of their machine.
  Blocks left = has_neighbours ? fold_machine(plan, view, hierarchy, view.machine())
                               : input_blocks(view, hierarchy, view.machine());
  for (uint32_t distance = last; distance > 0; distance /= 2) {
    const uint32_t count = moved_by(distance, distance == last ? machines : 2 * distance);
    left.take(plan.step(), distance, count).send(rank_after(view, distance));
    PlanBuilder::Step& fold = left.take(plan.step(), 0, count).recv(rank_before(view, distance));
    if (distance == 1) {
      fold.final().to_output(0);
      return;
    }
    fold.to_scratch(0);
    if (left.buffer == Buffer::kInput) copy_to_scratch(plan, left, count, distance, longest(machines));
    left = {Buffer::kScratch, machines, 0, 1};
  }
}

}  // namespace tutti::hier
