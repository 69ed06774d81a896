// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <string>
#include <utility>

#include "schedules.h"
#include "tutti/sdk/algorithm.h"
#include "tutti/sdk/search.h"

namespace tutti::ring {
namespace {

bool can(uint32_t collective) {
  return collective < TUTTI_COLLECTIVE_COUNT && (kCollectives >> collective & 1) != 0;
}

/// The rings of one communicator.
class Rings : public sdk::AlgorithmInstance {
 public:
  Rings(const tutti_topology& topology, std::span<const tutti_graph> graphs, std::vector<Order> orders)
      : node_of_rank_(topology.node_of_rank, topology.node_of_rank + topology.rank_count),
        nets_(graphs, sdk::common_channels(topology, graphs)),
        orders_(std::move(orders)) {
    for (uint32_t collective = 0; collective < TUTTI_COLLECTIVE_COUNT; ++collective) {
      if (can(collective)) costs_[collective] = ring::cost(collective, topology, graphs, channel_count());
    }
  }

  uint32_t channel_count() const override { return static_cast<uint32_t>(orders_.size()); }

  Result<sdk::PlanBuilder> plan(const tutti_plan_request& request) const override {
    if (!can(request.collective)) return unsupported();
    if (request.channel >= orders_.size() || request.rank >= orders_[0].size() || request.root >= orders_[0].size()) {
      return Status(Code::kInvalidArgument, "channel, rank or root is out of range");
    }
    return schedule(request, orders_[request.channel]);
  }

  Result<tutti_algorithm_cost> cost(uint32_t collective, uint32_t) const override {
    if (!can(collective)) return unsupported();
    return costs_[collective];
  }

  tutti_channel_nets nets(uint32_t channel, uint32_t rank, uint32_t /*peer*/) const override {
    return nets_.of(channel, node_of_rank_[rank]);
  }

 private:
  static Status unsupported() { return {Code::kUnsupported, "rings do not do this collective"}; }

  std::vector<uint32_t> node_of_rank_;
  sdk::ChannelNets nets_;
  std::vector<Order> orders_;
  std::array<tutti_algorithm_cost, TUTTI_COLLECTIVE_COUNT> costs_ = {};
};

class Ring : public sdk::Algorithm {
 public:
  std::span<const Variant> variants() const override {
    static constexpr std::array<Variant, 1> kOnly = {{{"", kCollectives}}};
    return kOnly;
  }

  Result<sdk::Graph> search(const tutti_topology& topology, uint32_t rank) override {
    return sdk::search(topology, rank, TUTTI_PATTERN_RING, {.max_channels = topology.max_channels});
  }

  Result<std::unique_ptr<sdk::AlgorithmInstance>> connect(const tutti_topology& topology,
                                                          std::span<const tutti_graph> graphs) override {
    TUTTI_ASSIGN(std::vector<Order> orders, sdk::join_rings(topology, graphs));
    return std::unique_ptr<sdk::AlgorithmInstance>(std::make_unique<Rings>(topology, graphs, std::move(orders)));
  }
};

}  // namespace
}  // namespace tutti::ring

TUTTI_PLUGIN(tutti::ring::Ring, "ring", "0.1.0", "every rank talks to its two neighbours: bandwidth-optimal rings")
