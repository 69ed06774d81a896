// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include "schedules.h"
#include "tutti/sdk/algorithm.h"
#include "tutti/sdk/rings.h"

namespace tutti::direct {
namespace {

bool can(uint32_t collective, uint32_t variant) {
  return variant < kVariantCount && collective < TUTTI_COLLECTIVE_COUNT &&
         (kVariants[variant].collectives >> collective & 1) != 0;
}

/// The all-pairs channels of one communicator: they differ in nothing but their number.
class Channels : public sdk::AlgorithmInstance {
 public:
  Channels(const tutti_topology& topology, uint32_t channels, double congestion)
      : spread_(spread_of(topology)), channels_(channels), congestion_(congestion) {}

  uint32_t channel_count() const override { return channels_; }

  Result<sdk::PlanBuilder> plan(const tutti_plan_request& request) const override {
    const uint32_t ranks = spread_.ranks;
    if (!can(request.collective, request.variant)) return unsupported();
    if (request.channel >= channels_ || request.rank >= ranks || request.root >= ranks) {
      return Status(Code::kInvalidArgument, "channel, rank or root is out of range");
    }
    return schedule(request, ranks);
  }

  Result<tutti_algorithm_cost> cost(uint32_t collective, uint32_t variant) const override {
    if (!can(collective, variant)) return unsupported();
    return direct::cost(collective, variant, spread_, congestion_);
  }

 private:
  static Status unsupported() { return {Code::kUnsupported, "this variant does not do this collective"}; }

  Spread spread_;
  uint32_t channels_;
  double congestion_;
};

class Direct : public sdk::Algorithm {
 public:
  static std::vector<tutti_config_key> settings() {
    return {sdk::setting(TUTTI_CONFIG_INTEGER, "congestion", "106",
                         "time of a link when a rank sends to all peers at once, in percent of one stream's", 100,
                         1000)};
  }

  std::span<const Variant> variants() const override { return kVariants; }

  Result<sdk::Graph> search(const tutti_topology& topology, uint32_t rank) override {
    return sdk::ascending(topology, rank, topology.max_channels);
  }

  Result<std::unique_ptr<sdk::AlgorithmInstance>> connect(const tutti_topology& topology,
                                                          std::span<const tutti_graph> graphs) override {
    const uint32_t channels = sdk::common_channels(topology, graphs);
    if (channels == 0) return Status(Code::kInvalidArgument, "a node has no channel");
    const double congestion = static_cast<double>(host().integer("congestion")) / 100.0;
    return std::unique_ptr<sdk::AlgorithmInstance>(std::make_unique<Channels>(topology, channels, congestion));
  }
};

}  // namespace
}  // namespace tutti::direct

TUTTI_PLUGIN(tutti::direct::Direct, "direct", "0.1.0", "every rank talks to every other: one-shot, two-shot, shifted")
