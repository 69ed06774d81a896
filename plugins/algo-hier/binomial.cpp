// SPDX-License-Identifier: Apache-2.0
#include "binomial.h"

#include <bit>

#include "parts.h"

namespace tutti::hier {
namespace {

using sdk::Buffer;
using sdk::PlanBuilder;

// The distance of a machine is the number of machines from the root's machine to it. The parent of a distance has the
// same bits but for the lowest.

/// The counterparts of this rank on the machines beside it in the tree.
class TreeView {
 public:
  TreeView(const HierarchyView& view, uint32_t root_machine) : view_(view), root_machine_(root_machine) {
    distance_ = (view.machine() + view.machines() - root_machine) % view.machines();
  }

  bool at_root() const { return distance_ == 0; }
  uint32_t parent() const { return rank_at(distance_ & (distance_ - 1)); }

  /// Calls action(rank) for each child, the one with most descendants first.
  template <class Action>
  void for_children(Action action) const {
    const uint32_t end = at_root() ? std::bit_ceil(view_.machines()) : distance_ & (~distance_ + 1);
    for (uint32_t bit = end / 2; bit > 0; bit /= 2) {
      if (distance_ + bit < view_.machines()) action(rank_at(distance_ + bit));
    }
  }

 private:
  uint32_t rank_at(uint32_t distance) const { return view_.counterpart((root_machine_ + distance) % view_.machines()); }

  const HierarchyView& view_;
  uint32_t root_machine_;
  uint32_t distance_;
};

}  // namespace

uint32_t binomial_children(uint32_t machines) {
  return static_cast<uint32_t>(std::bit_width(machines - 1));
}

uint32_t binomial_depth(uint32_t machines) {
  return static_cast<uint32_t>(std::bit_width(machines) - 1);
}

/// The root gives part p to position p of its machine. Each rank sends its part to the children, one after the other,
/// and then to its neighbours.
void binomial_broadcast(PlanBuilder& plan, const HierarchyView& view, uint32_t root_machine, uint32_t root) {
  const uint32_t own = view.position();
  const TreeView tree(view, root_machine);
  if (view.rank() == root) {
    view.for_other_positions([&](uint32_t position) {
      plan.step().own(Buffer::kInput, position).to_output(position).send(view.neighbour(position));
    });
  }
  PlanBuilder::Step* part = &plan.step().to_output(own);
  if (view.rank() == root) {
    part->own(Buffer::kInput, own);
  } else {
    part->recv(tree.at_root() ? root : tree.parent());
  }
  bool is_first = true;
  const auto next_step = [&]() -> PlanBuilder::Step& {
    if (!is_first) part = &plan.step().own(Buffer::kOutput, own);
    is_first = false;
    return *part;
  };
  tree.for_children([&](uint32_t child) { next_step().send(child); });
  if (view.positions() == 1) return;
  PlanBuilder::Step& share = next_step();
  view.for_other_positions([&](uint32_t position) {
    if (view.neighbour(position) != root) share.send(view.neighbour(position));
  });
  if (view.rank() != root) gather_parts(plan.step(), view, 1);
}

/// Machines scatter their inputs. Each rank folds its machine's inputs of its part and the sums of its children. The
/// ranks of the root's machine send the sums of all machines to the root.
void binomial_reduce(PlanBuilder& plan, const HierarchyView& view, uint32_t root_machine, uint32_t root) {
  const uint32_t own = view.position();
  const TreeView tree(view, root_machine);
  scatter_parts(plan, view, 1);
  PlanBuilder::Step& sum = fold_part(plan, view, 1);
  tree.for_children([&](uint32_t child) { sum.recv(child); });
  if (!tree.at_root()) {
    sum.send(tree.parent());
    return;
  }
  sum.final();
  if (view.rank() != root) {
    sum.send(root);
    return;
  }
  sum.to_output(own);
  gather_parts(plan.step(), view, 1);
}

}  // namespace tutti::hier
