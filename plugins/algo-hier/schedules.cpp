// SPDX-License-Identifier: Apache-2.0
// Two levels: reduce-scatter inside each machine, all-reduce between counterparts, all-gather inside each machine; M.
// Cho, U. Finkler, M. Serrano, D. Kung, H. Hunter, "BlueConnect: decomposing all-reduce for deep learning on
// heterogeneous network hierarchy", IBM J. Res. Dev. 63 (2019). Recursive doubling: R. Thakur, R. Rabenseifner, W.
// Gropp, "Optimization of collective communication operations in MPICH", Int. J. High Perform. Comput. Appl. 19 (2005).
#include "schedules.h"

#include "all_to_all.h"
#include "doubling.h"
#include "place.h"

namespace tutti::hier {
namespace {

using sdk::Buffer;
using sdk::PlanBuilder;

void send_to_neighbours(PlanBuilder::Step& step, const Place& place) {
  place.for_other_positions([&](uint32_t position) { step.send(place.neighbour(position)); });
}

void recv_from_neighbours(PlanBuilder::Step& step, const Place& place) {
  place.for_other_positions([&](uint32_t position) { step.recv(place.neighbour(position)); });
}

void send_to_counterparts(PlanBuilder::Step& step, const Place& place) {
  place.for_other_machines([&](uint32_t machine) { step.send(place.counterpart(machine)); });
}

void recv_from_counterparts(PlanBuilder::Step& step, const Place& place) {
  place.for_other_machines([&](uint32_t machine) { step.recv(place.counterpart(machine)); });
}

/// Part p of the input goes to position p. A part has `chunks` chunks.
void scatter_parts(PlanBuilder& plan, const Place& place, uint32_t chunks) {
  if (place.positions() == 1) return;
  PlanBuilder::Step& step = plan.step().own(Buffer::kInput, place.position() * chunks).chunks(chunks);
  place.for_other_positions([&](uint32_t position) { step.scatter(place.neighbour(position), position * chunks); });
}

/// Folds this machine's inputs of the own part.
PlanBuilder::Step& fold_part(PlanBuilder& plan, const Place& place, uint32_t chunks) {
  PlanBuilder::Step& step = plan.step().own(Buffer::kInput, place.position() * chunks).chunks(chunks);
  recv_from_neighbours(step, place);
  return step;
}

/// Part p of the output comes from position p.
void gather_parts(PlanBuilder::Step& step, const Place& place, uint32_t chunks) {
  place.for_other_positions([&](uint32_t position) { step.gather(place.neighbour(position), position * chunks); });
}

void exchange_all_reduce(PlanBuilder& plan, const Place& place) {
  const uint32_t own = place.position();
  scatter_parts(plan, place, 1);
  send_to_counterparts(fold_part(plan, place, 1).to_output(own), place);
  PlanBuilder::Step& sum = plan.step().own(Buffer::kOutput, own).final().to_output(own);
  recv_from_counterparts(sum, place);
  send_to_neighbours(sum, place);
  gather_parts(plan.step(), place, 1);
}

/// In round k, machines exchange sums whose numbers differ in bit k. Both fold the two sums in the same order.
void doubling_all_reduce(PlanBuilder& plan, const Place& place) {
  const uint32_t own = place.position();
  const auto partner = [&](uint32_t bit) { return place.counterpart(place.machine() ^ bit); };
  scatter_parts(plan, place, 1);
  fold_part(plan, place, 1).to_output(own).send(partner(1));
  for (uint32_t bit = 1; bit < place.machines(); bit *= 2) {
    PlanBuilder::Step& sum = plan.step().own(Buffer::kOutput, own).recv(partner(bit)).to_output(own);
    if (bit * 2 < place.machines()) {
      sum.send(partner(bit * 2));
      continue;
    }
    sum.final();
    send_to_neighbours(sum, place);
  }
  if (place.positions() > 1) gather_parts(plan.step(), place, 1);
}

/// The ring of algo-ring over the own part, which has one chunk for each machine. A message inside a machine has a
/// whole part.
void ring_all_reduce(PlanBuilder& plan, const Place& place) {
  const uint32_t n = place.machines();
  const uint32_t part = place.position() * n;
  const auto chunk = [&](uint32_t distance) { return part + place.machine_after(n - distance); };
  const uint32_t previous = place.counterpart(place.machine_after(n - 1));
  const uint32_t next = place.counterpart(place.machine_after(1));
  plan.message_chunks(n);
  scatter_parts(plan, place, n);
  fold_part(plan, place, n).to_output(part);
  plan.step().own(Buffer::kOutput, chunk(0)).send(next);
  for (uint32_t k = 1; k + 1 < n; ++k) plan.step().recv(previous).own(Buffer::kOutput, chunk(k)).send(next);
  const uint32_t finished = chunk(n - 1);
  plan.step().recv(previous).own(Buffer::kOutput, finished).final().to_output(finished).send(next);
  for (uint32_t k = 0; k + 2 < n; ++k) plan.step().recv(previous).to_output(chunk(k)).send(next);
  plan.step().recv(previous).to_output(chunk(n - 2));
  PlanBuilder::Step& gather = plan.step().own(Buffer::kOutput, part).chunks(n);
  send_to_neighbours(gather, place);
  gather_parts(gather, place, n);
}

/// The blocks of one machine after the other: the machine's ranks fold them and send the sums to its ranks.
void exchange_reduce_scatter(PlanBuilder& plan, const Place& place, const Hierarchy& hierarchy) {
  for (uint32_t k = 1; k <= place.machines(); ++k) {
    const uint32_t machine = place.machine_after(k);
    const uint32_t block = hierarchy.rank_at(machine, place.position());
    PlanBuilder::Step& scatter = plan.step().own(Buffer::kInput, block);
    place.for_other_positions(
        [&](uint32_t position) { scatter.scatter(place.neighbour(position), hierarchy.rank_at(machine, position)); });
    PlanBuilder::Step& fold = plan.step().own(Buffer::kInput, block);
    recv_from_neighbours(fold, place);
    if (machine == place.machine()) {
      fold.to_output(0);
    } else {
      fold.send(block);
    }
  }
  PlanBuilder::Step& sum = plan.step().own(Buffer::kOutput, 0).final().to_output(0);
  recv_from_counterparts(sum, place);
}

/// A rank passes each block that arrives from a counterpart on to its neighbours.
void exchange_all_gather(PlanBuilder& plan, const Place& place, const Hierarchy& hierarchy) {
  PlanBuilder::Step& own = plan.step().own(Buffer::kInput, 0).to_output(place.rank());
  send_to_counterparts(own, place);
  send_to_neighbours(own, place);
  for (uint32_t k = 0; k < place.machines(); ++k) {
    const uint32_t machine = place.machine_after(k);
    const uint32_t block = place.counterpart(machine);
    if (k > 0) send_to_neighbours(plan.step().recv(block).to_output(block), place);
    PlanBuilder::Step& gather = plan.step();
    place.for_other_positions(
        [&](uint32_t position) { gather.gather(place.neighbour(position), hierarchy.rank_at(machine, position)); });
  }
}

/// The root gives part p to position p of its machine, which sends it to its counterparts. Then machines gather the
/// parts.
void exchange_broadcast(PlanBuilder& plan, const Place& place, const Hierarchy& hierarchy, uint32_t root) {
  const uint32_t own = place.position();
  const bool at_root = place.machine() == hierarchy.machine_of(root);
  if (place.rank() == root) {
    place.for_other_positions([&](uint32_t position) {
      plan.step().own(Buffer::kInput, position).to_output(position).send(place.neighbour(position));
    });
  }
  PlanBuilder::Step& part = plan.step().to_output(own);
  if (place.rank() == root) {
    part.own(Buffer::kInput, own);
  } else {
    part.recv(at_root ? root : hierarchy.rank_at(hierarchy.machine_of(root), own));
  }
  if (at_root) send_to_counterparts(part, place);
  place.for_other_positions([&](uint32_t position) {
    if (place.neighbour(position) != root) part.send(place.neighbour(position));
  });
  if (place.rank() != root) gather_parts(plan.step(), place, 1);
}

/// Machines scatter their inputs. The ranks of the root's machine fold the sums of all machines for the root.
void exchange_reduce(PlanBuilder& plan, const Place& place, const Hierarchy& hierarchy, uint32_t root) {
  const uint32_t own = place.position();
  scatter_parts(plan, place, 1);
  PlanBuilder::Step& sum = fold_part(plan, place, 1);
  if (place.machine() != hierarchy.machine_of(root)) {
    sum.send(hierarchy.rank_at(hierarchy.machine_of(root), own));
    return;
  }
  recv_from_counterparts(sum.final(), place);
  if (place.rank() != root) {
    sum.send(root);
    return;
  }
  sum.to_output(own);
  gather_parts(plan.step(), place, 1);
}

void exchange(PlanBuilder& plan, const tutti_plan_request& request, const Place& place, const Hierarchy& hierarchy) {
  switch (request.collective) {
    case TUTTI_ALL_REDUCE:
      return exchange_all_reduce(plan, place);
    case TUTTI_REDUCE_SCATTER:
      return exchange_reduce_scatter(plan, place, hierarchy);
    case TUTTI_ALL_GATHER:
      return exchange_all_gather(plan, place, hierarchy);
    case TUTTI_BROADCAST:
      return exchange_broadcast(plan, place, hierarchy, request.root);
    case TUTTI_ALL_TO_ALL:
      return exchange_all_to_all(plan, place, hierarchy);
    default:
      return exchange_reduce(plan, place, hierarchy, request.root);
  }
}

void doubling(PlanBuilder& plan, const tutti_plan_request& request, const Place& place, const Hierarchy& hierarchy) {
  switch (request.collective) {
    case TUTTI_ALL_GATHER:
      return doubling_all_gather(plan, place, hierarchy);
    case TUTTI_REDUCE_SCATTER:
      return doubling_reduce_scatter(plan, place, hierarchy);
    default:
      return doubling_all_reduce(plan, place);
  }
}

uint32_t chunks_of(const tutti_plan_request& request, const Hierarchy& hierarchy) {
  if (has_blocks(request.collective)) return 1;
  return hierarchy.positions() * (request.variant == kRing ? hierarchy.machines() : 1);
}

}  // namespace

std::string_view obstacle(const Hierarchy& hierarchy, uint32_t collective, uint32_t variant) {
  const uint32_t machines = hierarchy.machines();
  if (machines < 2) return "a hierarchy needs two machines or more";
  if (hierarchy.positions() == 0) return "a hierarchy needs machines with equal numbers of ranks";
  const bool two_powers = (machines & (machines - 1)) == 0;
  if (variant == kDoubling && (machines < 4 || !two_powers)) return "recursive doubling needs 4, 8, 16, ... machines";
  if (variant == kDoubling && has_blocks(collective) && hierarchy.machine_stride() == 0)
    return "recursive doubling of blocks needs a constant distance from each rank to the next machine";
  if (variant == kDoubling) return "";
  if (hierarchy.positions() == 1) return "with one rank on each machine, the algorithms ring and direct do the same";
  if (variant == kRing && machines < 3) return "a ring of machines needs three machines or more";
  return "";
}

sdk::PlanBuilder schedule(const tutti_plan_request& request, const Hierarchy& hierarchy) {
  const Place place(hierarchy, request.rank);
  PlanBuilder plan(request, hierarchy.rank_count(), chunks_of(request, hierarchy));
  if (request.variant == kDoubling) {
    doubling(plan, request, place, hierarchy);
  } else if (request.variant == kRing) {
    ring_all_reduce(plan, place);
  } else {
    exchange(plan, request, place, hierarchy);
  }
  return plan;
}

}  // namespace tutti::hier
