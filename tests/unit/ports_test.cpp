// SPDX-License-Identifier: Apache-2.0
// Ports that take a limited number of channels: algorithms get as many channels as all ports take.
#include "communicator/setup/ports.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

#include "backend/plans.h"
#include "unit/plan_support.h"
#include "unit/required.h"
#include "unit/topology_machines.h"

namespace tutti::communicator {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

Port port(uint32_t device, uint32_t channels, bool is_default = false) {
  Port made{device, channels, -1, is_default ? 1u : 0u, {}};
  const std::string name = "rail" + std::to_string(device);
  std::copy(name.begin(), name.end(), made.name.begin());
  return made;
}

/// Two machines of two ranks. The search of each found two channels, by the ports 0 and 1.
class PortsTest : public testing::Test {
 protected:
  PortsTest() {
    topology_.min_channels = topology_.max_channels = 4;
    find({0, 1});
  }

  /// Both machines find a channel that enters by each of these ports, and leaves by the port of the same place in
  /// `exits`. The ports of the second machine have numbers that are larger by `step`.
  void find(const std::vector<uint32_t>& ports) { find(ports, ports); }
  void find(const std::vector<uint32_t>& ports, const std::vector<uint32_t>& exits, uint32_t step = 0) {
    graphs_.clear();
    for (uint32_t node = 0; node < 2; ++node) {
      std::vector<uint32_t> orders, nets;
      for (size_t channel = 0; channel < ports.size(); ++channel) {
        orders.insert(orders.end(), {2 * node, 2 * node + 1});
        nets.insert(nets.end(), {ports[channel] + node * step, exits[channel] + node * step});
      }
      tutti_graph graph{};
      graph.rank_count = 2;
      graph.channel_count = static_cast<uint32_t>(ports.size());
      graph.orders = orders.data();
      graph.nets = nets.data();
      auto copy = topology::NodeGraph::copy(graph, topology_, node);
      if (!copy.ok()) throw std::runtime_error(copy.status().to_string());
      graphs_.push_back(*std::move(copy));
    }
  }

  Result<Connected> connect(const std::string& name, const Ports& limits) {
    return connect_within({name, &algorithm(name).ops(), algorithm(name).self()}, topology_, graphs_, limits);
  }

  uint32_t channels(const std::string& name, const Ports& limits) {
    const auto made = connect(name, limits);
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    if (!made.ok()) return 0;
    reduced_ = made->reduced;
    return algorithm(name).ops().channel_count(made->instance.get());
  }

  test::Algorithm& algorithm(const std::string& name) {
    return name == "ring" ? ring_ : name == "tree" ? tree_ : direct_;
  }

