// SPDX-License-Identifier: Apache-2.0
#include "topology/load.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <numeric>

#include "tutti/sdk/detail/finder.h"

namespace tutti::topology {
namespace {

/// Adds up the streams of a graph, path by path.
class Loads {
 public:
  Loads(const System& system, const NodeGraph& graph)
      : system_(system), view_(system.view()), graph_(graph.view()), loads_(system.links().size()) {
    for (uint32_t node = 0; node < system.nodes().size(); ++node) {
      const tutti_system_node& entry = system.nodes()[node];
      if (entry.rank != TUTTI_NO_RANK) ranks_[entry.rank] = node;
      if (entry.type == TUTTI_NODE_NET) nets_[entry.index] = node;
    }
  }

  Result<std::vector<double>> count(const NodeGraph& graph) {
    for (uint32_t channel = 0; channel < graph.channel_count(); ++channel) {
      std::vector<uint32_t> nodes;
      for (const uint32_t rank : graph.order(channel)) {
        if (!ranks_.contains(rank)) return missing("rank", rank);
        nodes.push_back(ranks_.at(rank));
      }
      for (size_t i = 0; i + 1 < nodes.size(); ++i) add(nodes[i], nodes[i + 1], graph_.intra_gbs);
      TUTTI_TRY(close(graph.net_in(channel), graph.net_out(channel), nodes));
    }
    return loads_;
  }

 private:
  Status close(uint32_t net_in, uint32_t net_out, const std::vector<uint32_t>& nodes) {
    const bool ring = graph_.pattern == TUTTI_PATTERN_RING;
    if (net_in == TUTTI_NO_NET) {
      if (ring && nodes.size() > 1) add(nodes.back(), nodes.front(), graph_.intra_gbs);
      return {};
    }
    if (!nets_.contains(net_in)) return missing("network port", net_in);
    if (!nets_.contains(net_out)) return missing("network port", net_out);
    add(nets_.at(net_in), nodes.front(), graph_.inter_gbs);
    if (ring) {
      add(nodes.back(), nets_.at(net_out), graph_.inter_gbs);
      return {};
    }
    const auto count = static_cast<uint32_t>(nodes.size());
    for (uint32_t place = 0; place < std::min(2u, count); ++place) {
      const double share = sdk::detail::Finder::tree_share(graph_.pattern, place, count);
      add(nodes[place], nets_.at(net_out), share * graph_.inter_gbs);
    }
    return {};
  }

  void add(uint32_t from, uint32_t to, double gbs) {
    sdk::detail::for_each_load(view_, system_.path(from, to), gbs,
                               [&](uint32_t link, double load) { loads_[link] += load; });
  }

  static Status missing(const char* what, uint32_t number) {
    return {Code::kInvalidArgument, fmt::format("the channels name {} {}, which the machine lacks", what, number)};
  }

  const System& system_;
  const tutti_system view_;
  const tutti_graph graph_;
  std::vector<double> loads_;
  std::map<uint32_t, uint32_t> ranks_;
  std::map<uint32_t, uint32_t> nets_;
};

}  // namespace

Result<std::vector<double>> link_loads(const System& system, const NodeGraph& graph) {
  return Loads(system, graph).count(graph);
}

double widest_path_gbs(const System& system) {
  const std::vector<uint32_t> ranks = system.rank_nodes();
  if (ranks.size() < 2) return 0;
  double least = std::numeric_limits<double>::infinity();
  for (const uint32_t from : ranks) {
    double widest = 0;
    for (const uint32_t to : ranks) {
      if (to != from) widest = std::max(widest, system.path(from, to).gbs);
    }
    least = std::min(least, widest);
  }
  return least;
}

double network_share_gbs(const System& system, uint32_t channels) {
  const std::vector<uint32_t> ranks = system.rank_nodes();
  const std::vector<uint32_t> ports = system.nodes_of(TUTTI_NODE_NET);
  if (ranks.empty() || ports.empty()) return 0;
  double all_ports = 0;
  for (const uint32_t port : ports) {
    double best = 0;
    for (const uint32_t rank : ranks) best = std::max(best, system.path(rank, port).gbs);
    all_ports += best;
  }
  double least = all_ports / static_cast<double>(ranks.size());
  for (const uint32_t rank : ranks) {
    std::vector<double> paths;
    for (const uint32_t port : ports) paths.push_back(system.path(rank, port).gbs);
    std::ranges::sort(paths, std::greater());
    paths.resize(std::min<size_t>(paths.size(), channels));
    least = std::min(least, std::accumulate(paths.begin(), paths.end(), 0.0));
  }
  return least;
}

double memory_gbs(const System& system) {
  double least = std::numeric_limits<double>::infinity();
  const std::vector<uint32_t> ranks = system.rank_nodes();
  for (const uint32_t rank : ranks) least = std::min(least, system.gpu(rank).memory_gbs);
  return ranks.empty() ? 0 : least;
}

double network_latency_us(const System& system) {
  double lowest = 0;
  for (const uint32_t net : system.nodes_of(TUTTI_NODE_NET)) {
    const double latency_us = system.nodes()[net].latency_us;
    if (latency_us > 0 && (lowest == 0 || latency_us < lowest)) lowest = latency_us;
  }
  return lowest;
}

}  // namespace tutti::topology
