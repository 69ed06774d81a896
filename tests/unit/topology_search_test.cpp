// SPDX-License-Identifier: Apache-2.0
// Search: known machines, and properties over generated ones.
#include "tutti/sdk/search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <limits>

#include "topology/load.h"
#include "unit/topology_machines.h"
#include "unit/topology_random.h"

namespace tutti::topology {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

/// A machine like the first of `nodes`; all ranks of the communicator are on such machines.
class Machine {
 public:
  Machine(const Document& document, uint32_t nodes) : Machine(build(document, nodes), nodes) {}

  Result<sdk::Graph> search(uint32_t pattern, uint32_t max_channels = 32, uint32_t joined = 1) {
    topology_.max_channels = max_channels;
    return sdk::search(topology_, 0, pattern, {.max_channels = max_channels, .joined = joined});
  }
  const System& system() const { return system_; }
  tutti_topology& topology() { return topology_; }

  /// As the host would keep it.
  NodeGraph owned(const sdk::Graph& graph) {
    Result<NodeGraph> owned = Status(Code::kInternal, "no report");
    struct Context {
      Result<NodeGraph>& owned;
      tutti_topology& topology;
    } context{owned, topology_};
    const tutti_graph_sink sink{sizeof(tutti_graph_sink), 0, &context, [](void* raw, const tutti_graph* view) {
                                  auto& to = *static_cast<Context*>(raw);
                                  to.owned = NodeGraph::copy(*view, to.topology, 0);
                                  return static_cast<int32_t>(to.owned.status().code());
                                }};
    const Status reported = sdk::report(graph, 0, sink);
    EXPECT_TRUE(owned.ok()) << owned.status().to_string();
    EXPECT_TRUE(reported.ok());
    return owned.ok() ? *owned : NodeGraph();
  }

 private:
  Machine(System system, uint32_t nodes) : system_(std::move(system)), view_(system_.view()) {
    const auto ranks = static_cast<uint32_t>(system_.rank_nodes().size());
    for (uint32_t rank = 0; rank < ranks * nodes; ++rank) node_of_rank_.push_back(rank / ranks);
    topology_.struct_size = sizeof topology_;
    topology_.rank_count = ranks * nodes;
    topology_.node_count = nodes;
    topology_.node_of_rank = node_of_rank_.data();
    topology_.system = &view_;
  }
  static System build(const Document& document, uint32_t nodes) {
    BuildOptions options;
    options.networks = nodes > 1;
    auto system = System::build(document, options);
    if (!system.ok()) throw std::runtime_error(system.status().to_string());
    return *std::move(system);
  }

  System system_;
  tutti_system view_;
  std::vector<uint32_t> node_of_rank_;
  tutti_topology topology_{};
};

/// GB/s of a ring over ascending ranks, on links of its own: a lower bound for every search.
double ascending_ring_gbs(const System& system) {
  const std::vector<uint32_t> ranks = system.rank_nodes();
  const tutti_system view = system.view();
  std::vector<double> loads(system.links().size());
  for (size_t i = 0; i < ranks.size(); ++i) {
    const tutti_system_path& path = system.path(ranks[i], ranks[(i + 1) % ranks.size()]);
    if (path.type >= TUTTI_PATH_NET) return 0;
    sdk::detail::for_each_load(view, path, 1, [&](uint32_t link, double load) { loads[link] += load; });
  }
  double gbs = std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < loads.size(); ++i) {
    if (loads[i] > 0) gbs = std::min(gbs, system.links()[i].gbs / loads[i]);
  }
  return gbs;
}

/// The GPUs of a machine with one GPU below each switch, without their links.
std::array<Pci*, 3> gpus_of(Document& document) {
  std::array<Pci*, 3> gpus{};
  size_t count = 0;
  for (Cpu& cpu : document.cpus) {
    for (Pci& hub : cpu.pci) {
      gpus.at(count) = &hub.children[0];
      gpus.at(count++)->gpu->links.clear();
    }
  }
  return gpus;
}

