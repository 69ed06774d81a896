// SPDX-License-Identifier: Apache-2.0
// Lists of blocks of one position, one block for each machine, and the steps inside a machine that move them.
#pragma once

#include "hierarchy_view.h"
#include "tutti/sdk/algorithm.h"

namespace tutti::hier {

/// Blocks of machines that follow each other. Block i is the chunk first + i * stride, modulo `size`.
struct Blocks {
  sdk::Buffer buffer;
  uint32_t size;  ///< chunks of the buffer
  uint32_t first;
  uint32_t stride;

  /// Lets a step read `count` blocks, from block `from` on. What it writes lies side by side.
  sdk::PlanBuilder::Step& take(sdk::PlanBuilder::Step& step, uint32_t from, uint32_t count) const {
    return step.own(buffer, (first + from * stride) % size).chunks(count, stride, 1);
  }
};

/// The blocks of this position in the input, from a machine on. machine_stride() is not 0.
inline Blocks input_blocks(const HierarchyView& view, const Hierarchy& hierarchy, uint32_t machine) {
  return {sdk::Buffer::kInput, hierarchy.rank_count(), view.counterpart(machine), hierarchy.machine_stride()};
}

/// Folds the blocks of this machine's ranks for all machines, from a machine on, in scratch memory.
inline Blocks fold_machine(sdk::PlanBuilder& plan, const HierarchyView& view, const Hierarchy& hierarchy,
                           uint32_t machine) {
  const Blocks input = input_blocks(view, hierarchy, machine);
  sdk::PlanBuilder::Step& scatter = input.take(plan.step(), 0, view.machines());
  view.for_other_positions(
      [&](uint32_t position) { scatter.scatter(view.neighbour(position), hierarchy.rank_at(machine, position)); });
  sdk::PlanBuilder::Step& fold = input.take(plan.step(), 0, view.machines()).to_scratch(0);
  view.for_other_positions([&](uint32_t position) { fold.recv(view.neighbour(position)); });
  return {sdk::Buffer::kScratch, view.machines(), 0, 1};
}

/// The last step of an all-gather: a rank has the blocks of its counterparts, and exchanges them with each neighbour in
/// one message. machine_stride() is not 0.
inline void share_blocks(sdk::PlanBuilder& plan, const HierarchyView& view, const Hierarchy& hierarchy) {
  if (view.positions() == 1) return;
  const uint32_t stride = hierarchy.machine_stride();
  sdk::PlanBuilder::Step& share = plan.step().own(sdk::Buffer::kOutput, view.counterpart(0));
  share.chunks(view.machines(), stride, stride);
  view.for_other_positions([&](uint32_t position) {
    share.send(view.neighbour(position)).gather(view.neighbour(position), hierarchy.rank_at(0, position));
  });
}

}  // namespace tutti::hier
