// SPDX-License-Identifier: Apache-2.0
#include "communicator/setup/detours.h"

#include <algorithm>
#include <optional>

#include "topology/document.h"

namespace tutti::communicator {
namespace {

/// The first GPU after the begin of a path.
std::optional<uint32_t> second_gpu(const topology::System& system, const tutti_system_path& path) {
  for (const uint32_t hop : system.hops(path)) {
    const uint32_t node = system.links()[hop].to;
    if (system.nodes()[node].type == TUTTI_NODE_GPU) return node;
  }
  return std::nullopt;
}

}  // namespace

std::vector<Detour> detours_of(const topology::System& system) {
  std::vector<Detour> detours;
  for (const uint32_t gpu : system.nodes_of(TUTTI_NODE_GPU)) {
    const uint32_t rank = system.nodes()[gpu].rank;
    if (rank == TUTTI_NO_RANK) continue;
    for (const uint32_t port : system.nodes_of(TUTTI_NODE_NET)) {
      const tutti_system_path& path = system.path(gpu, port);
      if (path.type != TUTTI_PATH_PXN) continue;
      const auto second = second_gpu(system, path);
      if (!second) continue;
      Detour detour{rank, system.nodes()[port].index, {}};
      const std::string address = topology::BusId{system.nodes()[*second].id}.text();
      std::copy_n(address.begin(), std::min(address.size(), detour.gpu.size() - 1), detour.gpu.begin());
      detours.push_back(detour);
    }
  }
  return detours;
}

}  // namespace tutti::communicator
