// SPDX-License-Identifier: Apache-2.0
// The load of channels on the links of a machine, counted by hand. Tests of the search rely on it.
#include "topology/load.h"

#include <gmock/gmock.h>

#include <map>
#include <numeric>

#include "unit/required.h"
#include "unit/topology_machines.h"

namespace tutti::topology {
namespace {

using testing::HasSubstr;
using testing::Pair;
using testing::UnorderedElementsAre;
using tutti::test::required;

constexpr double kInside = 10;  // GB/s of a channel between two ranks
constexpr double kOutside = 4;  // and into and out of the machine

System built(uint32_t gpus, uint32_t nics) {
  BuildOptions options;
  options.networks = nics > 0;
  return required(System::build(test::hgx(gpus, nics), options));
}

/// One channel.
NodeGraph graph_of(uint32_t pattern, std::vector<uint32_t> order, uint32_t net_in = TUTTI_NO_NET,
                   uint32_t net_out = TUTTI_NO_NET) {
  const auto ranks = static_cast<uint32_t>(order.size());
  const std::vector<uint32_t> node_of_rank(ranks, 0);
  tutti_topology topology{};
  topology.struct_size = sizeof topology;
  topology.rank_count = ranks;
  topology.node_count = 1;
  topology.node_of_rank = node_of_rank.data();
  topology.max_channels = 1;
  const uint32_t nets[] = {net_in, net_out};
  tutti_graph graph{};
  graph.struct_size = sizeof graph;
  graph.pattern = pattern;
  graph.rank_count = ranks;
  graph.channel_count = 1;
  graph.intra_gbs = kInside;
  graph.inter_gbs = net_in == TUTTI_NO_NET ? 0 : kOutside;
  graph.orders = order.data();
  graph.nets = nets;
  return required(NodeGraph::copy(graph, topology, 0));
}

/// The links that carry something: "GPU 0 to NVSwitch", GB/s.
std::map<std::string, double> loads_of(const System& system, const NodeGraph& graph) {
  const std::vector<double> loads = required(link_loads(system, graph));
  std::map<std::string, double> named;
  for (size_t i = 0; i < loads.size(); ++i) {
    const tutti_system_link& link = system.links()[i];
    if (loads[i] != 0) named[system.name(link.from) + " to " + system.name(link.to)] += loads[i];
  }
  return named;
}

TEST(LinkLoads, ARingOfOneRankPutsNothingAnywhere) {
  EXPECT_THAT(loads_of(built(1, 0), graph_of(TUTTI_PATTERN_RING, {0})), testing::IsEmpty());
}

TEST(LinkLoads, ARingOfTwoGoesBothWays) {
  EXPECT_THAT(loads_of(built(2, 0), graph_of(TUTTI_PATTERN_RING, {0, 1})),
              UnorderedElementsAre(Pair("GPU 0 to NVSwitch", kInside), Pair("NVSwitch to GPU 1", kInside),
                                   Pair("GPU 1 to NVSwitch", kInside), Pair("NVSwitch to GPU 0", kInside)));
}

TEST(LinkLoads, AChainIsNotClosed) {
  EXPECT_THAT(loads_of(built(2, 0), graph_of(TUTTI_PATTERN_TREE, {1, 0})),
              UnorderedElementsAre(Pair("GPU 1 to NVSwitch", kInside), Pair("NVSwitch to GPU 0", kInside)));
}

TEST(LinkLoads, ARingOverTheNetworkEntersAtTheFirstAndLeavesAtTheLast) {
  const auto loads = loads_of(built(2, 2), graph_of(TUTTI_PATTERN_RING, {0, 1}, 0, 1));
  EXPECT_EQ(loads.at("GPU 0 to NVSwitch"), kInside);
  EXPECT_EQ(loads.at("NVSwitch to GPU 1"), kInside);
  EXPECT_EQ(loads.at("PCI 0000:01:00.0 to GPU 0"), kOutside) << "from port 0";
  EXPECT_EQ(loads.at("GPU 1 to PCI 0000:04:00.0"), kOutside) << "to port 1";
  EXPECT_FALSE(loads.contains("GPU 1 to NVSwitch")) << "the ring is closed by the other machines";
  EXPECT_FALSE(loads.contains("GPU 0 to PCI 0000:01:00.0"));
}

TEST(LinkLoads, PatternsOfTreesSayWhoSendsToTheNetwork) {
  const System system = built(2, 2);
  const auto sent = [&](uint32_t pattern) {
    const auto loads = loads_of(system, graph_of(pattern, {0, 1}, 0, 0));
    const auto nvswitch = loads.find("GPU 1 to NVSwitch");  // GPU 1 reaches port 0 through GPU 0
    const double all = loads.at("GPU 0 to PCI 0000:01:00.0");
    return std::pair(all, nvswitch == loads.end() ? 0 : nvswitch->second);
  };
  EXPECT_EQ(sent(TUTTI_PATTERN_TREE), std::pair(kOutside, 0.0));
  EXPECT_EQ(sent(TUTTI_PATTERN_BALANCED_TREE), std::pair(kOutside, kOutside / 2));
  EXPECT_EQ(sent(TUTTI_PATTERN_SPLIT_TREE), std::pair(kOutside, kOutside));
}

TEST(LinkLoads, RefuseWhatTheMachineLacks) {
  const System system = built(2, 2);
  const auto text = [&](const NodeGraph& graph) {
    const auto loads = link_loads(system, graph);
    EXPECT_EQ(loads.status().code(), Code::kInvalidArgument);
    return std::string(loads.status().text());
  };
  EXPECT_THAT(text(graph_of(TUTTI_PATTERN_RING, {0, 1, 2})), HasSubstr("name rank 2, which the machine lacks"));
  EXPECT_THAT(text(graph_of(TUTTI_PATTERN_RING, {0, 1}, 7, 0)), HasSubstr("network port 7"));
  EXPECT_THAT(text(graph_of(TUTTI_PATTERN_RING, {0, 1}, 0, 8)), HasSubstr("network port 8"));
}

TEST(NodeGraphs, AreReadFromWholeBytesOnly) {
  const NodeGraph graph = graph_of(TUTTI_PATTERN_RING, {1, 0}, 3, 4);
  std::vector<std::byte> bytes = graph.encode();
  const NodeGraph read = required(NodeGraph::decode(bytes));
  EXPECT_EQ(read.order(0)[0], 1u);
  EXPECT_EQ(read.net_in(0), 3u);
  EXPECT_EQ(read.net_out(0), 4u);
  for (const size_t size : {size_t{0}, size_t{8}, bytes.size() - 1, bytes.size() - 4, bytes.size() + 4}) {
    std::vector<std::byte> wrong = bytes;
    wrong.resize(size);
    EXPECT_EQ(NodeGraph::decode(wrong).status().code(), Code::kInternal) << size;
  }
  const NodeGraph moved = graph.moved_to(1, 10);
  EXPECT_EQ(moved.order(0)[0], 11u);
  EXPECT_EQ(moved.view().node, 1u);
}

TEST(Bandwidths, OfAMachine) {
  const System system = built(2, 2);
  EXPECT_NEAR(widest_path_gbs(system), 18 * 20.6, 1e-3);
  EXPECT_NEAR(network_share_gbs(system, 1), 48, 1e-3) << "two ports, two ranks";
  EXPECT_EQ(memory_gbs(system), 2500) << "chips 90";
  const System uneven = built(2, 4);
  EXPECT_NEAR(network_share_gbs(uneven, 1), 48, 1e-3) << "a rank with one channel uses one port";
  EXPECT_NEAR(network_share_gbs(uneven, 2), 96, 1e-3) << "four ports, two ranks";
  EXPECT_NEAR(network_share_gbs(built(4, 2), 64), 24, 1e-3) << "two ports, four ranks";
  EXPECT_EQ(network_latency_us(system), 0) << "no port says any";
  EXPECT_EQ(widest_path_gbs(built(1, 0)), 0) << "there is nobody to reach";
  EXPECT_EQ(network_share_gbs(built(2, 0), 1), 0);
}

}  // namespace
}  // namespace tutti::topology
