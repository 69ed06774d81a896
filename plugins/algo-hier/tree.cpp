// SPDX-License-Identifier: Apache-2.0
#include "tree.h"

#include <algorithm>
#include <bit>

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

/// An odd number of machines has a root with one child in the second tree, above a tree of the other machines.
TreeShape::TreeShape(uint32_t machines)
    : depth(static_cast<uint32_t>(machines % 2 == 0 ? std::bit_width(machines) - 1 : std::bit_width(machines - 1))),
      ends(machines > 3 ? 3 : 2),
      chunks(std::clamp(4 * depth, kLeastChunks, kMostChunks)) {}

/// First all chunks go up, then all go down. A message inside a machine has a whole part.
void tree_all_reduce(PlanBuilder& plan, const HierarchyView& view, uint32_t channel) {
  const uint32_t chunks = TreeShape(view.machines()).chunks;
  const uint32_t part = view.position() * chunks;
  const uint32_t tree = (view.position() + channel) % 2;
  const sdk::TreePlace place = sdk::double_tree_place(view.machine(), view.machines(), tree);
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
