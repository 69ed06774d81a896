// SPDX-License-Identifier: Apache-2.0
// The bandwidth-optimal ring: P. Patarasuk, X. Yuan, "Bandwidth optimal all-reduce algorithms for clusters of
// workstations", J. Parallel Distrib. Comput. 69 (2009).
#include "schedules.h"

#include <algorithm>

#include "tutti/sdk/algorithm.h"

namespace tutti::ring {
namespace {

using sdk::Buffer;
using sdk::PlanBuilder;

/// A ring with one rank: the value is the own input.
void copy(PlanBuilder& plan, bool reduces) {
  PlanBuilder::Step& step = plan.step().own(Buffer::kInput, 0).to_output(0);
  if (reduces) step.final();
}

/// Up to this number of ranks, plans have no repeats, so that people can read the steps of each rank.
constexpr uint32_t kWrittenOut = 16;

/// `rounds` steps: `write` adds the step of a round. In round k, a chunk is k chunks below its number in round 0.
template <class Write>
void repeat(PlanBuilder& plan, uint32_t rounds, bool rolled, const PlanBuilder::Step::Growth& growth, Write&& write) {
  if (!rolled || rounds < 2) {
    for (uint32_t k = 0; k < rounds; ++k) write(plan.step(), k);
    return;
  }
  const uint32_t first = plan.step_count();
  write(plan.step().grow(growth), 0);
  plan.repeat(first, rounds);
}

/// n-1 times a chunk moves on and takes in one more contribution; then n-1 times a finished chunk moves on.
void all_reduce(PlanBuilder& plan, const RingView& view) {
  const uint32_t n = view.size();
  const bool rolled = n > kWrittenOut;
  const auto chunk = [&](uint32_t distance) { return view.position_before(distance); };
  plan.step().own(Buffer::kInput, chunk(0)).send(view.next());
  repeat(plan, n - 2, rolled, {.own = -1}, [&](PlanBuilder::Step& step, uint32_t k) {
    step.recv(view.previous()).own(Buffer::kInput, chunk(k + 1)).send(view.next());
  });
  const uint32_t finished = chunk(n - 1);
  plan.step().recv(view.previous()).own(Buffer::kInput, finished).final().to_output(finished).send(view.next());
  repeat(plan, n - 2, rolled, {.to = -1}, [&](PlanBuilder::Step& step, uint32_t k) {
    step.recv(view.previous()).to_output(chunk(k)).send(view.next());
  });
  plan.step().recv(view.previous()).to_output(chunk(n - 2));
}

/// The first half of all-reduce; the block that starts at the next rank ends here.
void reduce_scatter(PlanBuilder& plan, const RingView& view) {
  const uint32_t n = view.size();
  const bool rolled = n > kWrittenOut && view.direction() != 0;
  plan.step().own(Buffer::kInput, view.before(1)).send(view.next());
  repeat(plan, n - 2, rolled, {.own = -view.direction()}, [&](PlanBuilder::Step& step, uint32_t k) {
    step.recv(view.previous()).own(Buffer::kInput, view.before(k + 2)).send(view.next());
  });
  plan.step().recv(view.previous()).own(Buffer::kInput, view.rank()).final().to_output(0);
}

/// The second half of all-reduce.
void all_gather(PlanBuilder& plan, const RingView& view) {
  const uint32_t n = view.size();
  const bool rolled = n > kWrittenOut && view.direction() != 0;
  plan.step().own(Buffer::kInput, 0).to_output(view.rank()).send(view.next());
  repeat(plan, n - 2, rolled, {.to = -view.direction()}, [&](PlanBuilder::Step& step, uint32_t k) {
    step.recv(view.previous()).to_output(view.before(k + 1)).send(view.next());
  });
  plan.step().recv(view.previous()).to_output(view.before(n - 1));
}

/// A chain from the root around; loops fill it like a pipeline.
void broadcast(PlanBuilder& plan, const RingView& view, uint32_t root) {
  PlanBuilder::Step& step = plan.step().to_output(0);
  if (view.rank() == root) {
    step.own(Buffer::kInput, 0);
  } else {
    step.recv(view.previous());
  }
  if (view.next() != root) step.send(view.next());
}

/// A chain from the root's successor around to the root.
void reduce(PlanBuilder& plan, const RingView& view, uint32_t root) {
  PlanBuilder::Step& step = plan.step().own(Buffer::kInput, 0);
  if (view.previous() != root) step.recv(view.previous());
  if (view.rank() == root) {
    step.final().to_output(0);
  } else {
    step.send(view.next());
  }
}

bool is_reduction(uint32_t collective) {
  return collective == TUTTI_ALL_REDUCE || collective == TUTTI_REDUCE_SCATTER || collective == TUTTI_REDUCE;
}

}  // namespace

RingView::RingView(const Order& order, uint32_t rank)
    : order_(order), position_(static_cast<uint32_t>(std::find(order.begin(), order.end(), rank) - order.begin())) {}

int64_t RingView::direction() const {
  const uint32_t n = size();
  const uint32_t step = (order_[1 % n] + n - order_[0]) % n;
  if (step != 1 && step != n - 1) return 0;
  for (uint32_t i = 0; i < n; ++i) {
    if ((order_[i] + step) % n != order_[(i + 1) % n]) return 0;
  }
  return step == 1 ? 1 : -1;
}

uint32_t RingView::position_before(uint32_t distance) const {
  return (position_ + size() - distance) % size();
}

sdk::PlanBuilder schedule(const tutti_plan_request& request, const Order& order) {
  const RingView view(order, request.rank);
  PlanBuilder plan(request, view.size(), request.collective == TUTTI_ALL_REDUCE ? view.size() : 1);
  if (view.size() == 1) {
    copy(plan, is_reduction(request.collective));
    return plan;
  }
  switch (request.collective) {
    case TUTTI_ALL_REDUCE:
      all_reduce(plan, view);
      break;
    case TUTTI_REDUCE_SCATTER:
      reduce_scatter(plan, view);
      break;
    case TUTTI_ALL_GATHER:
      all_gather(plan, view);
      break;
    case TUTTI_BROADCAST:
      broadcast(plan, view, request.root);
      break;
    default:
      reduce(plan, view, request.root);
  }
  return plan;
}

tutti_algorithm_cost cost(uint32_t collective, const tutti_topology& topology, std::span<const tutti_graph> graphs,
                          uint32_t channels) {
  const uint32_t n = topology.rank_count;
  const uint32_t inside = sdk::link_inside(topology);
  const uint32_t links_between_nodes = topology.node_count > 1 ? topology.node_count : 0;
  const uint32_t rounds = collective == TUTTI_ALL_REDUCE ? 2 : 1;
  const uint32_t hops = rounds * (n - 1);

  tutti_algorithm_cost cost = {};
  cost.struct_size = sizeof(cost);
  cost.hops[TUTTI_LINK_NETWORK] = std::min(hops, rounds * links_between_nodes);
  cost.hops[inside] = hops - cost.hops[TUTTI_LINK_NETWORK];
  const bool chain = collective == TUTTI_BROADCAST || collective == TUTTI_REDUCE;
  const double sent = n == 1 ? 0.0 : chain ? 1.0 : static_cast<double>(hops) / n;
  if (n > links_between_nodes) cost.wire[inside] = sent;
  if (links_between_nodes > 0) cost.wire[TUTTI_LINK_NETWORK] = sent;
  sdk::set_bandwidth(cost, inside, graphs, channels);
  // Each link inside a machine has two ends there, and each of the two links to other machines one.
  const uint32_t most = sdk::most_ranks_of_node(topology);
  const uint32_t ends_inside = n == 1 ? 0 : 2 * (most == n ? n : most - 1);
  const uint32_t ends_outside = links_between_nodes == 0 ? 0 : chain && links_between_nodes == 2 ? 1 : 2;
  const uint32_t messages = chain ? 1 : hops;
  cost.machine_messages[inside] = ends_inside * messages;
  cost.machine_messages[TUTTI_LINK_NETWORK] = ends_outside * messages;
  cost.machine_wire[inside] = ends_inside * sent;
  cost.machine_wire[TUTTI_LINK_NETWORK] = ends_outside * sent;
  // The input is read once and the output written once. Arriving data is read from its slot.
  cost.memory = 2.0 + sent;
  return cost;
}

}  // namespace tutti::ring
