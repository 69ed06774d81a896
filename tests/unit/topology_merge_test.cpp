// SPDX-License-Identifier: Apache-2.0
// Merges of two documents of one machine, and places that become devices.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string_view>
#include <tuple>
#include <vector>

#include "topology/document.h"
#include "topology/system.h"
#include "unit/topology_machines.h"
#include "unit/topology_random.h"

namespace tutti::topology {
namespace {

using testing::HasSubstr;

Document read(std::string_view cpus, std::string_view source = "file") {
  auto document = Document::read_xml(fmt::format("<system version=\"1\">{}</system>", cpus), source);
  EXPECT_TRUE(document.ok()) << document.status().to_string();
  return document.ok() ? *std::move(document) : Document();
}

Document merged(const Document& base, const Document& over) {
  auto result = merge(base, over);
  EXPECT_TRUE(result.ok()) << result.status().to_string();
  return result.ok() ? *std::move(result) : Document();
}

/// All devices below one CPU, as a virtual machine shows them.
Document flat_machine() {
  Document machine;
  machine.source = "this machine";
  machine.cpus.push_back(test::intel(0));
  for (int i = 0; i < 4; ++i) {
    Pci gpu = test::gpu(test::bus(0x10 + static_cast<uint32_t>(i)), i, 80);
    gpu.gpu->links.push_back(test::nvswitch_links(12));
    machine.cpus[0].pci.push_back(gpu);
  }
  machine.cpus[0].pci.push_back(test::nic(test::bus(0x30), 0, 100000));
  machine.cpus[0].nics.push_back({{test::port(1, 10000)}, {}});
  return machine;
}

TEST(Merge, AnOverlayMovesWhatWasDiscovered) {
  const Document over = read(
      R"(<cpu numaid="0" affinity="ff"><pci busid="ffff:ff:01.0" class="0x060400" link_speed="8 GT/s" link_width="16">
      <pci busid="0000:10:00.0"/><pci busid="0000:11:00.0" link_width="8"/><pci busid="0000:30:00.0"/></pci></cpu>
    <cpu numaid="1"><pci busid="0000:12:00.0"/><pci busid="0000:77:00.0"/></cpu>)");
  EXPECT_TRUE(over.is_overlay());
  const auto merged = merge(flat_machine(), over);
  ASSERT_TRUE(merged.ok()) << merged.status().to_string();
  ASSERT_EQ(merged->cpus.size(), 2u);
  const Cpu& first = merged->cpus[0];
  EXPECT_EQ(first.affinity, "ff") << "the file wins";
  EXPECT_EQ(first.vendor, "GenuineIntel") << "what it leaves out stays";
  ASSERT_EQ(first.pci.size(), 2u) << "the switch, and the GPU that the file does not place";
  EXPECT_TRUE(first.pci[0].children[0].gpu);
  EXPECT_EQ(first.pci[0].children[0].gpu->links[0].count, 12u);
  EXPECT_EQ(first.pci[0].children[1].link_width, 8u);
  EXPECT_EQ(first.pci[0].children[2].nics.size(), 1u);
  EXPECT_EQ(first.pci[1].bus, test::bus(0x13));
  EXPECT_EQ(first.nics.size(), 1u);
  EXPECT_TRUE(merged->cpus[1].pci[0].gpu);
  EXPECT_FALSE(merged->cpus[1].pci[1].gpu) << "a place where nothing was found stays a place";
  EXPECT_FALSE(merged->is_overlay());
}

TEST(Merge, WithItselfAndWithNothingChangesNothing) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 50; ++round) {
    const Document machine = test::random_machine(random);
    EXPECT_TRUE(merged(machine, machine) == machine);
    EXPECT_TRUE(merged(machine, Document()) == machine);
    EXPECT_TRUE(merged(Document(), machine) == machine);
  }
}

