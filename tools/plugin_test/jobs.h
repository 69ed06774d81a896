// SPDX-License-Identifier: Apache-2.0
// The topologies on which the kit tests algorithms and tuners.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "topology/system.h"
#include "tutti/plugin/topology.h"

namespace tutti::tools::plugin_test {

/// Ranks on machines, and a number of channels.
struct Job {
  std::vector<uint32_t> node_of_rank;
  uint32_t node_count = 1;
  uint32_t channels = 1;
  bool on_gpus = false;
  /// The system graphs of the machines; empty: unknown.
  std::vector<std::shared_ptr<const topology::System>> systems = {};

  uint32_t rank_count() const { return static_cast<uint32_t>(node_of_rank.size()); }
  /// Borrows from this. Links of 350 GB/s between GPUs, of 20 GB/s between processes, of 50 GB/s between machines.
  tutti_topology topology() const;
  /// "5 ranks on 2 machines, 3 channels".
  std::string name() const;
};

/// 1 to 9, 16 and 33 ranks on one machine, two, three, or a machine each, in blocks or in turns. Then one to three
/// machines of four GPUs, with their system graphs.
std::vector<Job> all_jobs();
/// A few of them, for tests that take long.
std::vector<Job> few_jobs();

}  // namespace tutti::tools::plugin_test
