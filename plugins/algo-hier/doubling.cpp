// SPDX-License-Identifier: Apache-2.0
#include "doubling.h"

#include "blocks.h"
#include "parts.h"

namespace tutti::hier {
namespace {

using sdk::Buffer;
using sdk::PlanBuilder;

/// The first machine of a group of `count` machines, a power of two.
uint32_t group_of(uint32_t machine, uint32_t count) {
  return machine / count * count;
}

}  // namespace

void doubling_all_gather(PlanBuilder& plan, const HierarchyView& view, const Hierarchy& hierarchy) {
  const uint32_t stride = hierarchy.machine_stride();
  plan.message_chunks(view.positions() > 1 ? view.machines() : view.machines() / 2);
  const uint32_t next = view.counterpart(view.machine() ^ 1);
  plan.step().own(Buffer::kInput, 0).to_output(view.rank()).send(next).gather(next, next);
  for (uint32_t count = 2; count < view.machines(); count *= 2) {
    const uint32_t partner = view.counterpart(view.machine() ^ count);
    const uint32_t held = group_of(view.machine(), count);
    PlanBuilder::Step& round = plan.step().own(Buffer::kOutput, view.counterpart(held)).chunks(count, stride, stride);
    round.send(partner).gather(partner, view.counterpart(held ^ count));
  }
  share_blocks(plan, view, hierarchy);
}

/// In each round, two counterparts halve the blocks that are left: each sends the half that the other one keeps.
void doubling_reduce_scatter(PlanBuilder& plan, const HierarchyView& view, const Hierarchy& hierarchy) {
  const uint32_t half = view.machines() / 2;
  const bool has_neighbours = view.positions() > 1;
  plan.scratch(has_neighbours ? view.machines() : half);
  plan.message_chunks(has_neighbours ? view.machines() : half);
  Blocks left = has_neighbours ? fold_machine(plan, view, hierarchy, 0) : input_blocks(view, hierarchy, 0);
  uint32_t begin = 0;  // the machine of the first block that is left
  for (uint32_t count = half; count > 0; count /= 2) {
    const uint32_t partner = view.counterpart(view.machine() ^ count);
    const uint32_t kept = group_of(view.machine(), count);
    left.take(plan.step(), (kept ^ count) - begin, count).send(partner);
    PlanBuilder::Step& fold = left.take(plan.step(), kept - begin, count).recv(partner);
    if (count == 1) {
      fold.final().to_output(0);
      return;
    }
    fold.to_scratch(0);
    left = {Buffer::kScratch, view.machines(), 0, 1};
    begin = kept;
  }
}

void rounds_all_reduce(PlanBuilder& plan, const HierarchyView& view, uint32_t radix) {
  const uint32_t own = view.position();
  const Rounds rounds(view.machines(), radix);
  const uint32_t paired = rounds.paired();
  // Calls action(rank) for the ranks with which this rank exchanges sums in a round.
  const auto for_partners = [&](uint32_t bit, auto action) {
    for (uint32_t digit = 1; digit < rounds.radix(bit); ++digit) action(view.counterpart(view.machine() ^ digit * bit));
  };
  scatter_parts(plan, view, 1);
  PlanBuilder::Step& fold = fold_part(plan, view, 1);
  if (view.machine() >= paired) {
    const uint32_t delegate = view.counterpart(view.machine() - paired);
    fold.send(delegate);
    send_to_neighbours(plan.step().recv(delegate).to_output(own), view);
  } else {
    const bool helps = view.machine() < rounds.helped();
    if (helps) fold.recv(view.counterpart(view.machine() + paired));
    fold.to_output(own);
    for_partners(1, [&](uint32_t partner) { fold.send(partner); });
    for (uint32_t bit = 1; bit < paired; bit = rounds.next(bit)) {
      PlanBuilder::Step& sum = plan.step().own(Buffer::kOutput, own).to_output(own);
      for_partners(bit, [&](uint32_t partner) { sum.recv(partner); });
      if (const uint32_t next = rounds.next(bit); next < paired) {
        for_partners(next, [&](uint32_t partner) { sum.send(partner); });
        continue;
      }
      sum.final();
      if (helps) sum.send(view.counterpart(view.machine() + paired));
      send_to_neighbours(sum, view);
    }
  }
  if (view.positions() > 1) gather_parts(plan.step(), view, 1);
}

}  // namespace tutti::hier