  const test::NodeOfRank node_of_rank_ = test::split(4, 2);
  tutti_topology topology_ = test::topology_of(node_of_rank_);
  std::vector<topology::NodeGraph> graphs_;
  test::Algorithm ring_{"ring"}, tree_{"tree"}, direct_{"direct"};
  std::string reduced_;
};

TEST_F(PortsTest, ChannelsRepeatUntilAPortIsFull) {
  EXPECT_EQ(channels("ring", {}), 4u);
  EXPECT_EQ(channels("ring", {{}, {port(0, 2)}}), 4u);
  EXPECT_EQ(reduced_, "");
  EXPECT_EQ(channels("ring", {{}, {port(0, 1)}}), 2u) << "channel 2 enters by port 0, as channel 0";
  EXPECT_EQ(reduced_, "2 channels instead of 4: port rail0 of machine 1 takes 1 (maxconn)");
  EXPECT_EQ(channels("ring", {{port(0, 2), port(1, 1)}, {port(1, 7)}}), 3u);
  EXPECT_EQ(reduced_, "3 channels instead of 4: port rail1 of machine 0 takes 1 (maxconn)");
}

TEST_F(PortsTest, EntriesAndExitsCountSeparately) {
  find({0, 0}, {1, 2});
  EXPECT_EQ(channels("ring", {{port(0, 2)}, {}}), 2u) << "of the first machine, all enter by port 0";
  EXPECT_EQ(channels("ring", {{}, {port(2, 1)}}), 3u) << "each second leaves by port 2";
  find({0, 1}, {1, 0});
  EXPECT_EQ(channels("ring", {{port(0, 2)}, {}}), 4u);
}

TEST_F(PortsTest, TwoTreesCountTwice) {
  EXPECT_EQ(channels("tree", {{port(0, 2)}, {port(0, 2)}}), 4u);
  EXPECT_EQ(channels("tree", {{port(0, 1)}, {}}), 1u);
}

TEST_F(PortsTest, ChannelsThatNameNoPortUseTheDefault) {
  find(std::vector<uint32_t>(4, TUTTI_NO_NET));
  EXPECT_EQ(channels("direct", {{port(1, 1)}, {}}), 4u);
  EXPECT_EQ(channels("direct", {{port(1, 3, true)}, {}}), 3u);
  EXPECT_EQ(default_port_channels({{port(0, 1), port(1, 3, true)}, {}}), 3u);
  EXPECT_EQ(default_port_channels({{port(0, 1)}, {}}), UINT32_MAX);
}

TEST_F(PortsTest, AnAlgorithmThatMakesMoreThanItMayIsNamed) {
  tutti_algorithm_ops ops = ring_.ops();
  ops.channel_count = [](void*) -> uint32_t { return 4; };
  const auto made = connect_within({"ring", &ops, ring_.self()}, topology_, graphs_, {{port(0, 1)}, {}});
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.status().code(), Code::kInternal);
  EXPECT_THAT(made.status().text(), HasSubstr("algorithm 'ring' makes 4 channels, although the topology allows 2"));
}

/// Channel 0 leaves the first machine by port 1 and enters the second machine by port 2. Its way back is by the ports 3
/// and 0.
TEST_F(PortsTest, OfAChannelAreOfBothEnds) {
  find({0, 1}, {1, 0}, 2);
  auto connected = connect("ring", {});
  ASSERT_TRUE(connected.ok()) << connected.status().to_string();
  tuner::Choices choices;
  choices.algorithms.emplace_back(program::AlgorithmPlugin{"ring", &algorithm("ring").ops(), algorithm("ring").self()},
                                  std::move(connected->instance));
  const auto ports = [&](uint32_t rank, uint32_t channel, uint32_t peer) {
    return test::required(backend::Plans({rank, 4, false}, choices).ports(0, channel, peer));
  };
  EXPECT_EQ(ports(1, 0, 2), (transport::Ports{1, 2, 0}));
  EXPECT_EQ(ports(2, 0, 1), (transport::Ports{3, 0, 2}));
  EXPECT_EQ(ports(1, 1, 2), (transport::Ports{0, 3, 1}));
  EXPECT_EQ(ports(2, 1, 1), (transport::Ports{2, 1, 3}));
}

TEST(Ports, ComeFromTheTopologyAndArrive) {
  topology::Document document = topology::test::pcie(1, 2);
  topology::Net* ports[2];
  for (size_t i = 0; i < 2; ++i) ports[i] = &document.cpus[i].pci[0].children[1].nics[0].nets[0];
  ports[1]->max_connections = 5;
  ports[1]->rail = 7;
  ports[1]->mbps = 2 * ports[0]->mbps;
  const auto system = topology::System::build(document, {});
  ASSERT_TRUE(system.ok()) << system.status().to_string();
  const auto fast = static_cast<uint32_t>(ports[1]->dev);
  EXPECT_THAT(fastest_ports(*system), testing::ElementsAre(fast));
  const std::vector<Port> limited = ports_of(*system, {fast});
  MachineFacts facts;
  facts.figures.network_gbs = 12;
  facts.ports = limited;
  facts.detours = {{3, 1, {"0000:18:00.0"}}};
  facts.own_ports = {4, 2};
  const auto arrived = decode_facts(encode(facts));
  ASSERT_TRUE(arrived.ok());
  EXPECT_EQ(arrived->figures.network_gbs, 12);
  EXPECT_THAT(arrived->own_ports, ElementsAre(4, 2));
  ASSERT_EQ(arrived->detours.size(), 1u);
  EXPECT_EQ(arrived->detours.front().rank, 3u);
  EXPECT_EQ(arrived->detours.front().port, 1u);
  EXPECT_STREQ(arrived->detours.front().gpu.data(), "0000:18:00.0");
  ASSERT_EQ(arrived->ports.size(), 2u);
  const Port& first = arrived->ports.at(0);
  const Port& second = arrived->ports.at(1);
  EXPECT_EQ(second.device, fast);
  EXPECT_EQ(first.channels, 0u);
  EXPECT_EQ(second.channels, 5u);
  EXPECT_EQ(first.rail, -1);
  EXPECT_EQ(second.rail, 7);
  EXPECT_EQ(first.is_default, 0u);
  EXPECT_EQ(second.is_default, 1u);
  EXPECT_EQ(std::string(second.name.data()), ports[1]->name);
  const std::vector<std::byte> bytes = encode(facts);
  EXPECT_FALSE(decode_facts(std::span(bytes).first(3)).ok());
  EXPECT_FALSE(decode_facts(std::span(bytes).first(sizeof(Figures) + 3)).ok());
}

