// SPDX-License-Identifier: Apache-2.0
// An algorithm outside Tutti's tree: all-reduce along a line of ranks. Each chunk is folded from rank 0 to rank n-1,
// and the result travels back. It moves as much data as a ring and has as many hops, but needs no link from the last
// rank to the first.
#include "tutti/sdk/algorithm.h"

namespace {

using namespace tutti;
using sdk::Buffer;

class ChainInstance : public sdk::AlgorithmInstance {
 public:
  explicit ChainInstance(const tutti_topology& topology)
      : ranks_(topology.rank_count), link_(topology.node_count > 1 ? TUTTI_LINK_NETWORK : sdk::link_inside(topology)) {}

  uint32_t channel_count() const override { return 1; }

  Result<sdk::PlanBuilder> plan(const tutti_plan_request& request) const override {
    sdk::PlanBuilder plan(request, ranks_);  // one chunk per block and loop
    const uint32_t rank = request.rank;
    const uint32_t last = ranks_ - 1;
    if (ranks_ == 1) {
      plan.step().own(Buffer::kInput, 0).final().to_output(0);
    } else if (rank == 0) {
      plan.step().own(Buffer::kInput, 0).send(1);
      plan.step().recv(1).to_output(0);
    } else if (rank == last) {  // the sum is complete here, and travels back
      plan.step().recv(rank - 1).own(Buffer::kInput, 0).final().to_output(0).send(rank - 1);
    } else {
      plan.step().recv(rank - 1).own(Buffer::kInput, 0).send(rank + 1);
      plan.step().recv(rank + 1).to_output(0).send(rank - 1);
    }
    return plan;
  }

  Result<tutti_algorithm_cost> cost(uint32_t /*collective*/, uint32_t /*variant*/) const override {
    tutti_algorithm_cost cost{};
    cost.hops[link_] = 2 * (ranks_ - 1);  // the slowest kind of link on the line stands for all
    cost.wire[link_] = 2;
    cost.memory = 5;
    return cost;
  }

 private:
  uint32_t ranks_;
  uint32_t link_;
};

class ChainAlgorithm : public sdk::Algorithm {
 public:
  std::span<const Variant> variants() const override {
    static constexpr Variant kVariants[] = {{"", 1u << TUTTI_ALL_REDUCE}};
    return kVariants;
  }

  Result<std::unique_ptr<sdk::AlgorithmInstance>> connect(const tutti_topology& topology,
                                                          std::span<const tutti_graph> /*graphs*/) override {
    return std::unique_ptr<sdk::AlgorithmInstance>(std::make_unique<ChainInstance>(topology));
  }
};

}  // namespace

TUTTI_PLUGIN(ChainAlgorithm, "chain", "1.0.0", "all-reduce along a line of ranks and back")
