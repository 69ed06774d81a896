// SPDX-License-Identifier: Apache-2.0
// Three algorithms that need a scratch buffer, or messages of several chunks:
//
//   bruck         all-gather in ⌈log2 n⌉ exchanges (Bruck, Ho, Kipnis, Upfal, Weathersby: Efficient Algorithms for
//                 All-to-All Communications in Multiport Message-Passing Systems, 1997)
//   halving       all-reduce by recursive halving and doubling (Thakur, Rabenseifner, Gropp: Optimization of Collective
//                 Communication Operations in MPICH, 2005)
//   hierarchical  all-reduce in the machines, then between them, then in the machines again
#include <algorithm>
#include <bit>
#include <vector>

#include "tutti/sdk/algorithm.h"
#include "tutti/sdk/graph.h"

namespace {

using namespace tutti;
using sdk::Buffer;
using sdk::PlanBuilder;

enum Variant : uint32_t { kBruck, kHalving, kHierarchical };

/// Rank r has block r + i of the output as block i of its list. In each exchange it gives the beginning of its list to
/// the rank that is 1, 2, 4, ... ranks before it, and gets as many blocks for the end of its list.
PlanBuilder bruck(const tutti_plan_request& request, uint32_t ranks) {
  uint32_t longest = 1;
  for (uint32_t have = 1; have < ranks; have *= 2) longest = std::max(longest, std::min(have, ranks - have));
  PlanBuilder plan(request, ranks);
  plan.message_chunks(longest);
  const uint32_t rank = request.rank;
  plan.step().own(Buffer::kInput, 0).to_output(rank);
  for (uint32_t have = 1; have < ranks; have *= 2) {
    const uint32_t count = std::min(have, ranks - have);
    plan.step().own(Buffer::kOutput, rank).chunks(count).send((rank + ranks - have) % ranks);
    plan.step().recv((rank + have) % ranks).to_output((rank + have) % ranks).chunks(count);
  }
  return plan;
}

/// The largest power of two of the ranks take part, with one chunk each. Each further rank gives its input to one of
/// them at first, and gets the result from it at last.
class Halving {
 public:
  Halving(const tutti_plan_request& request, uint32_t ranks)
      : rank_(request.rank), parts_(std::bit_floor(ranks)), extra_(ranks - parts_), plan_(request, ranks, parts_) {
    plan_.scratch(parts_).message_chunks(extra_ > 0 ? parts_ : std::max(1u, parts_ / 2));
  }

  PlanBuilder make() && {
    const bool has_partner = rank_ < 2 * extra_;  // ranks 0 and 1, 2 and 3, ...
    if (has_partner && rank_ % 2 == 1) {
      plan_.step().own(Buffer::kInput, 0).chunks(parts_).send(rank_ - 1);
      plan_.step().recv(rank_ - 1).to_output(0).chunks(parts_);
      return std::move(plan_);
    }
    Buffer sums = Buffer::kInput;
    if (has_partner) {
      plan_.step().recv(rank_ + 1).own(Buffer::kInput, 0).to_scratch(0).chunks(parts_);
      sums = Buffer::kScratch;
    }
    halve(sums);
    double_up();
    if (has_partner) plan_.step().own(Buffer::kOutput, 0).chunks(parts_).send(rank_ + 1);
    return std::move(plan_);
  }

 private:
  uint32_t place() const { return rank_ < 2 * extra_ ? rank_ / 2 : rank_ - extra_; }
  uint32_t rank_at(uint32_t place) const { return place < extra_ ? 2 * place : place + extra_; }

  /// Gives half of the chunks that it still sums to a partner, until one is left.
  void halve(Buffer sums) {
    if (parts_ == 1) plan_.step().own(Buffer::kInput, 0).final().to_output(0);
    uint32_t first = 0;
    for (uint32_t half = parts_ / 2; half > 0; half /= 2) {
      const uint32_t partner = rank_at(place() ^ half);
      const uint32_t given = (place() & half) != 0 ? first : first + half;
      first = (place() & half) != 0 ? first + half : first;
      plan_.step().own(sums, given).chunks(half).send(partner);
      PlanBuilder::Step& fold = plan_.step().recv(partner).own(sums, first).chunks(half);
      half == 1 ? fold.final().to_output(first) : fold.to_scratch(first);
      sums = Buffer::kScratch;
    }
  }

  /// Exchanges all finished chunks with the same partners, in the opposite order.
  void double_up() {
    for (uint32_t half = 1; half < parts_; half *= 2) {
      const uint32_t partner = rank_at(place() ^ half);
      const uint32_t first = place() / half * half;
      plan_.step().own(Buffer::kOutput, first).chunks(half).send(partner);
      plan_.step().recv(partner).to_output(first ^ half).chunks(half);
    }
  }

