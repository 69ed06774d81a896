// SPDX-License-Identifier: Apache-2.0
#include "topology/machine.h"

#include <algorithm>
#include <tuple>

namespace tutti::topology {
namespace {

constexpr uint32_t kGone = UINT32_MAX;

std::tuple<uint32_t, uint32_t, uint32_t> key(const tutti_system_link& link) {
  return {link.from, link.to, link.type};
}

/// Sorts the links and pairs them: between two nodes there is at most one wire of a type.
void index_links(Machine& machine) {
  std::vector<tutti_system_link>& links = machine.links;
  std::ranges::sort(links, {}, key);
  machine.first_link.assign(machine.nodes.size() + 1, 0);
  for (tutti_system_link& link : links) {
    const auto reverse = std::ranges::lower_bound(links, std::tuple(link.to, link.from, link.type), {}, key);
    link.reverse = static_cast<uint32_t>(reverse - links.begin());
    ++machine.first_link[link.from + 1];
  }
  for (size_t node = 1; node < machine.first_link.size(); ++node) {
    machine.first_link[node] += machine.first_link[node - 1];
  }
}

}  // namespace

std::vector<uint32_t> Machine::nodes_of(uint32_t type) const {
  std::vector<uint32_t> found;
  for (uint32_t node = 0; node < size(); ++node) {
    if (nodes[node].type == type) found.push_back(node);
  }
  return found;
}

Machine Machine::select(std::span<const uint32_t> order) const {
  Machine selected;
  std::vector<uint32_t> moved(nodes.size(), kGone);
  for (const uint32_t node : order) {
    moved[node] = selected.size();
    selected.nodes.push_back(nodes[node]);
    selected.names.push_back(names[node]);
    selected.rails.push_back(rails[node]);
    selected.gpus.push_back(gpus[node]);
  }
  for (tutti_system_link link : links) {
    link.from = moved[link.from];
    link.to = moved[link.to];
    if (link.from != kGone && link.to != kGone) selected.links.push_back(link);
  }
  index_links(selected);
  return selected;
}

}  // namespace tutti::topology