void expect_fits(const System& system, const NodeGraph& graph) {
  const auto loads = link_loads(system, graph);
  ASSERT_TRUE(loads.ok()) << loads.status().to_string();
  for (size_t i = 0; i < loads->size(); ++i) {
    const tutti_system_link& link = system.links()[i];
    EXPECT_LE(loads->at(i), link.gbs * (1 + 1e-6) + 1e-6)
        << system.name(link.from) << " to " << system.name(link.to) << ", " << graph.summary();
  }
}

/// Calls visit(port) for all ports.
template <class Visit>
void for_each_port(std::vector<Pci>& devices, Visit&& visit) {
  for (Pci& device : devices) {
    for (Nic& adapter : device.nics) std::ranges::for_each(adapter.nets, visit);
    for_each_port(device.children, visit);
  }
}

/// Gives each port the limit of channels that `next` returns.
template <class Next>
Document limited(Document document, Next&& next) {
  for (Cpu& cpu : document.cpus) {
    for (Nic& adapter : cpu.nics) {
      for (Net& port : adapter.nets) port.max_connections = next();
    }
    for_each_port(cpu.pci, [&](Net& port) { port.max_connections = next(); });
  }
  return document;
}

/// By port, in order: the larger of the number of channels that enter and the number of channels that leave.
std::vector<uint32_t> channels_of_ports(const System& system, const sdk::Graph& graph) {
  std::vector<uint32_t> channels;
  for (const uint32_t node : system.nodes_of(TUTTI_NODE_NET)) {
    const uint32_t index = system.nodes()[node].index;
    const auto entries = std::ranges::count(graph.channels, index, &sdk::Channel::net_in);
    const auto exits = std::ranges::count(graph.channels, index, &sdk::Channel::net_out);
    channels.push_back(static_cast<uint32_t>(std::max(entries, exits)));
  }
  return channels;
}

void expect_limits(const System& system, const sdk::Graph& graph, uint32_t joined) {
  const std::vector<uint32_t> channels = channels_of_ports(system, graph);
  const std::vector<uint32_t> nets = system.nodes_of(TUTTI_NODE_NET);
  for (size_t i = 0; i < nets.size(); ++i) {
    const uint32_t limit = system.nodes()[nets[i]].max_channels;
    if (limit == 0) continue;
    EXPECT_LE(channels[i], std::max(1u, limit / joined)) << system.name(nets[i]);
  }
}

TEST(Search, APortTakesAsManyChannelsAsItsLimit) {
  const auto search = [](std::vector<int64_t> limits, uint32_t pattern, uint32_t joined) {
    Machine machine(limited(test::hgx(4, 2), [&, i = size_t{0}]() mutable { return limits[i++]; }), 2);
    const auto graph = machine.search(pattern, 32, joined);
    EXPECT_TRUE(graph.ok() && !graph->fallback);
    return channels_of_ports(machine.system(), *graph);
  };
  EXPECT_THAT(search({0, 0}, TUTTI_PATTERN_RING, 1), ElementsAre(2, 2));
  EXPECT_THAT(search({2, 3}, TUTTI_PATTERN_RING, 1), ElementsAre(2, 2));
  EXPECT_THAT(search({2, 1}, TUTTI_PATTERN_RING, 1), ElementsAre(1, 1)) << "no port has its channel twice";
  EXPECT_THAT(search({4, 4}, TUTTI_PATTERN_TREE, 2), ElementsAre(2, 2)) << "each becomes two trees";
  EXPECT_THAT(search({4, 3}, TUTTI_PATTERN_TREE, 2), ElementsAre(1, 1));
  EXPECT_THAT(search({1, 1}, TUTTI_PATTERN_TREE, 2), ElementsAre(1, 1)) << "a port takes at least one";
}

