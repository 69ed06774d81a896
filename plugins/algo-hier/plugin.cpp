// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <utility>

#include "schedules.h"
#include "tutti/sdk/rings.h"

namespace tutti::hier {
namespace {

/// The hierarchy of one communicator. The channels differ in the trees of `tree` alone.
class Channels : public sdk::AlgorithmInstance {
 public:
  Channels(const tutti_topology& topology, uint32_t channels)
      : hierarchy_(topology), channels_(channels), inside_(sdk::link_inside(topology)) {}

  uint32_t channel_count() const override { return channels_; }

  Result<sdk::PlanBuilder> plan(const tutti_plan_request& request) const override {
    TUTTI_TRY(check(request.collective, request.variant));
    const uint32_t ranks = hierarchy_.rank_count();
    if (request.channel >= channels_ || request.rank >= ranks || request.root >= ranks) {
      return Status(Code::kInvalidArgument, "channel, rank or root is out of range");
    }
    return schedule(request, hierarchy_);
  }

  Result<tutti_algorithm_cost> cost(uint32_t collective, uint32_t variant) const override {
    TUTTI_TRY(check(collective, variant));
    return hier::cost(collective, variant, hierarchy_, inside_);
  }

 private:
  Status check(uint32_t collective, uint32_t variant) const {
    if (variant >= kVariantCount || collective >= TUTTI_COLLECTIVE_COUNT ||
        (kVariants[variant].collectives >> collective & 1) == 0) {
      return {Code::kUnsupported, "this variant does not do this collective"};
    }
    const std::string_view reason = obstacle(hierarchy_, collective, variant);
    return reason.empty() ? Status() : Status(Code::kUnsupported, std::string(reason));
  }

  Hierarchy hierarchy_;
  uint32_t channels_;
  uint32_t inside_;
};

class Hier : public sdk::Algorithm {
 public:
  std::span<const Variant> variants() const override { return kVariants; }

  Result<sdk::Graph> search(const tutti_topology& topology, uint32_t rank) override {
    return sdk::ascending(topology, rank, topology.max_channels);
  }

  Result<std::unique_ptr<sdk::AlgorithmInstance>> connect(const tutti_topology& topology,
                                                          std::span<const tutti_graph> graphs) override {
    const uint32_t channels = sdk::common_channels(topology, graphs);
    if (channels == 0) return Status(Code::kInvalidArgument, "a machine has no channel");
    return std::unique_ptr<sdk::AlgorithmInstance>(std::make_unique<Channels>(topology, channels));
  }
};

}  // namespace
}  // namespace tutti::hier

TUTTI_PLUGIN(tutti::hier::Hier, "hier", "0.1.0", "two levels: inside machines, then between machines")