TEST(Merge, WhatTheFileLeavesOutStaysBelowItsDevice) {
  const Document base =
      read(R"(<cpu numaid="0"><pci busid="1:0.0"><pci busid="2:0.0"><pci busid="3:0.0"><gpu/></pci></pci>
                                <pci busid="4:0.0"><gpu/></pci></pci></cpu>)");
  // The file has the first two the other way round: both move, their children with them.
  const Document machine = merged(base, read(R"(<cpu numaid="0"><pci busid="2:0.0"><pci busid="1:0.0"/></pci></cpu>)"));
  EXPECT_TRUE(machine ==
              read(R"(<cpu numaid="0"><pci busid="2:0.0"><pci busid="1:0.0"><pci busid="4:0.0"><gpu/></pci></pci>
                                 <pci busid="3:0.0"><gpu/></pci></pci></cpu>)"))
      << write_yaml(machine);
}

TEST(Merge, PortsAreKnownByTheirNames) {
  const Document base = read(R"(<cpu numaid="0"><pci busid="1:0.0"><nic>
      <net name="mlx5_0" dev="0" speed="400000" port="1" guid="0x5" gdr="1"/>
      <net name="mlx5_0" dev="1" speed="200000" port="2" guid="0x5"/></nic></pci>
    <pci busid="2:0.0"><nic><net name="eth0" dev="2" speed="10000"/></nic></pci></cpu>)");
  const Document over =
      read(R"(<cpu numaid="0"><pci busid="1:0.0"><nic><net name="mlx5_0" speed="100000" port="2" rail="3"/></nic></pci>
    <nic><net name="eth0" latency="5"/></nic></cpu>)");
  const Document machine = merged(base, over);
  EXPECT_TRUE(machine == read(R"(<cpu numaid="0"><pci busid="1:0.0"><nic>
      <net name="mlx5_0" dev="1" speed="100000" port="2" guid="0x5" rail="3"/>
      <net name="mlx5_0" dev="0" speed="400000" port="1" guid="0x5" gdr="1"/></nic></pci>
    <pci busid="2:0.0"/><nic><net name="eth0" dev="2" speed="10000" latency="5"/></nic></cpu>)"))
      << write_yaml(machine);
}

TEST(Merge, APortThatWasVirtualIsPlacedAndCompleted) {
  const Document base = read(R"(<cpu numaid="0"><pci busid="1:0.0" class="0x020000"/>
    <nic><net name="eth0" dev="4" speed="10000" port="1" latency="3" guid="0x5" maxconn="8" gdr="1"/></nic></cpu>)");
  const Document over =
      read(R"(<cpu numaid="0"><pci busid="1:0.0"><nic><net name="eth0" rail="2"/></nic></pci></cpu>)");
  EXPECT_TRUE(merged(base, over) == read(R"(<cpu numaid="0"><pci busid="1:0.0" class="0x020000"><nic>
      <net name="eth0" dev="4" speed="10000" port="1" latency="3" guid="0x5" maxconn="8" gdr="1" rail="2"/></nic></pci>
    </cpu>)"))
      << write_yaml(merged(base, over));
}

TEST(Merge, OnePortTakesOnePort) {
  const Document base = read(R"(<cpu numaid="0"><pci busid="1:0.0"><nic>
      <net name="mlx5_0" dev="0" speed="1000" port="0"/><net name="mlx5_0" dev="1" speed="2000" port="1"/>
      <net name="mlx5_0" dev="2" speed="3000" port="2"/></nic></pci></cpu>)");
  const Document second =
      read(R"(<cpu numaid="0"><pci busid="1:0.0"><nic><net name="mlx5_0" port="2" rail="7"/></nic></pci></cpu>)");
  EXPECT_TRUE(merged(base, second) == read(R"(<cpu numaid="0"><pci busid="1:0.0"><nic>
      <net name="mlx5_0" dev="2" speed="3000" port="2" rail="7"/><net name="mlx5_0" dev="0" speed="1000" port="0"/>
      <net name="mlx5_0" dev="1" speed="2000" port="1"/></nic></pci></cpu>)"))
      << "the number says which\n"
      << write_yaml(merged(base, second));
  const Document unnumbered =
      read(R"(<cpu numaid="0"><pci busid="1:0.0"><nic><net name="mlx5_0" rail="7"/></nic></pci></cpu>)");
  EXPECT_TRUE(merged(base, unnumbered) == read(R"(<cpu numaid="0"><pci busid="1:0.0"><nic>
      <net name="mlx5_0" dev="0" speed="1000" rail="7"/><net name="mlx5_0" dev="1" speed="2000" port="1"/>
      <net name="mlx5_0" dev="2" speed="3000" port="2"/></nic></pci></cpu>)"))
      << write_yaml(merged(base, unnumbered));
}

TEST(Merge, APortWithoutANameIsKnownByItsPlace) {
  const Document base = read(R"(<cpu numaid="0"><pci busid="1:0.0"><nic><net speed="1000" latency="3"/></nic></pci>
    <pci busid="2:0.0"><nic><net name="mlx5_0" dev="1" speed="2000" port="1" guid="0x5"/></nic></pci>
    <nic><net dev="2" speed="3000"/></nic></cpu>)");
  const Document over = read(R"(<cpu numaid="0"><pci busid="1:0.0"><nic><net name="a" dev="0"/></nic></pci>
    <pci busid="2:0.0"><nic><net speed="400"/></nic></pci><pci busid="3:0.0"><nic><net dev="4"/></nic></pci></cpu>)");
  EXPECT_TRUE(
      merged(base, over) ==
      read(R"(<cpu numaid="0"><pci busid="1:0.0"><nic><net name="a" dev="0" speed="1000" latency="3"/></nic></pci>
    <pci busid="2:0.0"><nic><net name="mlx5_0" dev="1" speed="400" port="1" guid="0x5"/></nic></pci>
    <pci busid="3:0.0"><nic><net dev="4"/></nic></pci><nic><net dev="2" speed="3000"/></nic></cpu>)"))
      << write_yaml(merged(base, over));
}

TEST(Merge, APortStaysInItsAdapter) {
  const Document base = read(R"(<cpu numaid="0">
    <pci busid="1:0.0"><nic><net name="a0"/><net name="a1"/></nic><nic><net name="b0"/><net name="b1"/></nic></pci>
    <nic><net name="c0"/><net name="c1"/></nic><nic><net name="d0"/><net name="d1"/></nic></cpu>)");
  const Document over = read(R"(<cpu numaid="0"><pci busid="1:0.0"><nic><net name="a1"/></nic></pci>
    <pci busid="2:0.0"><nic><net name="b1"/></nic></pci><nic><net name="d0"/></nic></cpu>)");
  EXPECT_TRUE(merged(base, over) == read(R"(<cpu numaid="0">
    <pci busid="1:0.0"><nic><net name="a1"/><net name="a0"/></nic><nic><net name="b0"/></nic></pci>
    <pci busid="2:0.0"><nic><net name="b1"/></nic></pci>
    <nic><net name="d0"/><net name="d1"/></nic><nic><net name="c0"/><net name="c1"/></nic></cpu>)"))
      << write_yaml(merged(base, over));
}

TEST(Merge, CpusOfUnknownNodesStayTwo) {
  const Document base = read(R"(<cpu numaid="-1"><pci busid="1:0.0"><gpu/></pci></cpu>
    <cpu numaid="-1" affinity="f0"><pci busid="2:0.0"><gpu/></pci></cpu>)");
  EXPECT_TRUE(merged(base, base) == base) << write_yaml(merged(base, base));
  const Document over = read(R"(<cpu numaid="0"/>)");
  EXPECT_TRUE(merged(base, over) == read(R"(<cpu numaid="0"/><cpu numaid="-1"><pci busid="1:0.0"><gpu/></pci></cpu>
    <cpu numaid="-1" affinity="f0"><pci busid="2:0.0"><gpu/></pci></cpu>)"))
      << write_yaml(merged(base, over));
}

/// Makes the file of an author who knows only a part of a machine: it leaves out devices and ports with all entries
/// below them, and some values of the remaining entries.
class Forgetting {
 public:
  explicit Forgetting(std::mt19937_64& random) : random_(random) {}

  Document operator()(Document machine) {
    std::erase_if(machine.cpus, [&](const Cpu&) { return chance(); });
    for (Cpu& cpu : machine.cpus) {
      if (chance()) cpu.vendor.clear();
      forget(cpu.nics);
      forget(cpu.pci);
    }
    return machine;
  }

 private:
  bool chance() { return random_() % 4 == 0; }
  void forget(std::vector<Pci>& devices) {
    std::erase_if(devices, [&](const Pci&) { return chance(); });
    for (Pci& device : devices) {
      if (chance()) device.link_width = 0;
      if (chance()) device.gpu.reset();
      forget(device.nics);
      forget(device.children);
    }
  }
  void forget(std::vector<Nic>& adapters) {
    for (Nic& adapter : adapters) {
      std::erase_if(adapter.nets, [&](const Net&) { return chance(); });
      for (Net& port : adapter.nets) {
        if (chance()) port.mbps = 0;
        if (chance()) port.guid = 0;
        if (chance()) port.dev = -1;
      }
    }
    std::erase_if(adapters, [](const Nic& adapter) { return adapter.nets.empty(); });
  }

  std::mt19937_64& random_;
};

void sort(std::vector<Nic>& adapters) {
  for (Nic& adapter : adapters) std::ranges::sort(adapter.nets, {}, &Net::name);
  std::ranges::sort(adapters, {}, [](const Nic& adapter) { return adapter.nets.front().name; });
}
void sort(std::vector<Pci>& devices) {
  std::ranges::sort(devices, {}, &Pci::bus);
  for (Pci& device : devices) {
    if (device.gpu)
      std::ranges::sort(device.gpu->links, {}, [](const PeerLink& link) {
        return std::tuple(link.kind, link.target, link.target_class, link.count);
      });
    sort(device.nics);
    sort(device.children);
  }
}
Document sorted(Document document) {
  std::ranges::sort(document.cpus, {}, &Cpu::numa);
  for (Cpu& cpu : document.cpus) {
    sort(cpu.nics);
    sort(cpu.pci);
  }
  return document;
}

TEST(Merge, AFileOfAPartOfTheMachineMovesNothing) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  for (int round = 0; round < 500 && !testing::Test::HasFailure(); ++round) {
    const Document machine = sorted(test::random_machine(random));
    const Document over = test::shuffled(Forgetting(random)(machine), random);
    EXPECT_TRUE(sorted(merged(machine, over)) == machine) << write_yaml(machine) << write_yaml(over);
  }
}

TEST(Merge, OnlyCpusAreOne) {
  const Document base = read(R"(<cpu numaid="0" affinity="ff"><pci busid="1:0.0"><gpu/></pci></cpu>)");
  const Document over = read(R"(<cpu numaid="-1"><pci busid="1:0.0"/></cpu>)");
  EXPECT_TRUE(merged(base, over) == base) << "a virtual machine's file may not know the node";
  const Document two = read(R"(<cpu numaid="-1"/><cpu numaid="1"/>)");
  EXPECT_EQ(merged(base, two).cpus.size(), 3u) << "which of them is not known";
}

TEST(Merge, RefusesADeviceOfTwoKinds) {
  const Document gpu = read(R"(<cpu numaid="0"><pci busid="1:0.0"><gpu/></pci></cpu>)", "gpu");
  const Document nic = read(R"(<cpu numaid="0"><pci busid="1:0.0"><nic><net name="a"/></nic></pci></cpu>)", "nic");
  EXPECT_THAT(merge(gpu, nic).status().text(),
              HasSubstr("nic:1: 0000:01:00.0 is a network adapter here and a GPU in gpu"));
  EXPECT_THAT(merge(nic, gpu).status().text(),
              HasSubstr("gpu:1: 0000:01:00.0 is a GPU here and a network adapter in nic"));
}

TEST(Overlay, PlacesBecomeDevicesByClassOrByName) {
  Document by_class = read(R"(<cpu numaid="0"><pci busid="ffff:ff:01.0" class="0x060400">
    <pci busid="2:0.0" class="0x030200"/><pci busid="1:0.0" class="0x030200"/><pci busid="3:0.0" class="0x020000"/>
    </pci></cpu>)");
  const auto count = complete_overlay(by_class, {}, 100000, 80);
  ASSERT_TRUE(count.ok());
  EXPECT_EQ(*count, 2u);
  const auto& below = by_class.cpus[0].pci[0].children;
  EXPECT_EQ(below[0].gpu->dev, 1) << "numbered in PCI order";
  EXPECT_EQ(below[2].nics[0].nets[0].mbps, 100000);
  Document by_name = read(R"(<cpu numaid="0"><pci busid="0:16.0"/><pci busid="0:17.0"/></cpu>)");
  EXPECT_EQ(*complete_overlay(by_name, {test::bus(0, 0x16)}, 1, 86), 1u);
  const auto wrong = complete_overlay(by_name, {test::bus(9)}, 1, 86);
  ASSERT_FALSE(wrong.ok());
  EXPECT_THAT(wrong.status().text(), HasSubstr("has no device 0000:09:00.0"));
}

TEST(Overlay, GivesNumbersThatAreFree) {
  Document document =
      read(R"(<cpu numaid="0"><pci busid="1:0.0" class="0x030200"/><pci busid="2:0.0"><gpu dev="0"/></pci>
    <pci busid="3:0.0" class="0x020000"/><nic><net name="eth0" dev="0"/></nic></cpu>)");
  EXPECT_EQ(*complete_overlay(document, {}, 1000, 80), 2u);
  EXPECT_EQ(document.cpus[0].pci[0].gpu->dev, 1);
  EXPECT_EQ(document.cpus[0].pci[2].nics[0].nets[0].dev, 1);
  EXPECT_TRUE(System::build(document).ok());
}

}  // namespace
}  // namespace tutti::topology
