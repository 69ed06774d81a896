// SPDX-License-Identifier: Apache-2.0
// All-pairs exchange; the shifted order of peers is the pairwise exchange of R. Thakur, R. Rabenseifner, W. Gropp,
// "Optimization of collective communication operations in MPICH", Int. J. High Perform. Comput. Appl. 19 (2005).
#include "schedules.h"

#include <algorithm>

namespace tutti::direct {
namespace {

using sdk::Buffer;
using sdk::PlanBuilder;

/// The peers of a rank in the order in which it addresses them: no two ranks begin with the same peer.
class Peers {
 public:
  Peers(uint32_t rank, uint32_t rank_count) : rank_(rank), count_(rank_count) {}

  uint32_t rank() const { return rank_; }
  uint32_t count() const { return count_; }
  uint32_t after(uint32_t distance) const { return (rank_ + distance) % count_; }
  uint32_t before(uint32_t distance) const { return (rank_ + count_ - distance) % count_; }

  template <class Action>
  void for_each(Action action) const {
    for (uint32_t k = 1; k < count_; ++k) action(after(k));
  }

 private:
  uint32_t rank_;
  uint32_t count_;
};

/// Folds the own input chunk and the messages of all peers.
PlanBuilder::Step& fold_all(PlanBuilder& plan, const Peers& peers, uint32_t own_chunk) {
  PlanBuilder::Step& step = plan.step().own(Buffer::kInput, own_chunk).final();
  peers.for_each([&](uint32_t peer) { step.recv(peer); });
  return step;
}

/// Input chunk p goes to rank p.
void scatter_to_owners(PlanBuilder& plan, const Peers& peers) {
  PlanBuilder::Step& step = plan.step().own(Buffer::kInput, peers.rank());
  peers.for_each([&](uint32_t peer) { step.scatter(peer, peer); });
}

void one_shot_all_reduce(PlanBuilder& plan, const Peers& peers) {
  if (peers.count() > 1) {
    PlanBuilder::Step& step = plan.step().own(Buffer::kInput, 0);
    peers.for_each([&](uint32_t peer) { step.send(peer); });
  }
  fold_all(plan, peers, 0).to_output(0);
}

void two_shot_all_reduce(PlanBuilder& plan, const Peers& peers) {
  if (peers.count() > 1) scatter_to_owners(plan, peers);
  PlanBuilder::Step& owned = fold_all(plan, peers, peers.rank()).to_output(peers.rank());
  peers.for_each([&](uint32_t peer) { owned.send(peer); });
  if (peers.count() == 1) return;
  PlanBuilder::Step& rest = plan.step();
  peers.for_each([&](uint32_t peer) { rest.gather(peer, peer); });
}

void one_shot_reduce_scatter(PlanBuilder& plan, const Peers& peers) {
  if (peers.count() > 1) scatter_to_owners(plan, peers);
  fold_all(plan, peers, peers.rank()).to_output(0);
}

void one_shot_all_gather(PlanBuilder& plan, const Peers& peers) {
  PlanBuilder::Step& step = plan.step().own(Buffer::kInput, 0).to_output(peers.rank());
  peers.for_each([&](uint32_t peer) { step.send(peer).gather(peer, peer); });
}

void one_shot_all_to_all(PlanBuilder& plan, const Peers& peers) {
  PlanBuilder::Step& step = plan.step().own(Buffer::kInput, peers.rank()).to_output(peers.rank());
  peers.for_each([&](uint32_t peer) { step.scatter(peer, peer).gather(peer, peer); });
}

void one_shot_reduce(PlanBuilder& plan, const Peers& peers, uint32_t root) {
  if (peers.rank() == root) {
    fold_all(plan, peers, 0).to_output(0);
  } else {
    plan.step().own(Buffer::kInput, 0).send(root);
  }
}

void one_shot_broadcast(PlanBuilder& plan, const Peers& peers, uint32_t root) {
  PlanBuilder::Step& step = plan.step().to_output(0);
  if (peers.rank() != root) {
    step.recv(root);
    return;
  }
  step.own(Buffer::kInput, 0);
  peers.for_each([&](uint32_t peer) { step.send(peer); });
}

void one_shot_gather(PlanBuilder& plan, const Peers& peers, uint32_t root) {
  PlanBuilder::Step& step = plan.step().own(Buffer::kInput, 0);
  if (peers.rank() != root) {
    step.send(root);
    return;
  }
  step.to_output(root);
  peers.for_each([&](uint32_t peer) { step.gather(peer, peer); });
}

void one_shot_scatter(PlanBuilder& plan, const Peers& peers, uint32_t root) {
  PlanBuilder::Step& step = plan.step().to_output(0);
  if (peers.rank() != root) {
    step.recv(root);
    return;
  }
  step.own(Buffer::kInput, root);
  peers.for_each([&](uint32_t peer) { step.scatter(peer, peer); });
}

/// The own block is copied in the first round.
void shifted_all_gather(PlanBuilder& plan, const Peers& peers) {
  for (uint32_t k = 1; k < peers.count(); ++k) {
    PlanBuilder::Step& round = plan.step().own(Buffer::kInput, 0).send(peers.after(k));
    round.gather(peers.before(k), peers.before(k));
    if (k == 1) round.to_output(peers.rank());
  }
}

void shifted_all_to_all(PlanBuilder& plan, const Peers& peers) {
  for (uint32_t k = 1; k < peers.count(); ++k) {
    PlanBuilder::Step& round = plan.step().own(Buffer::kInput, peers.rank());
    round.scatter(peers.after(k), peers.after(k)).gather(peers.before(k), peers.before(k));
    if (k == 1) round.to_output(peers.rank());
  }
}

void shifted_gather(PlanBuilder& plan, const Peers& peers, uint32_t root) {
  if (peers.rank() != root) {
    plan.step().own(Buffer::kInput, 0).send(root);
    return;
  }
  plan.step().own(Buffer::kInput, 0).to_output(root);
  peers.for_each([&](uint32_t peer) { plan.step().recv(peer).to_output(peer); });
}

void shifted_scatter(PlanBuilder& plan, const Peers& peers, uint32_t root) {
  if (peers.rank() != root) {
    plan.step().recv(root).to_output(0);
    return;
  }
  plan.step().own(Buffer::kInput, root).to_output(0);
  peers.for_each([&](uint32_t peer) { plan.step().own(Buffer::kInput, peer).send(peer); });
}

void one_shot(PlanBuilder& plan, const Peers& peers, uint32_t collective, uint32_t root) {
  switch (collective) {
    case TUTTI_ALL_REDUCE:
      return one_shot_all_reduce(plan, peers);
    case TUTTI_REDUCE_SCATTER:
      return one_shot_reduce_scatter(plan, peers);
    case TUTTI_ALL_GATHER:
      return one_shot_all_gather(plan, peers);
    case TUTTI_BROADCAST:
      return one_shot_broadcast(plan, peers, root);
    case TUTTI_REDUCE:
      return one_shot_reduce(plan, peers, root);
    case TUTTI_ALL_TO_ALL:
      return one_shot_all_to_all(plan, peers);
    case TUTTI_GATHER:
      return one_shot_gather(plan, peers, root);
    default:
      return one_shot_scatter(plan, peers, root);
  }
}

void shifted(PlanBuilder& plan, const Peers& peers, uint32_t collective, uint32_t root) {
  switch (collective) {
    case TUTTI_ALL_GATHER:
      return shifted_all_gather(plan, peers);
    case TUTTI_ALL_TO_ALL:
      return shifted_all_to_all(plan, peers);
    case TUTTI_GATHER:
      return shifted_gather(plan, peers, root);
    default:
      return shifted_scatter(plan, peers, root);
  }
}

/// How many times a rank's busiest direction carries one block, per peer.
double blocks_per_peer(uint32_t collective, uint32_t variant, uint32_t rank_count) {
  if (collective == TUTTI_ALL_REDUCE) return variant == kTwoShot ? 2.0 / rank_count : 1.0;
  const bool to_one = collective == TUTTI_BROADCAST || collective == TUTTI_REDUCE;
  return to_one ? 1.0 : 1.0 / rank_count;
}

/// Whether only the root exchanges data with the other ranks.
bool is_rooted(uint32_t collective) {
  return collective == TUTTI_BROADCAST || collective == TUTTI_REDUCE || collective == TUTTI_GATHER ||
         collective == TUTTI_SCATTER;
}

}  // namespace

sdk::PlanBuilder schedule(const tutti_plan_request& request, uint32_t rank_count) {
  const Peers peers(request.rank, rank_count);
  PlanBuilder plan(request, rank_count, request.variant == kTwoShot ? rank_count : 1);
  if (request.variant == kTwoShot) {
    two_shot_all_reduce(plan, peers);
  } else if (request.variant == kOneShot || rank_count == 1) {
    one_shot(plan, peers, request.collective, request.root);
  } else {
    shifted(plan, peers, request.collective, request.root);
  }
  return plan;
}

Spread spread_of(const tutti_topology& topology) {
  std::vector<uint32_t> ranks_in_node(topology.node_count);
  for (uint32_t rank = 0; rank < topology.rank_count; ++rank) ++ranks_in_node[topology.node_of_rank[rank]];
  const auto [fewest, most] = std::minmax_element(ranks_in_node.begin(), ranks_in_node.end());
  return {topology.rank_count, *fewest, *most, sdk::link_inside(topology)};
}

tutti_algorithm_cost cost(uint32_t collective, uint32_t variant, const Spread& spread, double congestion) {
  const uint32_t n = spread.ranks;
  const uint32_t inside = spread.inside;
  const uint32_t peers_inside = spread.most - 1;
  const uint32_t peers_outside = n - spread.fewest;

  tutti_algorithm_cost cost = {};
  cost.struct_size = sizeof(cost);
  const bool one_way = collective == TUTTI_GATHER || collective == TUTTI_SCATTER;
  const uint32_t rounds_inside = variant == kTwoShot ? 2 : variant == kShifted && !one_way ? peers_inside : 1;
  const uint32_t rounds_outside = variant == kTwoShot ? 2 : variant == kShifted && !one_way ? peers_outside : 1;
  const double share = blocks_per_peer(collective, variant, n) * (variant == kShifted ? 1.0 : congestion);
  if (peers_outside > 0) cost.hops[TUTTI_LINK_NETWORK] = rounds_outside;
  if (peers_inside > 0 && (peers_outside == 0 || variant == kShifted)) cost.hops[inside] = rounds_inside;
  cost.fan = variant == kShifted ? 1 : n - 1;
  cost.messages[inside] = (variant == kTwoShot ? 2 : 1) * peers_inside;
  cost.messages[TUTTI_LINK_NETWORK] = (variant == kTwoShot ? 2 : 1) * peers_outside;
  cost.wire[inside] = share * peers_inside;
  cost.wire[TUTTI_LINK_NETWORK] = share * peers_outside;
  // The own part is read and written once. An arriving chunk is read from its slot, and written again if it is stored.
  cost.memory = 2.0 + 2.0 * blocks_per_peer(collective, variant, n) * (n - 1);
  if (is_rooted(collective)) {  // else all ranks are as busy as the busiest
    cost.machine_messages[inside] = 2 * peers_inside;
    cost.machine_messages[TUTTI_LINK_NETWORK] = peers_outside;
    cost.machine_wire[inside] = 2 * share * peers_inside;
    cost.machine_wire[TUTTI_LINK_NETWORK] = share * peers_outside;
  }
  return cost;
}

}  // namespace tutti::direct
