// SPDX-License-Identifier: Apache-2.0
#include "tools/search/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "communicator/setup/ports.h"
#include "tools/check/problem.h"
#include "topology/load.h"

namespace tutti::tools {
namespace {

using communicator::DryCommunicator;
using topology::NodeGraph;
using topology::System;

/// Links of one kind that carry the same: printed in one line.
struct Group {
  std::string name;
  uint32_t count = 0;
  double load = 0;
  double gbs = 0;
};

std::string kind_name(const System& system, const tutti_system_link& link) {
  return fmt::format("{} → {}", topology::node_type_name(system.nodes()[link.from].type),
                     topology::node_type_name(system.nodes()[link.to].type));
}

std::vector<Group> grouped(const System& system, const std::vector<double>& loads) {
  std::map<std::tuple<double, std::string, double>, Group> groups;
  for (size_t i = 0; i < loads.size(); ++i) {
    const tutti_system_link& link = system.links()[i];
    if (loads[i] <= 0) continue;
    const std::string name = fmt::format("{} ({})", kind_name(system, link), topology::wire_name(link.type));
    Group& group = groups[{-loads[i] / link.gbs, name, link.gbs}];
    group = {name, group.count + 1, loads[i], link.gbs};
  }
  std::vector<Group> sorted;
  sorted.reserve(groups.size());
  for (auto& [key, group] : groups) sorted.push_back(std::move(group));
  return sorted;
}

}  // namespace

std::string duration(double microseconds) {
  if (microseconds < 1e3) return fmt::format("{:.1f} µs", microseconds);
  if (microseconds < 1e6) return fmt::format("{:.2f} ms", microseconds / 1e3);
  return fmt::format("{:.2f} s", microseconds / 1e6);
}

std::string bytes_text(uint64_t bytes) {
  constexpr uint64_t kKi = 1024;
  if (bytes % (kKi * kKi * kKi) == 0) return fmt::format("{} GiB", bytes / (kKi * kKi * kKi));
  if (bytes % (kKi * kKi) == 0) return fmt::format("{} MiB", bytes / (kKi * kKi));
  return bytes % kKi == 0 ? fmt::format("{} KiB", bytes / kKi) : fmt::format("{} B", bytes);
}

void print_cluster(const std::string& file, const DryCommunicator& cluster) {
  const uint32_t here = cluster.rank_count() / cluster.node_count();
  fmt::print("{}: {} machine{} × {} rank{} = {} ranks", file, cluster.node_count(),
             cluster.node_count() == 1 ? "" : "s", here, here == 1 ? "" : "s", cluster.rank_count());
  if (cluster.node_count() > 1) {
    fmt::print(", {} network ports each", cluster.system().nodes_of(TUTTI_NODE_NET).size());
  }
  fmt::print("\n");
  const std::vector<uint32_t> shared = communicator::fastest_ports(cluster.system());
  if (cluster.node_count() == 1 || shared.size() < 2) return;
  fmt::print("own ports of a machine's ranks: {}\n",
             communicator::own_ports_text(communicator::own_ports(cluster.system(), shared),
                                          communicator::ports_of(cluster.system(), shared)));
}

Status print_channels(const DryCommunicator& cluster, size_t index, bool all) {
  const tuner::Algorithm& algorithm = cluster.algorithms()[index];
  const DryCommunicator::Channels& found = cluster.channels()[index];
  const NodeGraph& graph = found.graph;
  fmt::print("\n{}: {}\n", algorithm.name, graph.summary());
  if (!graph.is_searched()) return {};
  fmt::print("  search {:.1f} ms; connect of {} ranks, {} channels: {:.1f} ms\n", found.search_seconds * 1e3,
             cluster.rank_count(), algorithm.channels, found.connect_seconds * 1e3);
  for (const std::string& line : topology::channel_lines(graph, cluster.system(), all)) fmt::print("  {}\n", line);
  TUTTI_ASSIGN(const std::vector<double> loads, topology::link_loads(cluster.system(), graph));
  const std::vector<Group> groups = grouped(cluster.system(), loads);
  for (const Group& group : groups) {
    fmt::print("  {:>3} × {:<28} {:>7.2f} of {:>7.2f} GB/s  {:>3.0f} %{}\n", group.count, group.name, group.load,
               group.gbs, 100 * group.load / group.gbs, &group == &groups.front() ? "  ← bottleneck" : "");
  }
  return {};
}

tuner::Question question_of(const DryCommunicator& cluster, Collective collective, uint64_t bytes) {
  check::Problem problem;
  problem.collective = collective;
  problem.type = tuner::Question().type;
  problem.rank_count = static_cast<int>(cluster.rank_count());
  problem.count = 1;
  tuner::Question question;
  question.collective = collective;
  question.count = std::max<uint64_t>(bytes / check::bytes_of(problem), 1);
  return question;
}

Status print_predictions(const DryCommunicator& cluster, Collective collective) {
  fmt::print("\n{}, predicted ({})\n{:>10}  {:<26} {:>8}  {:>10}  {:>12}\n", to_string(collective),
             to_string(tuner::Question().type), "size", "runs", "channels", "time", "GB/s of data");
  for (uint64_t bytes = 64; bytes <= uint64_t{4} << 30; bytes *= bytes < 4096 ? 64 : 16) {
    TUTTI_ASSIGN(const tuner::Decision decision, cluster.selector().choose(question_of(cluster, collective, bytes)));
    const std::string& protocol = cluster.selector().choices().protocols[decision.protocol].name;
    const std::string runs = fmt::format("{} × {}", name_of(cluster, decision), protocol);
    fmt::print("{:>10}  {:<26} {:>8}  {:>10}  {:>12.2f}\n", bytes_text(bytes), runs, decision.channels,
               duration(decision.predicted_us), static_cast<double>(bytes) / decision.predicted_us / 1e3);
  }
  return {};
}

std::string name_of(const DryCommunicator& cluster, const tuner::Decision& decision) {
  const std::string algorithm = cluster.selector().algorithm_name(decision);
  const std::string variant = cluster.selector().variant_name(decision);
  return variant.empty() ? algorithm : fmt::format("{}/{}", algorithm, variant);
}

void print_limits(const DryCommunicator& cluster, Collective collective) {
  const std::vector<std::string> limits = cluster.limits(collective);
  if (!limits.empty()) fmt::print("\nlimits that a job of these ranks meets:\n");
  for (const std::string& limit : limits) fmt::print("  {}\n", limit);
}

}  // namespace tutti::tools
