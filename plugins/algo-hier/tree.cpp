// SPDX-License-Identifier: Apache-2.0
#include "tree.h"

#include <algorithm>

#include "parts.h"
#include "tutti/sdk/trees.h"

namespace tutti::hier {
namespace {

using sdk::Buffer;
using sdk::kNobody;
using sdk::PlanBuilder;

constexpr uint32_t kLeastChunks = 8;
constexpr uint32_t kMostChunks = 32;

template <class Action>
void for_children(const sdk::TreePlace& place, Action action) {
  for (const uint32_t child : place.children) {
    if (child != kNobody) action(child);
  }
}

}  // namespace

uint32_t tree_chunks(uint32_t machines) {
  return TreeShape(machines, 2).chunks;
}

TreeShape::TreeShape(uint32_t machines, uint32_t trees) {
  uint32_t deepest = 0;  // of both trees, so that all positions have as many chunks
  for (uint32_t tree = 0; tree < 2; ++tree) {
    for (uint32_t machine = 0; machine < machines; ++machine) {
      const sdk::TreePlace own = sdk::double_tree_place(machine, machines, tree);
      uint32_t below = 0;
      for_children(own, [&](uint32_t) { ++below; });
      children = std::max(children, below);
      uint32_t hops = 0;
      for (uint32_t at = own.parent; at != kNobody; at = sdk::double_tree_place(at, machines, tree).parent) ++hops;
      deepest = std::max(deepest, hops);
      if (tree >= trees) continue;
      depth = std::max(depth, hops);
      ends = std::max(ends, below + (own.parent == kNobody ? 0 : 1));
    }
  }
  chunks = std::clamp(4 * deepest, kLeastChunks, kMostChunks);
}

/// First all chunks go up, then all go down.
void tree_all_reduce(PlanBuilder& plan, const HierarchyView& view, uint32_t channel) {
  const uint32_t chunks = tree_chunks(view.machines());
  const uint32_t part = view.position() * chunks;
  const sdk::TreePlace place =
      sdk::double_tree_place(view.machine(), view.machines(), tree_of(view.position(), channel));
  const bool at_root = place.parent == kNobody;
  plan.message_chunks(chunks);
  scatter_parts(plan, view, chunks);
  fold_part(plan, view, chunks).to_output(part);
  for (uint32_t chunk = part; chunk < part + chunks; ++chunk) {
    PlanBuilder::Step& up = plan.step().own(Buffer::kOutput, chunk);
    for_children(place, [&](uint32_t child) { up.recv(view.counterpart(child)); });
    if (at_root) {
      up.final().to_output(chunk);
    } else {
      up.send(view.counterpart(place.parent));
    }
  }
  for (uint32_t chunk = part; chunk < part + chunks; ++chunk) {
    PlanBuilder::Step& down = plan.step();
    if (at_root) {
      down.own(Buffer::kOutput, chunk);
    } else {
      down.recv(view.counterpart(place.parent)).to_output(chunk);
    }
    for_children(place, [&](uint32_t child) { down.send(view.counterpart(child)); });
  }
  PlanBuilder::Step& gather = plan.step().own(Buffer::kOutput, part).chunks(chunks);
  send_to_neighbours(gather, view);
  gather_parts(gather, view, chunks);
}

}  // namespace tutti::hier