/// A machine with two switches, each with two GPUs and a port. The ranks are on GPUs in PCI order.
class PortsOfRanks : public testing::Test {
 protected:
  PortsOfRanks() {
    for (size_t i = 0; i < 2; ++i) nets_[i] = &document_.cpus[i].pci[0].children.back().nics[0].nets[0];
  }
  std::vector<uint32_t> by_position(const std::vector<int>& gpus) {
    return of_ranks_on(gpus, {static_cast<uint32_t>(nets_[0]->dev), static_cast<uint32_t>(nets_[1]->dev)});
  }
  std::vector<uint32_t> of_ranks_on(const std::vector<int>& gpus, const std::vector<uint32_t>& defaults) const {
    const std::vector<topology::RankPlace> all = test::required(topology::places_of(document_, 0));
    topology::BuildOptions options;
    for (const int gpu : gpus) {
      options.ranks.push_back(all.at(static_cast<size_t>(gpu)));
      options.ranks.back().rank = static_cast<uint32_t>(options.ranks.size() - 1);
    }
    return own_ports(test::required(topology::System::build(document_, options)), defaults);
  }
  topology::Document document_ = topology::test::pcie(2, 2);
  topology::Net* nets_[2] = {};
};

TEST_F(PortsOfRanks, AreCloseAndShared) {
  const auto a = static_cast<uint32_t>(nets_[0]->dev);
  const auto b = static_cast<uint32_t>(nets_[1]->dev);
  EXPECT_THAT(by_position({0, 1, 2, 3}), ElementsAre(a, a, b, b));
  EXPECT_THAT(by_position({2, 0, 3, 1}), ElementsAre(b, a, b, a));
  EXPECT_THAT(by_position({3}), ElementsAre(b));
  EXPECT_THAT(by_position({0, 1}), ElementsAre(a, b)) << "no port is idle";
}

TEST_F(PortsOfRanks, OfEqualDistanceFollowTheRails) {
  document_ = topology::test::pcie(2, 1);
  topology::Pci& nic = document_.cpus[0].pci[0].children.back();
  nic.nics[0].nets.push_back(nic.nics[0].nets[0]);
  auto& nets = nic.nics[0].nets;
  nets[1].dev = nets[0].dev + 1;
  nets[1].name += "b";
  nets[1].port = 1;
  const auto a = static_cast<uint32_t>(nets[0].dev);
  const auto of_all = [&] { return of_ranks_on({0, 1}, {a, a + 1}); };
  EXPECT_THAT(of_all(), ElementsAre(a, a + 1));
  nets[0].rail = 1;
  EXPECT_THAT(of_all(), ElementsAre(a, a + 1)) << "a rail is unknown";
  nets[1].rail = 0;
  EXPECT_THAT(of_all(), ElementsAre(a + 1, a));
}

