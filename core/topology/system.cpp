// SPDX-License-Identifier: Apache-2.0
#include "topology/system.h"

#include <fmt/format.h>

#include <algorithm>

#include "topology/affinity.h"
#include "topology/builder.h"
#include "topology/paths.h"

namespace tutti::topology {

Result<std::vector<RankPlace>> places_of(const Document& document, uint32_t count, bool may_share) {
  const std::vector<BusId> gpus = document.gpus();
  if (!may_share && !gpus.empty() && count > gpus.size()) {
    return Status(Code::kInvalidArgument,
                  fmt::format("{} ranks do not fit: {} has {} GPU{}; ask for fewer ranks", count, document.source,
                              gpus.size(), gpus.size() == 1 ? "" : "s"));
  }
  if (count == 0) count = static_cast<uint32_t>(gpus.empty() ? document.cpus.size() : gpus.size());
  std::vector<RankPlace> ranks(count);
  for (uint32_t rank = 0; rank < count; ++rank) {
    ranks[rank].rank = rank;
    ranks[rank].on_gpu = !gpus.empty();
    if (!gpus.empty()) {
      ranks[rank].gpu = gpus[rank % gpus.size()];
    } else if (!document.cpus.empty()) {
      ranks[rank].numa = document.cpus[rank % document.cpus.size()].numa;
    }
  }
  return ranks;
}

namespace {

/// 0 if a NUMA node states neither the number nor a mask of its processors, or a mask that Linux does not write.
double processors_of(const Document& document) {
  double sum = 0;
  for (const Cpu& cpu : document.cpus) {
    if (cpu.processors > 0) {
      sum += cpu.processors;
      continue;
    }
    const auto processors = parse_cpu_mask(cpu.affinity);
    if (!processors.ok() || processors->empty()) return 0;
    sum += static_cast<double>(processors->size());
  }
  return sum;
}

}  // namespace

Result<System> System::build(const Document& document, const BuildOptions& options) {
  TUTTI_ASSIGN(Machine machine, build_machine(document, options));
  Paths paths;
  // Paths are computed again after each removal, so that no path uses a removed node. Paths between ranks do not
  // change, because all their nodes are kept.
  for (bool trimmed = true; trimmed;) {
    paths = find_paths(machine);
    add_detours(machine, paths, options.second_gpus);
    const std::vector<uint32_t> used = nodes_in_use(machine, paths, options.networks);
    trimmed = used.size() < machine.nodes.size();
    if (trimmed) machine = machine.select(used);
  }
  System system;
  system.nodes_ = std::move(machine.nodes);
  system.names_ = std::move(machine.names);
  system.rails_ = std::move(machine.rails);
  system.gpus_ = std::move(machine.gpus);
  system.links_ = std::move(machine.links);
  system.paths_ = std::move(paths.table);
  system.hops_ = std::move(paths.hops);
  system.processors_ = processors_of(document);
  return system;
}

std::vector<uint32_t> System::rank_nodes() const {
  std::vector<uint32_t> found;
  for (uint32_t node = 0; node < nodes_.size(); ++node) {
    if (nodes_[node].rank != TUTTI_NO_RANK) found.push_back(node);
  }
  std::ranges::sort(found, {}, [this](uint32_t node) { return nodes_[node].rank; });
  return found;
}

std::vector<uint32_t> System::nodes_of(uint32_t type) const {
  std::vector<uint32_t> found;
  for (uint32_t node = 0; node < nodes_.size(); ++node) {
    if (nodes_[node].type == type) found.push_back(node);
  }
  return found;
}

tutti_system System::view() const {
  tutti_system view{};
  view.struct_size = sizeof view;
  view.node_count = static_cast<uint32_t>(nodes_.size());
  view.link_count = static_cast<uint32_t>(links_.size());
  view.hop_count = static_cast<uint32_t>(hops_.size());
  view.nodes = nodes_.data();
  view.links = links_.data();
  view.paths = paths_.data();
  view.hops = hops_.data();
  return view;
}

}  // namespace tutti::topology
