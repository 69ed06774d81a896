// SPDX-License-Identifier: Apache-2.0
// Ports that take a limited number of channels: algorithms get as many channels as all ports take.
#include "communicator/setup/port_limits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "unit/plan_support.h"
#include "unit/topology_machines.h"

namespace tutti::communicator {
namespace {

using testing::HasSubstr;

LimitedPort port(uint32_t device, uint32_t channels, bool is_default = false) {
  LimitedPort made{device, channels, is_default ? 1u : 0u, {}};
  const std::string name = "rail" + std::to_string(device);
  std::copy(name.begin(), name.end(), made.name.begin());
  return made;
}

/// Two machines of two ranks. The search of each found two channels, by the ports 0 and 1.
class PortLimitsTest : public testing::Test {
 protected:
  PortLimitsTest() {
    topology_.min_channels = topology_.max_channels = 4;
    find({0, 1});
  }

  /// Both machines find a channel by each of these ports.
  void find(const std::vector<uint32_t>& ports) {
    graphs_.clear();
    for (uint32_t node = 0; node < 2; ++node) {
      std::vector<uint32_t> orders, nets;
      for (const uint32_t port : ports) {
        orders.insert(orders.end(), {2 * node, 2 * node + 1});
        nets.insert(nets.end(), {port, port});
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

  Result<Connected> connect(const std::string& name, const PortLimits& limits) {
    return connect_within({name, &algorithm(name).ops(), algorithm(name).self()}, topology_, graphs_, limits);
  }

  uint32_t channels(const std::string& name, const PortLimits& limits) {
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

TEST_F(PortLimitsTest, ChannelsRepeatUntilAPortIsFull) {
  EXPECT_EQ(channels("ring", {}), 4u);
  EXPECT_EQ(channels("ring", {{}, {port(0, 2)}}), 4u);
  EXPECT_EQ(reduced_, "");
  EXPECT_EQ(channels("ring", {{}, {port(0, 1)}}), 2u) << "channel 2 enters by port 0, as channel 0";
  EXPECT_EQ(reduced_, "2 channels instead of 4: port rail0 of machine 1 takes 1 (maxconn)");
  EXPECT_EQ(channels("ring", {{port(0, 2), port(1, 1)}, {port(1, 7)}}), 3u);
  EXPECT_EQ(reduced_, "3 channels instead of 4: port rail1 of machine 0 takes 1 (maxconn)");
}

TEST_F(PortLimitsTest, TwoTreesCountTwice) {
  EXPECT_EQ(channels("tree", {{port(0, 2)}, {port(0, 2)}}), 4u);
  EXPECT_EQ(channels("tree", {{port(0, 1)}, {}}), 1u);
}

TEST_F(PortLimitsTest, ChannelsThatNameNoPortUseTheDefault) {
  find(std::vector<uint32_t>(4, TUTTI_NO_NET));
  EXPECT_EQ(channels("direct", {{port(1, 1)}, {}}), 4u);
  EXPECT_EQ(channels("direct", {{port(1, 3, true)}, {}}), 3u);
  EXPECT_EQ(default_port_channels({{port(0, 1), port(1, 3, true)}, {}}), 3u);
  EXPECT_EQ(default_port_channels({{port(0, 1)}, {}}), UINT32_MAX);
}

TEST_F(PortLimitsTest, AnAlgorithmThatMakesMoreThanItMayIsNamed) {
  tutti_algorithm_ops ops = ring_.ops();
  ops.channel_count = [](void*) -> uint32_t { return 4; };
  const auto made = connect_within({"ring", &ops, ring_.self()}, topology_, graphs_, {{port(0, 1)}, {}});
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.status().code(), Code::kInternal);
  EXPECT_THAT(made.status().text(), HasSubstr("algorithm 'ring' makes 4 channels, although the topology allows 2"));
}

TEST(PortLimits, ComeFromTheTopologyAndArrive) {
  topology::Document document = topology::test::pcie(1, 2);
  topology::Net* ports[2];
  for (size_t i = 0; i < 2; ++i) ports[i] = &document.cpus[i].pci[0].children[1].nics[0].nets[0];
  ports[1]->max_connections = 5;
  ports[1]->mbps = 2 * ports[0]->mbps;
  const auto system = topology::System::build(document, {});
  ASSERT_TRUE(system.ok()) << system.status().to_string();
  const auto fast = static_cast<uint32_t>(ports[1]->dev);
  EXPECT_EQ(fastest_port(*system), fast);
  const std::vector<LimitedPort> limited = limited_ports(*system, fast);
  const auto arrived = decode_ports(std::as_bytes(std::span(limited)));
  ASSERT_TRUE(arrived.ok());
  ASSERT_EQ(arrived->size(), 1u);
  EXPECT_EQ(arrived->front().device, fast);
  EXPECT_EQ(arrived->front().channels, 5u);
  EXPECT_EQ(arrived->front().is_default, 1u);
  EXPECT_EQ(std::string(arrived->front().name.data()), ports[1]->name);
  EXPECT_EQ(limited_ports(*system, fast + 1).front().is_default, 0u);
  EXPECT_FALSE(decode_ports(std::as_bytes(std::span(limited)).first(3)).ok());
}

}  // namespace
}  // namespace tutti::communicator