TEST(Search, EightGpusOnASwitchInPciOrderThenReplayed) {
  Machine machine(test::hgx(8, 0), 1);
  const auto graph = machine.search(TUTTI_PATTERN_RING);
  ASSERT_TRUE(graph.ok()) << graph.status().to_string();
  EXPECT_FALSE(graph->fallback);
  EXPECT_TRUE(graph->same_channels);
  EXPECT_EQ(graph->intra_type, TUTTI_PATH_NVL);
  EXPECT_GE(graph->total_intra_gbs(), 18 * 20.6 * 0.999);
  for (const sdk::Channel& channel : graph->channels) EXPECT_THAT(channel.order, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  expect_fits(machine.system(), machine.owned(*graph));
}

TEST(Search, HybridCubeMeshHasSixRings) {
  Machine machine(test::dgx1v(), 1);
  const auto graph = machine.search(TUTTI_PATTERN_RING);
  ASSERT_TRUE(graph.ok()) << graph.status().to_string();
  EXPECT_FALSE(graph->fallback);
  EXPECT_EQ(graph->intra_type, TUTTI_PATH_NVL);
  EXPECT_GE(graph->total_intra_gbs(), 6 * 20 * 0.999) << "every NVLink of every GPU, both ways";
  expect_fits(machine.system(), machine.owned(*graph));
}

TEST(Search, ARailPerGpuEntersAndLeavesByTheSameNic) {
  Machine machine(test::hgx(8, 8), 4);
  for (const uint32_t pattern : {TUTTI_PATTERN_RING, TUTTI_PATTERN_BALANCED_TREE, TUTTI_PATTERN_TREE}) {
    const auto graph = machine.search(pattern);
    ASSERT_TRUE(graph.ok()) << graph.status().to_string();
    EXPECT_FALSE(graph->cross_nic);
    EXPECT_GE(graph->total_inter_gbs(), 330) << "8 × 400 Gb/s, bounded by NVLink";
    std::vector<bool> used(8);
    for (const sdk::Channel& channel : graph->channels) {
      EXPECT_EQ(channel.net_in, channel.net_out);
      used[channel.net_in] = true;
    }
    EXPECT_THAT(used, Each(true));
    expect_fits(machine.system(), machine.owned(*graph));
  }
}

TEST(Search, AChainMayBeginAtAnyGpu) {
  // NVLinks join GPU 0 with GPUs 1 and 2, so it stands in the middle.
  Document document = test::pcie(1, 3);
  Pci* gpus[3];
  for (size_t i = 0; i < 3; ++i) gpus[i] = &document.cpus[i < 2 ? 0 : 1].pci[i < 2 ? i : 0].children[0];
  for (size_t i = 1; i < 3; ++i) {
    gpus[0]->gpu->links.push_back(test::nvlink(gpus[i]->bus, 2));
    gpus[i]->gpu->links.push_back(test::nvlink(gpus[0]->bus, 2));
  }
  Machine machine(document, 1);
  const auto graph = machine.search(TUTTI_PATTERN_TREE);
  ASSERT_TRUE(graph.ok()) << graph.status().to_string();
  EXPECT_EQ(graph->intra_type, TUTTI_PATH_NVL);
  for (const sdk::Channel& channel : graph->channels) EXPECT_EQ(channel.order[1], 0u);
}

TEST(Search, OneGpuPerMachine) {
  Machine machine(test::hgx(1, 2), 3);
  const auto graph = machine.search(TUTTI_PATTERN_RING);
  ASSERT_TRUE(graph.ok()) << graph.status().to_string();
  EXPECT_GT(graph->total_inter_gbs(), 0);
  EXPECT_THAT(graph->channels[0].order, ElementsAre(0));
  Machine alone(test::hgx(1, 0), 1);
  EXPECT_TRUE(alone.search(TUTTI_PATTERN_RING).ok());
}

TEST(Search, NothingKnownIsRanksAscending) {
  const std::vector<uint32_t> node_of_rank = {0, 1, 0, 1};
  tutti_topology topology{};
  topology.rank_count = 4;
  topology.node_count = 2;
  topology.node_of_rank = node_of_rank.data();
  const auto graph = sdk::search(topology, 1, TUTTI_PATTERN_RING);
  ASSERT_TRUE(graph.ok());
  EXPECT_THAT(graph->channels[0].order, ElementsAre(1, 3));
}

TEST(Search, RefusesASystemWithOtherRanks) {
  Machine machine(test::hgx(4, 0), 1);
  machine.topology().rank_count = 3;
  const auto graph = machine.search(TUTTI_PATTERN_RING);
  ASSERT_FALSE(graph.ok());
  EXPECT_THAT(graph.status().text(), HasSubstr("4 ranks, but not the 3"));
}

/// A second of the processor: the test may have to wait for it.
TEST(Search, SixteenGpusWithinASecond) {
  for (const uint32_t nodes : {1u, 2u}) {
    Machine machine(test::hgx(16, 16), nodes);
    const std::clock_t start = std::clock();
    ASSERT_TRUE(machine.search(TUTTI_PATTERN_RING).ok());
    const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
    RecordProperty("seconds", std::to_string(seconds));
#if defined(NDEBUG) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    EXPECT_LT(seconds, 1.0);
#endif
  }
}

/// TUTTI_TEST_SEED repeats a run.
TEST(Search, PropertiesOfGeneratedMachines) {
  const char* given = std::getenv("TUTTI_TEST_SEED");
  const uint64_t seed = given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  double slowest = 0;
  const char* rounds = std::getenv("TUTTI_TEST_ROUNDS");
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  constexpr int kRounds = 100;
#else
  constexpr int kRounds = 300;
#endif
  for (int round = 0; round < (rounds != nullptr ? std::atoi(rounds) : kRounds); ++round) {
    SCOPED_TRACE(round);
    const Document document = limited(test::random_machine(random), [&] { return static_cast<int64_t>(random() % 4); });
    const auto joined = 1 + static_cast<uint32_t>(random() % 2);
    const auto nodes = 1 + static_cast<uint32_t>(random() % 2);
    Machine machine(document, nodes);
    const bool has_ports = !machine.system().nodes_of(TUTTI_NODE_NET).empty();
    if (nodes > 1 && !has_ports) continue;
    const uint32_t pattern = static_cast<uint32_t>(random() % TUTTI_PATTERN_COUNT);
    const auto max_channels = 1 + static_cast<uint32_t>(random() % 32);
    const auto start = std::chrono::steady_clock::now();
    const auto graph = machine.search(pattern, max_channels, joined);
    slowest = std::max(slowest, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    ASSERT_TRUE(graph.ok()) << graph.status().to_string();
    ASSERT_LE(graph->channels.size(), max_channels);
    const NodeGraph owned = machine.owned(*graph);  // checks that every channel names every rank once
    expect_fits(machine.system(), owned);
    expect_limits(machine.system(), *graph, joined);
    if (nodes == 1 && pattern == TUTTI_PATTERN_RING && machine.system().rank_nodes().size() > 1) {
      constexpr double kChannelGbs = 40;  // bandwidth of one channel on every chip; the limit is one channel
      EXPECT_GE(graph->total_intra_gbs(), std::min(ascending_ring_gbs(machine.system()), kChannelGbs) * 0.999);
    }
    if (round % 4 == 0) {
      const auto again = machine.search(pattern, max_channels, joined);
      ASSERT_EQ(machine.owned(*again).encode(), owned.encode()) << "the same input gives the same output";
    }
    if (testing::Test::HasFailure()) break;
  }
  std::cout << "slowest search: " << slowest << " s\n";
}

std::vector<std::filesystem::path> files_in(const std::filesystem::path& folder, std::string_view ending) {
  std::vector<std::filesystem::path> files;
  if (!std::filesystem::exists(folder)) return files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().string().ends_with(ending)) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

TEST(Search, EveryMachineOfTheProject) {
  const auto files = files_in(std::filesystem::path(TUTTI_SOURCE_DIR) / "configs/topologies", ".yaml");
  ASSERT_GE(files.size(), 7u);
  for (const auto& file : files) {
    SCOPED_TRACE(file);
    const auto document = Document::load(file.string());
    ASSERT_TRUE(document.ok()) << document.status().to_string();
    for (const uint32_t nodes : {1u, 4u}) {
      Machine machine(*document, nodes);
      if (nodes > 1 && machine.system().nodes_of(TUTTI_NODE_NET).empty()) continue;
      for (uint32_t pattern = 0; pattern < TUTTI_PATTERN_COUNT; ++pattern) {
        const auto graph = machine.search(pattern);
        ASSERT_TRUE(graph.ok()) << graph.status().to_string();
        EXPECT_FALSE(graph->fallback) << topology::pattern_name(pattern) << ", " << nodes;
        expect_fits(machine.system(), machine.owned(*graph));
      }
    }
  }
}

TEST(Search, MachinesOfTheField) {
  const std::filesystem::path folder = std::filesystem::path(TUTTI_SOURCE_DIR) / "../shared/topologies";
  const auto files = files_in(folder, "-topo.xml");
  if (files.empty()) GTEST_SKIP() << "the folder of real machines is not here";
  for (const auto& file : files) {
    SCOPED_TRACE(file);
    auto document = Document::load(file.string());
    ASSERT_TRUE(document.ok()) << document.status().to_string();
    if (document->is_overlay()) {
      std::vector<BusId> gpus;
      if (file.string().find("g5") != std::string::npos)
        gpus = {*BusId::parse("0000:00:16.0"), *BusId::parse("0000:00:1b.0")};
      ASSERT_TRUE(complete_overlay(*document, gpus, 100'000, 80).ok());
    }
    Machine machine(*document, 1);
    const auto graph = machine.search(TUTTI_PATTERN_RING);
    ASSERT_TRUE(graph.ok()) << graph.status().to_string();
    expect_fits(machine.system(), machine.owned(*graph));
    if (file.filename() == "h200x8-vm-topo.xml") {
      EXPECT_GE(graph->channels.size(), 12u);
      EXPECT_GE(graph->total_intra_gbs(), 12 * 30.0) << "what NCCL recorded on this machine";
    }
  }
}

TEST(Search, AStreamThatDoesNotFitTakesNothing) {
  const std::array<tutti_system_node, 2> nodes{};
  tutti_system_link link{};
  link.to = 1;
  link.gbs = 10;
  const uint32_t hop = 0;
  tutti_system_path path{};
  path.hop_count = 1;
  path.gbs = 10;
  tutti_system system{};
  system.node_count = 2;
  system.link_count = system.hop_count = 1;
  system.nodes = nodes.data();
  system.links = &link;
  system.hops = &hop;
  sdk::detail::Ledger ledger(system);
  EXPECT_FALSE(ledger.take(path, 20));
  EXPECT_EQ(ledger.left(path), 10);
  EXPECT_TRUE(ledger.take(path, 10));
  EXPECT_EQ(ledger.left(path), 0);
}

/// NVLinks join GPU 0 with GPU 2, and GPU 2 with GPU 1. The order of the bus fails, the other one needs the whole port.
TEST(Search, AnOrderThatFailsGivesTheNetworkBack) {
  Document document = test::hgx(3, 1);
  const std::array<Pci*, 3> gpus = gpus_of(document);
  for (const auto& [a, b] : {std::pair{0u, 2u}, {2u, 1u}}) {
    gpus[a]->gpu->links.push_back(test::nvlink(gpus[b]->bus, 18));
    gpus[b]->gpu->links.push_back(test::nvlink(gpus[a]->bus, 18));
  }
  Machine machine(document, 2);
  const sdk::detail::Machine devices(*machine.topology().system, true, 1);
  ASSERT_EQ(devices.net_count(), 1u);
  const sdk::detail::Conditions conditions{
      TUTTI_PATTERN_TREE, devices.out_of(0, 0).gbs, TUTTI_PATH_NVL, TUTTI_PATH_SYS, true, false};
  const auto routes = sdk::detail::Finder(devices, conditions, 1, 1000, 1000).run();
  ASSERT_EQ(routes.size(), 1u);
  EXPECT_THAT(routes[0].devices, ElementsAre(0, 2, 1));
}

TEST(Search, TwoDevicesOfABalancedTreeShareTheNetwork) {
  const auto share = [](uint32_t place, uint32_t devices) {
    return sdk::detail::Finder::tree_share(TUTTI_PATTERN_BALANCED_TREE, place, devices);
  };
  EXPECT_EQ(share(0, 4), 0.5);
  EXPECT_EQ(share(1, 4), 0.5);
  EXPECT_EQ(share(2, 4), 0);
  EXPECT_EQ(share(0, 1), 1);
}

}  // namespace
}  // namespace tutti::topology
