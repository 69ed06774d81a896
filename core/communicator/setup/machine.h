// SPDX-License-Identifier: Apache-2.0
// The machine of a rank.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "topology/document.h"
#include "topology/system.h"
#include "transport/net.h"

namespace tutti::communicator {

/// The NUMA node on which the calling thread runs, with its processors; none if the kernel does not report it.
std::optional<topology::Cpu> current_numa_node();

struct MachineOptions {
  std::string file;                         ///< topology.file: merged over the discovered machine; empty: none
  const transport::Net* network = nullptr;  ///< whose devices are the ports; null: ranks of other machines do not exist
  std::vector<topology::RankPlace> ranks;   ///< ranks of this machine
  double host_gbs = 8;                      ///< between two ranks through memory
};

/// Discovers this machine, merges the file over it, and places the ranks. If GPUs of ranks are not found there, all
/// ranks are placed by their NUMA nodes, and the log says so at info.
Result<topology::System> describe_machine(const MachineOptions& options);

}  // namespace tutti::communicator
