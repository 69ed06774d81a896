// SPDX-License-Identifier: Apache-2.0
// An algorithm that offers variants and declines each at a different time: the reasons must reach `explain`.
#include <array>

#include "tutti/sdk/algorithm.h"

namespace {

using namespace tutti;

enum Variant : uint32_t { kDeclinesPlan, kDeclinesCost };

class Instance : public sdk::AlgorithmInstance {
 public:
  uint32_t channel_count() const override { return 1; }
  Result<sdk::PlanBuilder> plan(const tutti_plan_request& /*request*/) const override {
    return Status(Code::kUnsupported, "ranks must form a hypercube");
  }
  Result<tutti_algorithm_cost> cost(uint32_t /*collective*/, uint32_t variant) const override {
    if (variant == kDeclinesCost) return Status(Code::kUnsupported, "nobody has measured it");
    tutti_algorithm_cost cost{};
    cost.hops[TUTTI_LINK_P2P] = 1;
    cost.wire[TUTTI_LINK_P2P] = 1e-6;  // it would win
    return cost;
  }
};

class Declines : public sdk::Algorithm {
 public:
  std::span<const sdk::Algorithm::Variant> variants() const override {
    static constexpr std::array<sdk::Algorithm::Variant, 2> kBoth = {
        {{"plan", 1u << TUTTI_ALL_REDUCE}, {"cost", 1u << TUTTI_ALL_REDUCE}}};
    return kBoth;
  }
  Result<std::unique_ptr<sdk::AlgorithmInstance>> connect(const tutti_topology& /*topology*/,
                                                          std::span<const tutti_graph> /*graphs*/) override {
    return std::unique_ptr<sdk::AlgorithmInstance>(std::make_unique<Instance>());
  }
};

}  // namespace

TUTTI_PLUGIN(Declines, "declines", "1.0", "offers what it then declines")
