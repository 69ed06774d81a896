// SPDX-License-Identifier: Apache-2.0
// An algorithm whose variants throw, each from a different entry: the facade must turn the exception into a text.
#include <array>
#include <stdexcept>

#include "tutti/sdk/algorithm.h"

namespace {

using namespace tutti;

enum Variant : uint32_t { kThrowsPlan, kThrowsCost };

class Instance : public sdk::AlgorithmInstance {
 public:
  uint32_t channel_count() const override { return 1; }
  Result<sdk::PlanBuilder> plan(const tutti_plan_request& /*request*/) const override {
    throw std::runtime_error("the plan has no legs");
  }
  Result<tutti_algorithm_cost> cost(uint32_t /*collective*/, uint32_t variant) const override {
    if (variant == kThrowsCost) throw std::runtime_error("the price is unknown");
    tutti_algorithm_cost cost{};
    for (uint32_t link = 0; link < TUTTI_LINK_COUNT; ++link) cost.hops[link] = cost.wire[link] = 1;
    return cost;
  }
};

class AlgoThrows : public sdk::Algorithm {
 public:
  std::span<const sdk::Algorithm::Variant> variants() const override {
    static constexpr std::array<sdk::Algorithm::Variant, 2> kBoth = {
        {{"plan", 1u << TUTTI_ALL_REDUCE}, {"cost", 1u << TUTTI_ALL_GATHER}}};
    return kBoth;
  }
  Result<std::unique_ptr<sdk::AlgorithmInstance>> connect(const tutti_topology& topology,
                                                          std::span<const tutti_graph> /*graphs*/) override {
    if (topology.rank_count == 1) throw std::runtime_error("one rank is no ring");
    return std::unique_ptr<sdk::AlgorithmInstance>(std::make_unique<Instance>());
  }
};

}  // namespace

TUTTI_PLUGIN(AlgoThrows, "algo_throws", "1.0", "throws from plan and cost")
