// SPDX-License-Identifier: Apache-2.0
// Two levels: reduce-scatter inside each machine, all-reduce between counterparts, all-gather inside each machine; M.
// Cho, U. Finkler, M. Serrano, D. Kung, H. Hunter, "BlueConnect: decomposing all-reduce for deep learning on
// heterogeneous network hierarchy", IBM J. Res. Dev. 63 (2019). Recursive doubling: R. Thakur, R. Rabenseifner, W.
// Gropp, "Optimization of collective communication operations in MPICH", Int. J. High Perform. Comput. Appl. 19 (2005).
#include "schedules.h"

#include <bit>

#include "all_to_all.h"
#include "binomial.h"
#include "bruck.h"
#include "doubling.h"
#include "hierarchy_view.h"
#include "parts.h"
#include "tree.h"

namespace tutti::hier {
namespace {

using sdk::Buffer;
using sdk::PlanBuilder;

void send_to_counterparts(PlanBuilder::Step& step, const HierarchyView& view) {
  view.for_other_machines([&](uint32_t machine) { step.send(view.counterpart(machine)); });
}

void recv_from_counterparts(PlanBuilder::Step& step, const HierarchyView& view) {
  view.for_other_machines([&](uint32_t machine) { step.recv(view.counterpart(machine)); });
}

void exchange_all_reduce(PlanBuilder& plan, const HierarchyView& view) {
  const uint32_t own = view.position();
  scatter_parts(plan, view, 1);
  send_to_counterparts(fold_part(plan, view, 1).to_output(own), view);
  PlanBuilder::Step& sum = plan.step().own(Buffer::kOutput, own).final().to_output(own);
  recv_from_counterparts(sum, view);
  send_to_neighbours(sum, view);
  gather_parts(plan.step(), view, 1);
}

/// The ring of algo-ring over the own part, which has one chunk for each machine. A message inside a machine has a
/// whole part.
void ring_all_reduce(PlanBuilder& plan, const HierarchyView& view) {
  const uint32_t n = view.machines();
  const uint32_t part = view.position() * n;
  const auto chunk = [&](uint32_t distance) { return part + view.machine_after(n - distance); };
  const uint32_t previous = view.counterpart(view.machine_after(n - 1));
  const uint32_t next = view.counterpart(view.machine_after(1));
  plan.message_chunks(n);
  scatter_parts(plan, view, n);
  fold_part(plan, view, n).to_output(part);
  plan.step().own(Buffer::kOutput, chunk(0)).send(next);
  for (uint32_t k = 1; k + 1 < n; ++k) plan.step().recv(previous).own(Buffer::kOutput, chunk(k)).send(next);
  const uint32_t finished = chunk(n - 1);
  plan.step().recv(previous).own(Buffer::kOutput, finished).final().to_output(finished).send(next);
  for (uint32_t k = 0; k + 2 < n; ++k) plan.step().recv(previous).to_output(chunk(k)).send(next);
  plan.step().recv(previous).to_output(chunk(n - 2));
  PlanBuilder::Step& gather = plan.step().own(Buffer::kOutput, part).chunks(n);
  send_to_neighbours(gather, view);
  gather_parts(gather, view, n);
}

/// The blocks of one machine after the other: the machine's ranks fold them and send the sums to its ranks.
void exchange_reduce_scatter(PlanBuilder& plan, const HierarchyView& view, const Hierarchy& hierarchy) {
  for (uint32_t k = 1; k <= view.machines(); ++k) {
    const uint32_t machine = view.machine_after(k);
    const uint32_t block = hierarchy.rank_at(machine, view.position());
    PlanBuilder::Step& scatter = plan.step().own(Buffer::kInput, block);
    view.for_other_positions(
        [&](uint32_t position) { scatter.scatter(view.neighbour(position), hierarchy.rank_at(machine, position)); });
    PlanBuilder::Step& fold = plan.step().own(Buffer::kInput, block);
    recv_from_neighbours(fold, view);
    if (machine == view.machine()) {
      fold.to_output(0);
    } else {
      fold.send(block);
    }
  }
  PlanBuilder::Step& sum = plan.step().own(Buffer::kOutput, 0).final().to_output(0);
  recv_from_counterparts(sum, view);
}

/// A rank passes each block that arrives from a counterpart on to its neighbours.
void exchange_all_gather(PlanBuilder& plan, const HierarchyView& view, const Hierarchy& hierarchy) {
  PlanBuilder::Step& own = plan.step().own(Buffer::kInput, 0).to_output(view.rank());
  send_to_counterparts(own, view);
  send_to_neighbours(own, view);
  for (uint32_t k = 0; k < view.machines(); ++k) {
    const uint32_t machine = view.machine_after(k);
    const uint32_t block = view.counterpart(machine);
    if (k > 0) send_to_neighbours(plan.step().recv(block).to_output(block), view);
    PlanBuilder::Step& gather = plan.step();
    view.for_other_positions(
        [&](uint32_t position) { gather.gather(view.neighbour(position), hierarchy.rank_at(machine, position)); });
  }
}

/// The root gives part p to position p of its machine, which sends it to its counterparts. Then machines gather the
/// parts.
void exchange_broadcast(PlanBuilder& plan, const HierarchyView& view, const Hierarchy& hierarchy, uint32_t root) {
  const uint32_t own = view.position();
  const bool at_root = view.machine() == hierarchy.machine_of(root);
  if (view.rank() == root) {
    view.for_other_positions([&](uint32_t position) {
      plan.step().own(Buffer::kInput, position).to_output(position).send(view.neighbour(position));
    });
  }
  PlanBuilder::Step& part = plan.step().to_output(own);
  if (view.rank() == root) {
    part.own(Buffer::kInput, own);
  } else {
    part.recv(at_root ? root : hierarchy.rank_at(hierarchy.machine_of(root), own));
  }
  if (at_root) send_to_counterparts(part, view);
  view.for_other_positions([&](uint32_t position) {
    if (view.neighbour(position) != root) part.send(view.neighbour(position));
  });
  if (view.rank() != root) gather_parts(plan.step(), view, 1);
}

/// Machines scatter their inputs. The ranks of the root's machine fold the sums of all machines for the root.
void exchange_reduce(PlanBuilder& plan, const HierarchyView& view, const Hierarchy& hierarchy, uint32_t root) {
  const uint32_t own = view.position();
  scatter_parts(plan, view, 1);
  PlanBuilder::Step& sum = fold_part(plan, view, 1);
  if (view.machine() != hierarchy.machine_of(root)) {
    sum.send(hierarchy.rank_at(hierarchy.machine_of(root), own));
    return;
  }
  recv_from_counterparts(sum.final(), view);
  if (view.rank() != root) {
    sum.send(root);
    return;
  }
  sum.to_output(own);
  gather_parts(plan.step(), view, 1);
}

void exchange(PlanBuilder& plan, const tutti_plan_request& request, const HierarchyView& view,
              const Hierarchy& hierarchy) {
  switch (request.collective) {
    case TUTTI_ALL_REDUCE:
      return exchange_all_reduce(plan, view);
    case TUTTI_REDUCE_SCATTER:
      return exchange_reduce_scatter(plan, view, hierarchy);
    case TUTTI_ALL_GATHER:
      return exchange_all_gather(plan, view, hierarchy);
    case TUTTI_BROADCAST:
      return exchange_broadcast(plan, view, hierarchy, request.root);
    case TUTTI_ALL_TO_ALL:
      return exchange_all_to_all(plan, view, hierarchy);
    default:
      return exchange_reduce(plan, view, hierarchy, request.root);
  }
}

void doubling(PlanBuilder& plan, const tutti_plan_request& request, const HierarchyView& view,
              const Hierarchy& hierarchy) {
  switch (request.collective) {
    case TUTTI_ALL_GATHER:
      return doubling_all_gather(plan, view, hierarchy);
    case TUTTI_REDUCE_SCATTER:
      return doubling_reduce_scatter(plan, view, hierarchy);
    default:
      return rounds_all_reduce(plan, view, 2);
  }
}

void bruck(PlanBuilder& plan, const tutti_plan_request& request, const HierarchyView& view,
           const Hierarchy& hierarchy) {
  switch (request.collective) {
    case TUTTI_ALL_GATHER:
      return bruck_all_gather(plan, view, hierarchy);
    case TUTTI_REDUCE_SCATTER:
      return bruck_reduce_scatter(plan, view, hierarchy);
    default:
      return bruck_all_to_all(plan, view, hierarchy);
  }
}

void binomial(PlanBuilder& plan, const tutti_plan_request& request, const HierarchyView& view,
              const Hierarchy& hierarchy) {
  const uint32_t machine = hierarchy.machine_of(request.root);
  if (request.collective == TUTTI_BROADCAST) return binomial_broadcast(plan, view, machine, request.root);
  binomial_reduce(plan, view, machine, request.root);
}

uint32_t chunks_of(const tutti_plan_request& request, const Hierarchy& hierarchy) {
  if (has_blocks(request.collective)) return 1;
  const uint32_t machines = hierarchy.machines();
  const uint32_t of_part = request.variant == kRing   ? machines
                           : request.variant == kTree ? TreeShape(machines).chunks
                                                      : 1;
  return hierarchy.positions() * of_part;
}

}  // namespace

std::string_view obstacle(const Hierarchy& hierarchy, uint32_t collective, uint32_t variant) {
  const uint32_t machines = hierarchy.machines();
  if (machines < 2) return "a hierarchy needs two machines or more";
  if (hierarchy.positions() == 0) return "a hierarchy needs machines with equal numbers of ranks";
  const bool moves_lists = has_blocks(collective) && collective != TUTTI_ALL_TO_ALL;  // of blocks of one position
  if (variant == kDoubling && machines < 3) return "recursive doubling needs three machines or more";
  if (variant == kMultiplying && machines < 5) return "recursive multiplying needs five machines or more";
  if (variant == kBinomial && machines < 4) return "a binomial tree saves messages from four machines on";
  if (variant == kDoubling && moves_lists && !std::has_single_bit(machines))
    return "recursive doubling of blocks needs 4, 8, 16, ... machines; bruck takes all numbers";
  if (variant == kBruck && moves_lists && machines < 3) return "Bruck's schedule needs three machines or more";
  if ((variant == kDoubling || variant == kBruck) && moves_lists && hierarchy.machine_stride() == 0)
    return "messages of several blocks need a constant distance from each rank to the next machine";
  if (variant == kBruck && !moves_lists && machines < 4)
    return "Bruck's all-to-all saves messages from four machines on";
  if (variant == kTree && machines < 3) return "a tree of machines needs three machines or more";
  if (variant != kExchange && variant != kRing && variant != kTree) return "";
  if (hierarchy.positions() == 1)
    return "with one rank on each machine, the algorithms ring, tree and direct do the same";
  if (variant == kRing && machines < 3) return "a ring of machines needs three machines or more";
  return "";
}

sdk::PlanBuilder schedule(const tutti_plan_request& request, const Hierarchy& hierarchy) {
  const HierarchyView view(hierarchy, request.rank);
  PlanBuilder plan(request, hierarchy.rank_count(), chunks_of(request, hierarchy));
  switch (request.variant) {
    case kDoubling:
      doubling(plan, request, view, hierarchy);
      break;
    case kRing:
      ring_all_reduce(plan, view);
      break;
    case kBruck:
      bruck(plan, request, view, hierarchy);
      break;
    case kMultiplying:
      rounds_all_reduce(plan, view, kMultiplyingRadix);
      break;
    case kBinomial:
      binomial(plan, request, view, hierarchy);
      break;
    case kTree:
      tree_all_reduce(plan, view, request.channel);
      break;
    default:
      exchange(plan, request, view, hierarchy);
  }
  return plan;
}

}  // namespace tutti::hier