  uint32_t rank_;
  uint32_t parts_;
  uint32_t extra_;
  PlanBuilder plan_;
};

/// Each machine has as many owners as the smallest machine has ranks. Owner k sums chunk k of its machine in scratch
/// memory, exchanges the sum with owner k of every other machine, and gives the result to its machine.
PlanBuilder hierarchical(const tutti_plan_request& request, const std::vector<std::vector<uint32_t>>& machines) {
  uint32_t ranks = 0;
  size_t owners = SIZE_MAX;
  size_t own_machine = 0;
  for (size_t m = 0; m < machines.size(); ++m) {
    ranks += static_cast<uint32_t>(machines[m].size());
    owners = std::min(owners, machines[m].size());
    if (std::find(machines[m].begin(), machines[m].end(), request.rank) != machines[m].end()) own_machine = m;
  }
  const std::vector<uint32_t>& here = machines[own_machine];
  const auto index = static_cast<uint32_t>(std::find(here.begin(), here.end(), request.rank) - here.begin());
  PlanBuilder plan(request, ranks, static_cast<uint32_t>(owners));
  plan.scratch(static_cast<uint32_t>(owners));
  PlanBuilder::Step& given = plan.step().own(Buffer::kInput, 0);
  for (uint32_t k = 0; k < owners; ++k) {
    if (k != index) given.scatter(here[k], k);
  }
  if (index < owners) {
    PlanBuilder::Step& local = plan.step().own(Buffer::kInput, index).to_scratch(index);
    for (const uint32_t rank : here) {
      if (rank != request.rank) local.recv(rank);
    }
    for (size_t m = 0; m < machines.size(); ++m) {
      if (m != own_machine) local.send(machines[m][index]);
    }
    PlanBuilder::Step& all = plan.step().own(Buffer::kScratch, index).final().to_output(index);
    for (size_t m = 0; m < machines.size(); ++m) {
      if (m != own_machine) all.recv(machines[m][index]);
    }
  }
  PlanBuilder::Step& spread = plan.step();
  for (uint32_t k = 0; k < owners; ++k) {
    if (k != index) spread.gather(here[k], k);
  }
  if (index >= owners) return plan;
  spread.own(Buffer::kOutput, index);
  for (const uint32_t rank : here) {
    if (rank != request.rank) spread.send(rank);
  }
  return plan;
}

class RecursiveInstance : public sdk::AlgorithmInstance {
 public:
  explicit RecursiveInstance(const tutti_topology& topology)
      : ranks_(topology.rank_count),
        link_(topology.node_count > 1 ? TUTTI_LINK_NETWORK : sdk::link_inside(topology)),
        machines_(topology.node_count) {
    for (uint32_t rank = 0; rank < ranks_; ++rank) machines_[topology.node_of_rank[rank]].push_back(rank);
  }

  uint32_t channel_count() const override { return 1; }

  Result<PlanBuilder> plan(const tutti_plan_request& request) const override {
    if (request.variant == kBruck) return bruck(request, ranks_);
    if (request.variant == kHalving) return Halving(request, ranks_).make();
    return hierarchical(request, machines_);
  }

  Result<tutti_algorithm_cost> cost(uint32_t /*collective*/, uint32_t variant) const override {
    tutti_algorithm_cost cost{};
    const auto exchanges = static_cast<uint32_t>(std::bit_width(ranks_ - 1));  // ⌈log2 n⌉
    const double others = ranks_ - 1;
    cost.hops[link_] = variant == kBruck ? exchanges : variant == kHalving ? 2 * exchanges : 3;
    cost.wire[link_] = variant == kHierarchical ? 2 : (variant == kBruck ? 1 : 2) * others / ranks_;
    cost.memory = variant == kBruck ? 3 : 6;
    if (variant == kHierarchical) cost.fan = ranks_ - 1;
    return cost;
  }

 private:
  uint32_t ranks_;
  uint32_t link_;  // the slowest kind of link stands for all
  std::vector<std::vector<uint32_t>> machines_;
};

class Recursive : public sdk::Algorithm {
 public:
  std::span<const Variant> variants() const override {
    static constexpr Variant kVariants[] = {{"bruck", 1u << TUTTI_ALL_GATHER},
                                            {"halving", 1u << TUTTI_ALL_REDUCE},
                                            {"hierarchical", 1u << TUTTI_ALL_REDUCE}};
    return kVariants;
  }

  Result<std::unique_ptr<sdk::AlgorithmInstance>> connect(const tutti_topology& topology,
                                                          std::span<const tutti_graph> /*graphs*/) override {
    return std::unique_ptr<sdk::AlgorithmInstance>(std::make_unique<RecursiveInstance>(topology));
  }
};

}  // namespace

TUTTI_PLUGIN(Recursive, "recursive", "1.0.0", "Bruck's all-gather, halving and doubling, and a hierarchical all-reduce")
