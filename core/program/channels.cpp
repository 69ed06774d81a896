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
                fmt::format("algorithm '{}' {}: {}", algorithm.name, what, plugin::take_reason()));
}

/// The entries that the selector trusts: they have no status of their own, or end a list with it.
Status check_answers(const AlgorithmPlugin& algorithm, void* instance) {
  if (algorithm.ops->channel_count(instance) == 0) return failure(algorithm, "has no channel", TUTTI_INTERNAL);
  tutti_str name{};
  uint64_t collectives = 0;
  int32_t code = TUTTI_OK;
  for (uint32_t variant = 0; code == TUTTI_OK; ++variant) {
    code = algorithm.ops->variant(algorithm.self, variant, &name, &collectives);
  }
  return code == TUTTI_NOT_FOUND ? Status() : failure(algorithm, "does not list its variants", code);
}

}  // namespace

Result<topology::NodeGraph> search(const AlgorithmPlugin& algorithm, const tutti_topology& topology, uint32_t rank) {
  Report report{&topology, topology.node_of_rank[rank]};
  const tutti_graph_sink sink{sizeof(tutti_graph_sink), 0, &report, Report::take};
  plugin::take_failure_text();  // discards the text of an earlier call
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
  plugin::take_failure_text();  // discards the text of an earlier call
  const int32_t code =
      algorithm.ops->connect(algorithm.self, &topology, views.data(), static_cast<uint32_t>(views.size()), &instance);
  if (code != TUTTI_OK) return failure(algorithm, "cannot connect the ranks", code);
  Instance connected(instance, algorithm.ops->disconnect);
  TUTTI_TRY(check_answers(algorithm, instance));
  return connected;
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
