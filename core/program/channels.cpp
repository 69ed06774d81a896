// SPDX-License-Identifier: Apache-2.0
#include "program/channels.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "plugin/loader.h"

namespace tutti::program {
namespace {

/// The destination of a plugin's report.
struct Report {
  const tutti_topology* topology;
  uint32_t node;
  std::optional<Result<topology::NodeGraph>> graph = {};

  static int32_t take(void* context, const tutti_graph* graph) {
    auto& report = *static_cast<Report*>(context);
    report.graph = topology::NodeGraph::copy(*graph, *report.topology, report.node);
    return static_cast<int32_t>(report.graph->status().code());
  }
};

Status failure(const AlgorithmPlugin& algorithm, const char* what, int32_t code) {
  return Status(static_cast<Code>(code),
                fmt::format("algorithm '{}' {}: {}", algorithm.name, what, plugin::take_failure_text()));
}

}  // namespace

Result<topology::NodeGraph> search(const AlgorithmPlugin& algorithm, const tutti_topology& topology, uint32_t rank) {
  Report report{&topology, topology.node_of_rank[rank]};
  const tutti_graph_sink sink{sizeof(tutti_graph_sink), 0, &report, Report::take};
  const int32_t code = algorithm.ops->search(algorithm.self, &topology, rank, &sink);
  if (report.graph && !report.graph->ok()) {
    return report.graph->status().with_context(fmt::format("algorithm '{}'", algorithm.name));
  }
  if (code != TUTTI_OK) return failure(algorithm, "found no channel", code);
  if (report.graph) return *std::move(report.graph);
  return Status(Code::kInternal, fmt::format("algorithm '{}' reported no channel", algorithm.name));
}

Result<Instance> connect(const AlgorithmPlugin& algorithm, const tutti_topology& topology,
                         std::span<const topology::NodeGraph> graphs) {
  std::vector<tutti_graph> views;
  views.reserve(graphs.size());
  for (const topology::NodeGraph& graph : graphs) views.push_back(graph.view());
  void* instance = nullptr;
  const int32_t code =
      algorithm.ops->connect(algorithm.self, &topology, views.data(), static_cast<uint32_t>(views.size()), &instance);
  if (code != TUTTI_OK) return failure(algorithm, "cannot connect the ranks", code);
  return Instance(instance, algorithm.ops->disconnect);
}

Result<Instance> search_and_connect(const AlgorithmPlugin& algorithm, const tutti_topology& topology) {
  std::vector<topology::NodeGraph> graphs;
  const uint32_t* nodes = topology.node_of_rank;
  for (uint32_t node = 0; node < topology.node_count; ++node) {
    const auto rank = static_cast<uint32_t>(std::find(nodes, nodes + topology.rank_count, node) - nodes);
    TUTTI_ASSIGN(topology::NodeGraph graph, search(algorithm, topology, rank));
    graphs.push_back(std::move(graph));
  }
  return connect(algorithm, topology, graphs);
}

}  // namespace tutti::program