/// Ports 0, 1, ... of a machine, on these rails.
std::vector<Port> on_rails(const std::vector<int32_t>& rails) {
  std::vector<Port> ports;
  for (const int32_t rail : rails) ports.push_back({static_cast<uint32_t>(ports.size()), 0, rail, 0, {}});
  return ports;
}

/// A machine of two ranks, whose order tells the channels apart. Channel c enters by ports[c], and leaves by it.
topology::NodeGraph machine(uint32_t node, const std::vector<uint32_t>& ports, bool crosses = false) {
  const test::NodeOfRank node_of_rank = test::split(6, 3);
  std::vector<uint32_t> orders, nets;
  for (const uint32_t port : ports) {
    const uint32_t turned = orders.size() / 2 % 2;
    orders.insert(orders.end(), {2 * node + turned, 2 * node + 1 - turned});
    nets.insert(nets.end(), {port, port});
  }
  tutti_graph graph{};
  graph.rank_count = 2;
  graph.channel_count = static_cast<uint32_t>(ports.size());
  graph.cross_nic = crosses ? 1 : 0;
  graph.orders = orders.data();
  graph.nets = nets.data();
  return *topology::NodeGraph::copy(graph, test::topology_of(node_of_rank), node);
}

std::vector<uint32_t> entries(const topology::NodeGraph& graph) {
  std::vector<uint32_t> ports;
  for (uint32_t channel = 0; channel < graph.channel_count(); ++channel) ports.push_back(graph.net_in(channel));
  return ports;
}

TEST(Rails, AChannelStaysOnItsRail) {
  std::vector<topology::NodeGraph> graphs = {machine(0, {0, 1, 0}), machine(1, {0, 1}), machine(2, {0, 0, 1, 1})};
  align_rails(graphs, {on_rails({4, 5}), on_rails({5, 4}), on_rails({4, 5})});
  EXPECT_THAT(entries(graphs[1]), ElementsAre(0, 1)) << "it has the fewest channels, on the rails 5 and 4";
  EXPECT_THAT(entries(graphs[0]), ElementsAre(1, 0, 0));
  EXPECT_THAT(entries(graphs[2]), ElementsAre(1, 0, 0, 1));
  EXPECT_THAT(graphs[0].order(0), ElementsAre(1, 0)) << "the ranks move with their channel";
  EXPECT_THAT(graphs[0].order(1), ElementsAre(0, 1));
  EXPECT_EQ(graphs[2].net_out(0), 1u);
}

TEST(Rails, OwnPortsAreOnTheRailsOfTheFirstMachine) {
  const auto defaults_on = [](const std::vector<int32_t>& rails) {
    std::vector<Port> ports = on_rails(rails);
    for (Port& port : ports) port.is_default = 1;
    return ports;
  };
  const auto agreed = [](const OwnPorts& own_ports, const Ports& ports) {
    return agreed_own_ports(own_ports, ports, {"a", "b"});
  };
  const Ports crossed = {defaults_on({4, 5}), defaults_on({5, 4})};
  EXPECT_THAT(agreed({{0, 1, 0}, {0, 1, 0}}, crossed), ElementsAre(ElementsAre(0, 1, 0), ElementsAre(1, 0, 1)));
  const Ports pairs = {defaults_on({4, 4, 5, 5}), defaults_on({5, 5, 4, 4})};
  EXPECT_THAT(agreed({{0, 1, 2, 3}, {0, 1, 2, 3}}, pairs),
              ElementsAre(ElementsAre(0, 1, 2, 3), ElementsAre(2, 3, 0, 1)))
      << "ranks share the ports of a rail";
  EXPECT_THAT(agreed({{2, 2, 0, 0, 2, 2, 0, 0}, {0, 2, 3, 3, 2, 1, 0, 1}}, pairs)[1],
              ElementsAre(0, 0, 3, 3, 1, 1, 2, 2))
      << "each port has two ranks";
  const auto have_none = ElementsAre(testing::IsEmpty(), testing::IsEmpty());
  EXPECT_THAT(agreed({{0, 1}, {0}}, crossed), have_none) << "unequal numbers of ranks";
  const Ports lacking = {defaults_on({4, 5}), defaults_on({4, 6})};
  EXPECT_THAT(agreed({{0, 1}, {0, 1}}, lacking), have_none) << "no rail 5";
  const Ports unknown = {defaults_on({-1, -1}), defaults_on({-1, -1})};
  const auto as_given = ElementsAre(ElementsAre(0, 1), ElementsAre(0, 1));
  EXPECT_THAT(agreed({{0, 1}, {0, 1}}, unknown), as_given);
  EXPECT_THAT(agreed({{0, 1}, {1, 0}}, unknown), have_none) << "the rails may differ";
  EXPECT_THAT(agreed({{}, {}}, unknown), have_none);
  EXPECT_THAT(agreed({{1}, {1}}, unknown), ElementsAre(ElementsAre(1), ElementsAre(1)));
  const Ports half = {defaults_on({4, -1}), defaults_on({4, -1})};
  EXPECT_THAT(agreed({{0, 1}, {0, 1}}, half), as_given);
  const Ports first_alone = {defaults_on({4, 5}), defaults_on({-1, -1})};
  const Ports second_alone = {defaults_on({-1, -1}), defaults_on({4, 5})};
  EXPECT_THAT(agreed({{0, 1}, {0, 1}}, first_alone), have_none);
  EXPECT_THAT(agreed({{0, 1}, {0, 1}}, second_alone), have_none);
}

