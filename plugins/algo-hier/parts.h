// SPDX-License-Identifier: Apache-2.0
// Parts of one block of data, one part for each position, and the steps inside a machine that move them.
#pragma once

#include "hierarchy_view.h"
#include "tutti/sdk/algorithm.h"

namespace tutti::hier {

inline void send_to_neighbours(sdk::PlanBuilder::Step& step, const HierarchyView& view) {
  view.for_other_positions([&](uint32_t position) { step.send(view.neighbour(position)); });
}

inline void recv_from_neighbours(sdk::PlanBuilder::Step& step, const HierarchyView& view) {
  view.for_other_positions([&](uint32_t position) { step.recv(view.neighbour(position)); });
}

/// Part p of the input goes to position p. A part has `chunks` chunks.
inline void scatter_parts(sdk::PlanBuilder& plan, const HierarchyView& view, uint32_t chunks) {
  if (view.positions() == 1) return;
  sdk::PlanBuilder::Step& step = plan.step().own(sdk::Buffer::kInput, view.position() * chunks).chunks(chunks);
  view.for_other_positions([&](uint32_t position) { step.scatter(view.neighbour(position), position * chunks); });
}

/// Folds this machine's inputs of the own part.
inline sdk::PlanBuilder::Step& fold_part(sdk::PlanBuilder& plan, const HierarchyView& view, uint32_t chunks) {
  sdk::PlanBuilder::Step& step = plan.step().own(sdk::Buffer::kInput, view.position() * chunks).chunks(chunks);
  recv_from_neighbours(step, view);
  return step;
}

/// Part p of the output comes from position p.
inline void gather_parts(sdk::PlanBuilder::Step& step, const HierarchyView& view, uint32_t chunks) {
  view.for_other_positions([&](uint32_t position) { step.gather(view.neighbour(position), position * chunks); });
}

}  // namespace tutti::hier
