// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <string>
#include <utility>

#include "schedules.h"
#include "tutti/sdk/search.h"

namespace tutti::tree {
namespace {

bool can(uint32_t collective, uint32_t variant) {
  return variant < kVariantCount && collective < TUTTI_COLLECTIVE_COUNT &&
         (kVariants[variant].collectives >> collective & 1) != 0;
}

/// The trees of one communicator.
class Trees : public sdk::AlgorithmInstance {
 public:
  Trees(const tutti_topology& topology, std::span<const tutti_graph> graphs, std::vector<sdk::Tree> trees)
      : node_of_rank_(topology.node_of_rank, topology.node_of_rank + topology.rank_count),
        nets_(graphs, sdk::common_channels(topology, graphs)),
        trees_(std::move(trees)),
        depth_(depth_of(trees_[0], topology)),
        pairs_(graphs.size() > 1 && trees_.size() > 1),
        // A machine has up to two children. With pairs of trees, each machine is inner in one tree of a pair.
        streams_(pairs_ || graphs.size() < 3 ? 1 : 2) {
    inside_ = sdk::link_inside(topology);
    most_ranks_ = sdk::most_ranks_of_node(topology);
    sdk::set_bandwidth(bandwidth_, inside_, graphs, channel_count());
  }

  uint32_t channel_count() const override { return static_cast<uint32_t>(trees_.size()); }

  Result<sdk::PlanBuilder> plan(const tutti_plan_request& request) const override {
    if (!can(request.collective, request.variant)) return unsupported();
    if (request.channel >= trees_.size() || request.rank >= node_of_rank_.size() ||
        request.root >= node_of_rank_.size()) {
      return Status(Code::kInvalidArgument, "channel, rank or root is out of range");
    }
    return schedule(request, trees_[request.channel], pipelined_chunks(depth_));
  }

  Result<tutti_algorithm_cost> cost(uint32_t collective, uint32_t variant) const override {
    if (!can(collective, variant)) return unsupported();
    tutti_algorithm_cost cost = tree::cost(collective, variant, depth_, inside_, streams_, most_ranks_);
    std::copy_n(bandwidth_.gbs, TUTTI_LINK_COUNT, cost.gbs);
    return cost;
  }

  tutti_channel_nets nets(uint32_t channel, uint32_t rank, uint32_t /*peer*/) const override {
    return nets_.of(pairs_ ? channel / 2 : channel, node_of_rank_[rank]);
  }

 private:
  static Status unsupported() { return {Code::kUnsupported, "this variant does not do this collective"}; }

  std::vector<uint32_t> node_of_rank_;
  sdk::ChannelNets nets_;
  std::vector<sdk::Tree> trees_;
  Depth depth_;
  bool pairs_;
  double streams_;
  uint32_t inside_;
  uint32_t most_ranks_;
  tutti_algorithm_cost bandwidth_ = {};
};

class TreeAlgorithm : public sdk::Algorithm {
 public:
  std::span<const Variant> variants() const override { return kVariants; }

  /// With several machines, each channel serves both trees, so the search looks for half as many channels. It is best
  /// if two ranks share the traffic of the network. If their paths do not permit this, a different pattern may carry
  /// more.
  Result<sdk::Graph> search(const tutti_topology& topology, uint32_t rank) override {
    const uint32_t joined = topology.node_count > 1 && topology.max_channels > 1 ? 2 : 1;
    Result<sdk::Graph> best = Status(Code::kInternal, "no pattern");
    for (const uint32_t pattern : {TUTTI_PATTERN_BALANCED_TREE, TUTTI_PATTERN_TREE, TUTTI_PATTERN_SPLIT_TREE}) {
      auto graph =
          sdk::search(topology, rank, pattern, {.max_channels = topology.max_channels / joined, .joined = joined});
      if (!graph.ok() || !best.ok() || better(*graph, *best)) best = std::move(graph);
      if (!best.ok() || topology.node_count == 1) break;
    }
    return best;
  }

  Result<std::unique_ptr<sdk::AlgorithmInstance>> connect(const tutti_topology& topology,
                                                          std::span<const tutti_graph> graphs) override {
    TUTTI_ASSIGN(std::vector<sdk::Tree> trees, sdk::join_trees(topology, graphs));
    return std::unique_ptr<sdk::AlgorithmInstance>(std::make_unique<Trees>(topology, graphs, std::move(trees)));
  }

 private:
  static bool better(const sdk::Graph& a, const sdk::Graph& b) {
    constexpr double kClearly = 1.02;
    return b.fallback != a.fallback ? b.fallback : a.total_inter_gbs() > b.total_inter_gbs() * kClearly;
  }
};

}  // namespace
}  // namespace tutti::tree

TUTTI_PLUGIN(tutti::tree::TreeAlgorithm, "tree", "0.1.0", "chains in machines, double binary trees between them")
