// SPDX-License-Identifier: Apache-2.0
// Where ranks are placed in the machine that they run on.
#include "communicator/setup/machine.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace tutti::communicator {
namespace {

/// Two ranks with the GPUs at these addresses, in the machine of a file, on any machine.
Result<topology::System> machine_with(const std::string& first, const std::string& second) {
  MachineOptions options;
  options.file = TUTTI_SOURCE_DIR "/configs/topologies/hgx-h200.yaml";
  for (const std::string& address : {first, second}) {
    TUTTI_ASSIGN(const topology::BusId bus, topology::BusId::parse(address));
    options.ranks.push_back({static_cast<uint32_t>(options.ranks.size()), true, bus, 0});
  }
  return describe_machine(options);
}

size_t ranks_on_gpus(const topology::System& system) {
  const auto on_gpu = [&](uint32_t node) { return system.nodes()[node].type == TUTTI_NODE_GPU; };
  const std::vector<uint32_t> nodes = system.rank_nodes();
  return static_cast<size_t>(std::count_if(nodes.begin(), nodes.end(), on_gpu));
}

TEST(Machine, RanksAreOnTheirGpus) {
  const auto system = machine_with("0000:18:00.0", "0000:3d:00.0");
  ASSERT_TRUE(system.ok()) << system.status().to_string();
  EXPECT_EQ(ranks_on_gpus(*system), 2u);
  const std::vector<uint32_t> nodes = system->rank_nodes();
  EXPECT_GT(system->path(nodes[0], nodes[1]).gbs, 300) << "NVLink";
}

TEST(Machine, RanksWhoseGpusAreNotFoundAreOnTheirNumaNodes) {
  const auto system = machine_with("0000:18:00.0", "0000:19:00.0");
  ASSERT_TRUE(system.ok()) << system.status().to_string();
  EXPECT_EQ(ranks_on_gpus(*system), 0u);
  EXPECT_EQ(system->rank_nodes().size(), 2u);
}

}  // namespace
}  // namespace tutti::communicator
