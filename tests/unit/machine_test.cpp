// SPDX-License-Identifier: Apache-2.0
// Where ranks are placed in the machine that they run on.
#include "communicator/setup/machine.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

namespace tutti::communicator {
namespace {

/// Two ranks with the GPUs at these addresses, in the machine of a file, on any machine.
Result<topology::System> machine_with(const std::string& first, const std::string& second) {
  MachineOptions options;
  options.file = TUTTI_SOURCE_DIR "/configs/topologies/hgx-h200.yaml";
  for (const std::string& address : {first, second}) {
    TUTTI_ASSIGN(const topology::BusId bus, topology::BusId::parse(address));
    options.ranks.push_back({static_cast<uint32_t>(options.ranks.size()), true, bus, 0, true});
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

/// Ranks of one machine of a job, by their numbers in the job.
std::vector<topology::RankPlace> places(const std::vector<uint32_t>& ranks) {
  std::vector<topology::RankPlace> places;
  for (const uint32_t rank : ranks) places.push_back({rank, false, {}, 0, false});
  return places;
}

TEST(Machine, RanksOfSeveralHostsArePlacedOnGpus) {
  // The hosts are alike, so ranks 0 and 2 have equal addresses.
  const std::vector<std::string> addresses = {"0000:18:00.0", "0000:3d:00.0", "0000:18:00.0", "0000:3d:00.0"};
  std::vector<topology::RankPlace> ranks = places({2, 3});
  place_on_gpus(ranks, addresses, true);
  EXPECT_TRUE(ranks[0].on_gpu && ranks[1].on_gpu);
  EXPECT_EQ(ranks[0].gpu.text(), addresses[2]);
  EXPECT_EQ(ranks[1].gpu.text(), addresses[3]);
}

TEST(Machine, RanksThatShareAGpuArePlacedOnIt) {
  const std::vector<std::string> addresses = {"0000:18:00.0", "0000:3d:00.0", "0000:3d:00.0"};
  MachineOptions options;
  options.file = TUTTI_SOURCE_DIR "/configs/topologies/hgx-h200.yaml";
  options.ranks = places({0, 1, 2});
  place_on_gpus(options.ranks, addresses, true);
  const auto system = describe_machine(options);
  ASSERT_TRUE(system.ok()) << system.status().to_string();
  EXPECT_EQ(ranks_on_gpus(*system), 3u);
}

TEST(Machine, RanksOfAnUnknownGpuKeepTheirNumaNodes) {
  std::vector<topology::RankPlace> ranks = places({0, 1});
  place_on_gpus(ranks, std::vector<std::string>{"0000:18:00.0", "?"}, true);
  EXPECT_FALSE(ranks[0].on_gpu || ranks[1].on_gpu);
}

TEST(Machine, RanksWhoseGpusDoNotReachEachOtherKeepTheirNumaNodesAndTheFiguresOfTheirGpus) {
  const std::vector<std::string> addresses = {"0000:18:00.0", "0000:3d:00.0"};
  MachineOptions options;
  options.file = TUTTI_SOURCE_DIR "/configs/topologies/hgx-h200.yaml";
  options.ranks = places({0, 1});
  place_on_gpus(options.ranks, addresses, false);
  const auto system = describe_machine(options);
  ASSERT_TRUE(system.ok()) << system.status().to_string();
  EXPECT_EQ(ranks_on_gpus(*system), 0u);
  for (const uint32_t node : system->rank_nodes()) EXPECT_EQ(system->gpu(node).memory_gbs, 3000) << "an H200";
}

TEST(Machine, RanksOfGpusThatNothingDescribesHaveTheDefaultFigures) {
  MachineOptions options;
  options.ranks = places({0, 1});
  place_on_gpus(options.ranks, {}, true);
  const auto system = describe_machine(options);
  ASSERT_TRUE(system.ok()) << system.status().to_string();
  for (const uint32_t node : system->rank_nodes()) EXPECT_EQ(system->gpu(node).memory_gbs, 800);
}

TEST(Machine, TheNumaNodeOfADeviceIsThatOfTheKernel) {
  const std::filesystem::path root = testing::TempDir() + "tutti-sys-" + std::to_string(getpid());
  const auto write = [&](const std::string& file, const std::string& text) {
    std::filesystem::create_directories((root / file).parent_path());
    std::ofstream(root / file) << text << '\n';
  };
  write("devices/0000:18:00.0/numa_node", "1");
  write("devices/0000:1d:00.0/numa_node", "1");
  write("devices/0000:19:00.0/numa_node", "-1");
  write("devices/0000:1a:00.0/numa_node", "2");
  write("nodes/node1/cpumap", "0000ff00");
  const auto found = [&](const std::string& address) {
    return numa_node_of(address, root / "devices", root / "nodes");
  };
  ASSERT_TRUE(found("0000:18:00.0"));
  EXPECT_EQ(found("0000:18:00.0")->numa, 1);
  EXPECT_EQ(found("0000:18:00.0")->affinity, "0000ff00");
  EXPECT_TRUE(found("0000:1D:00.0")) << "CUDA writes large digits";
  EXPECT_FALSE(found("no address"));
  EXPECT_FALSE(found("0000:19:00.0")) << "the firmware does not say it";
  EXPECT_FALSE(found("0000:1a:00.0")) << "a node without processors";
  EXPECT_FALSE(found("0000:1b:00.0")) << "no such device";
  std::filesystem::remove_all(root);
}

TEST(Machine, HostRanksStandForTheGpusOfAFileInPciOrder) {
  MachineOptions options;
  options.file = TUTTI_SOURCE_DIR "/configs/topologies/hgx-h200.yaml";
  options.ranks = places({8, 9, 10});
  options.stand_in = true;
  const auto system = describe_machine(options);
  ASSERT_TRUE(system.ok()) << system.status().to_string();
  EXPECT_EQ(ranks_on_gpus(*system), 3u);
  const std::vector<uint32_t> nodes = system->rank_nodes();
  for (size_t i = 0; i < nodes.size(); ++i) {
    EXPECT_EQ(system->nodes()[nodes[i]].rank, 8 + i);
    if (i == 0) continue;
    EXPECT_LT(system->nodes()[nodes[i - 1]].id, system->nodes()[nodes[i]].id);
  }
}

}  // namespace
}  // namespace tutti::communicator