TEST(Rails, ContainersOfAHostHaveNoOwnPorts) {
  const Ports ports(2);
  EXPECT_THAT(agreed_own_ports({{1}, {1}}, ports, {"a", "b"}), ElementsAre(ElementsAre(1), ElementsAre(1)));
  EXPECT_THAT(agreed_own_ports({{1}, {1}}, ports, {"a", "a"}), ElementsAre(testing::IsEmpty(), testing::IsEmpty()));
}

TEST(Ports, AHostWithFewerFastPortsIsNamed) {
  const auto named = [](const std::string& name, bool is_default) {
    Port made = port(0, 0, is_default);
    std::ranges::copy(name, made.name.begin());
    return made;
  };
  const std::vector<Port> two = {named("rail0", true), named("slow", false), named("rail1", true)};
  const std::vector<Port> one = {named("rail0", true), named("rail1", false)};
  const std::vector<uint32_t> nodes = {0, 0, 1, 2};
  const std::vector<std::string> names = {"a", "a", "b", "c"};
  EXPECT_EQ(uneven_ports_text({two, two, two}, nodes, names), "");
  EXPECT_EQ(uneven_ports_text({two, one, two}, nodes, names),
            "host 'a' has 2 of its fastest network ports (rail0, rail1), and host 'b' has 1 (rail0)");
  EXPECT_EQ(uneven_ports_text({one, one, two}, nodes, names),
            "host 'c' has 2 of its fastest network ports (rail0, rail1), and host 'a' has 1 (rail0)");
}

TEST(Rails, ChannelsWithoutAMatchFillTheGaps) {
  std::vector<topology::NodeGraph> graphs = {machine(0, {0, 1}), machine(1, {0, 1})};
  align_rails(graphs, {on_rails({1, 2}), on_rails({3, 1})});
  EXPECT_THAT(entries(graphs[1]), ElementsAre(1, 0));
}

TEST(Rails, AnOrderIsKeptWhereRailsAreUnknownOrCrossed) {
  const auto kept = [](const std::vector<int32_t>& first, const std::vector<int32_t>& second, bool crosses) {
    std::vector<topology::NodeGraph> graphs = {machine(0, {0, 1}), machine(1, {0, 1}, crosses)};
    align_rails(graphs, {on_rails(first), on_rails(second)});
    return graphs[1].encode() == machine(1, {0, 1}, crosses).encode();
  };
  EXPECT_FALSE(kept({4, 5}, {5, 4}, false));
  EXPECT_TRUE(kept({4, 5}, {5, -1}, false));
  EXPECT_TRUE(kept({4, -1}, {5, 4}, false));
  EXPECT_TRUE(kept({4, 5}, {5, 4}, true));
}

}  // namespace
}  // namespace tutti::communicator
