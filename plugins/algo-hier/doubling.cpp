// SPDX-License-Identifier: Apache-2.0
#include "doubling.h"

namespace tutti::hier {
namespace {

using sdk::Buffer;
using sdk::PlanBuilder;

/// The blocks that are left to reduce, of one position of all machines: in the input, or in scratch memory.
struct Blocks {
  Buffer buffer;
  uint32_t first;    // the chunk of the machine `machine`
  uint32_t machine;  // machines before it have no block
  uint32_t stride;   // from machine to machine

  PlanBuilder::Step& take(PlanBuilder::Step& step, uint32_t from, uint32_t count) const {
    return step.own(buffer, first + (from - machine) * stride).chunks(count, stride);
  }
};

/// The first machine of a group of `count` machines, a power of two.
uint32_t group_of(uint32_t machine, uint32_t count) {
  return machine / count * count;
}

/// Folds the blocks of this machine, in scratch memory.
Blocks fold_machine(PlanBuilder& plan, const HierarchyView& view, const Hierarchy& hierarchy) {
  const uint32_t stride = hierarchy.machine_stride();
  const uint32_t own = hierarchy.rank_at(0, view.position());
  PlanBuilder::Step& scatter = plan.step().own(Buffer::kInput, own).chunks(view.machines(), stride);
  view.for_other_positions(
      [&](uint32_t position) { scatter.scatter(view.neighbour(position), hierarchy.rank_at(0, position)); });
  PlanBuilder::Step& fold = plan.step().own(Buffer::kInput, own).to_scratch(0).chunks(view.machines(), stride, 1);
  view.for_other_positions([&](uint32_t position) { fold.recv(view.neighbour(position)); });
  return {Buffer::kScratch, 0, 0, 1};
}

}  // namespace

void doubling_all_gather(PlanBuilder& plan, const HierarchyView& view, const Hierarchy& hierarchy) {
  const uint32_t stride = hierarchy.machine_stride();
  const bool has_neighbours = view.positions() > 1;
  plan.message_chunks(has_neighbours ? view.machines() : view.machines() / 2);
  const uint32_t next = view.counterpart(view.machine() ^ 1);
  plan.step().own(Buffer::kInput, 0).to_output(view.rank()).send(next).gather(next, next);
  for (uint32_t count = 2; count < view.machines(); count *= 2) {
    const uint32_t partner = view.counterpart(view.machine() ^ count);
    const uint32_t held = group_of(view.machine(), count);
    PlanBuilder::Step& round = plan.step().own(Buffer::kOutput, view.counterpart(held)).chunks(count, stride, stride);
    round.send(partner).gather(partner, view.counterpart(held ^ count));
  }
  if (!has_neighbours) return;
  PlanBuilder::Step& share = plan.step().own(Buffer::kOutput, view.counterpart(0));
  share.chunks(view.machines(), stride, stride);
  view.for_other_positions([&](uint32_t position) {
    share.send(view.neighbour(position)).gather(view.neighbour(position), hierarchy.rank_at(0, position));
  });
}

/// In each round, two counterparts halve the blocks that are left: each sends the half that the other one keeps.
void doubling_reduce_scatter(PlanBuilder& plan, const HierarchyView& view, const Hierarchy& hierarchy) {
  const uint32_t half = view.machines() / 2;
  const bool has_neighbours = view.positions() > 1;
  plan.scratch(has_neighbours ? view.machines() : half);
  plan.message_chunks(has_neighbours ? view.machines() : half);
  Blocks left{Buffer::kInput, view.counterpart(0), 0, hierarchy.machine_stride()};
  if (has_neighbours) left = fold_machine(plan, view, hierarchy);
  for (uint32_t count = half; count > 0; count /= 2) {
    const uint32_t partner = view.counterpart(view.machine() ^ count);
    const uint32_t kept = group_of(view.machine(), count);
    left.take(plan.step(), kept ^ count, count).send(partner);
    PlanBuilder::Step& fold = left.take(plan.step(), kept, count).recv(partner);
    if (count == 1) {
      fold.final().to_output(0);
      return;
    }
    fold.to_scratch(0).chunks(count, left.stride, 1);
    left = {Buffer::kScratch, 0, kept, 1};
  }
}

}  // namespace tutti::hier
