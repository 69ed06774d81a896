// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>
#include <vector>

#include "tools/topo/print.h"

namespace tutti::tools {
namespace {

using topology::System;

constexpr std::array<std::string_view, TUTTI_PATH_TYPE_COUNT> kMeanings = {
    "itself",
    "NVLink or xGMI, directly or over NVSwitch",
    "NVLink over one GPU in between",
    "chip to chip, a CPU and its GPU",
    "one PCI switch",
    "several PCI switches, no CPU",
    "chip to chip to the CPU, PCI from there",
    "NVLink to another GPU, its network port",
    "through one CPU",
    "from one CPU to another",
    "over the network",
    "no path",
};

/// Ranks in their order, then ports.
std::vector<uint32_t> interesting(const System& system) {
  std::vector<uint32_t> nodes = system.rank_nodes();
  for (const uint32_t port : system.nodes_of(TUTTI_NODE_NET)) nodes.push_back(port);
  return nodes;
}

std::string cell(const System& system, uint32_t from, uint32_t to) {
  if (from == to) return "·";
  const tutti_system_path& path = system.path(from, to);
  const auto type = topology::path_name(path.type);
  return path.gbs > 0 ? fmt::format("{} {:.4g}", type, path.gbs) : std::string(type);
}

}  // namespace

std::string matrix(const Machine& machine) {
  if (!machine.system) return machine.document.source + " is an overlay: without GPUs there are no paths\n";
  const System& system = *machine.system;
  const auto nodes = interesting(system);
  std::set<uint32_t> types;
  std::vector<std::vector<std::string>> rows = {{"GB/s"}};
  for (const uint32_t to : nodes) rows[0].push_back(system.name(to));
  for (const uint32_t from : nodes) {
    auto& row = rows.emplace_back(1, system.name(from));
    for (const uint32_t to : nodes) {
      row.push_back(cell(system, from, to));
      if (from != to) types.insert(system.path(from, to).type);
    }
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (size_t column = 0; column < row.size(); ++column) {
      size_t width = 0;
      for (const auto& other : rows) width = std::max(width, other[column].size());
      line += fmt::format("{:{}}  ", row[column], width);
    }
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  text += types.empty() ? "" : "\n";
  for (const uint32_t type : types) text += fmt::format("{}  {}\n", topology::path_name(type), kMeanings[type]);
  return text;
}

}  // namespace tutti::tools
