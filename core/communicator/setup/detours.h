// SPDX-License-Identifier: Apache-2.0
// The paths between GPUs and network ports that lead through a second GPU (PXN).
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "topology/system.h"

namespace tutti::communicator {

/// A rank reaches a port over NVLink and a second GPU, which is nearer to the port. Plain data.
struct Detour {
  uint32_t rank = 0;
  uint32_t port = 0;           ///< device of the network plugin
  std::array<char, 16> gpu{};  ///< PCI address of the second GPU; ends with a zero
};

/// The paths of type PXN of a machine's ranks, in the order of its nodes.
std::vector<Detour> detours_of(const topology::System& system);

}  // namespace tutti::communicator
