// SPDX-License-Identifier: Apache-2.0
// The table of hardware figures: the built-in figures, files that replace some of them, and errors in files.
#include "topology/hardware.h"

#include <gmock/gmock.h>

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "log/log.h"
#include "topology/system.h"
#include "unit/required.h"
#include "unit/topology_machines.h"

namespace tutti::topology {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using tutti::test::required;

Pci gpu(int sm, uint32_t vendor = 0, uint32_t device = 0) {
  Pci pci;
  pci.vendor = vendor;
  pci.device = device;
  pci.gpu.emplace().sm = sm;
  return pci;
}

Pci amd_gpu(const std::string& gcn) {
  Pci pci;
  pci.gpu.emplace().gcn = gcn;
  return pci;
}

Cpu cpu(const std::string& arch, const std::string& vendor, int family = 0, int model = 0) {
  Cpu made;
  made.arch = arch;
  made.vendor = vendor;
  made.family = family;
  made.model = model;
  return made;
}

Hardware with(const std::string& text) {
  return required(Hardware::read("tutti_hardware: 1\n" + text, "h.yaml"));
}

TEST(BuiltInHardware, HasEachFigureOfAnUnknownChip) {
  const Hardware& table = Hardware::built_in();
  const GpuFigures any = table.gpu(gpu(0));
  for (const double figure :
       {any.memory_gbs, any.link_gbs, any.c2c_gbs, any.latency_us, any.gap_us, any.staged_gbs, any.staged_latency_us,
        any.channel_gbs, table.memory().gbs, table.memory().latency_us, table.memory().gap_us, table.memory().switch_us,
        table.network("").gbs, table.network("").latency_us, table.network("").gap_us, table.network("").signal_us}) {
    EXPECT_GT(figure, 0);
  }
  EXPECT_THAT(table.differences(), IsEmpty());
}

TEST(BuiltInHardware, KnowsChipsAndModels) {
  const Hardware& table = Hardware::built_in();
  EXPECT_EQ(table.gpu(gpu(90)).link_gbs, 20.6);
  EXPECT_EQ(table.gpu(gpu(90)).memory_gbs, 2500);
  EXPECT_EQ(table.gpu(gpu(90, 0x10de, 0x2335)).memory_gbs, 3000);
  EXPECT_EQ(table.gpu(gpu(90, 0x10de, 0x2335)).link_gbs, 20.6) << "of its chip";
  EXPECT_EQ(table.gpu(gpu(90)).channel_gbs, 60);
  EXPECT_EQ(table.gpu(gpu(100)).channel_gbs, 90);
  EXPECT_EQ(table.gpu(gpu(80)).channel_gbs, 40);
  EXPECT_EQ(table.gpu(amd_gpu("gfx942")).channel_gbs, 50);
  EXPECT_EQ(table.gpu(gpu(86)).link_gbs, 12);
  EXPECT_EQ(table.gpu(amd_gpu("gfx942:sramecc+:xnack-")).link_gbs, 48);
  EXPECT_EQ(table.gpu(amd_gpu("gfx90a")).link_gbs, 36);
  EXPECT_EQ(table.gpu(amd_gpu("gfx90a")).memory_gbs, 1600) << "of all AMD chips";
  EXPECT_EQ(table.gpu(amd_gpu("gfx1030")).link_gbs, 24);
  EXPECT_EQ(table.missing_entry(gpu(90)), "");
  EXPECT_EQ(table.missing_entry(gpu(42)), "sm42");
  EXPECT_EQ(table.missing_entry(amd_gpu("gfx1030")), "") << "'gfx' holds";
}

TEST(BuiltInHardware, KnowsCpusFromAModelOn) {
  const Hardware& table = Hardware::built_in();
  const auto intel = [&](int model) { return table.interconnect_gbs(cpu("x86_64", "GenuineIntel", 6, model)); };
  EXPECT_EQ(intel(84), 6);
  EXPECT_EQ(intel(85), 10);
  EXPECT_EQ(intel(142), 10);
  EXPECT_EQ(intel(143), 22);
  EXPECT_EQ(intel(206), 22);
  EXPECT_EQ(intel(207), 40);
  EXPECT_EQ(table.interconnect_gbs(cpu("x86_64", "GenuineIntel", 15, 200)), 6) << "a different family";
  EXPECT_EQ(table.interconnect_gbs(cpu("x86_64", "AuthenticAMD", 25, 1)), 16);
  EXPECT_EQ(table.interconnect_gbs(cpu("ppc64le", "")), 32);
  EXPECT_EQ(table.interconnect_gbs(cpu("arm64", "")), 6);
  EXPECT_EQ(table.interconnect_gbs(cpu("x86_64", "CentaurHauls", 7, 91)), 9);
  EXPECT_EQ(table.interconnect_gbs(cpu("x86_64", "CentaurHauls", 7, 90)), 6);
  EXPECT_EQ(table.interconnect_gbs(cpu("", "")), 6);
}

TEST(BuiltInHardware, KnowsPciLinks) {
  const Hardware& table = Hardware::built_in();
  EXPECT_EQ(table.pci_gbs("16.0 GT/s PCIe", 16), 24);
  EXPECT_EQ(table.pci_gbs("2.5 GT/s PCIe", 4), 0.75);
  EXPECT_EQ(table.pci_gbs("32.0 GT/s PCIe", 255), 48) << "an unknown width";
  EXPECT_EQ(table.pci_gbs("", 0), 12);
}

TEST(BuiltInHardware, KnowsTheProtocolsOfGpus) {
  for (const char* const name : {"simple", "ll", "ll128", "copy"}) {
    const ProtocolFigures protocol = Hardware::built_in().protocol(name, 90);
    EXPECT_TRUE(protocol.channel_gbs && protocol.latency_us) << name;
  }
  const ProtocolFigures unknown = Hardware::built_in().protocol("mine", 90);
  EXPECT_FALSE(unknown.channel_gbs || unknown.latency_us) << "its own figures hold";
}

TEST(HardwareFiles, StateFiguresOfProtocolsByChip) {
  const Hardware table =
      with("protocols: {ll128: {channel_gbs: 6}, ll128-sm100: {channel_gbs: 9}, mine: {latency_us: 2}}\n");
  EXPECT_EQ(table.protocol("ll128", 90).channel_gbs, 6);
  EXPECT_EQ(table.protocol("ll128", 100).channel_gbs, 9);
  EXPECT_EQ(table.protocol("ll128", 100).latency_us, 0.7) << "built in";
  EXPECT_EQ(table.protocol("mine", 90).latency_us, 2);
  EXPECT_FALSE(table.protocol("mine", 90).channel_gbs);
  EXPECT_THAT(table.differences(),
              ElementsAre("hardware.protocols.ll128.channel_gbs=6", "hardware.protocols.ll128-sm100.channel_gbs=9",
                          "hardware.protocols.mine.latency_us=2"));
}

TEST(HardwareFiles, ReplaceTheFiguresThatTheyName) {
  const Hardware table = with(
      "gpus:\n  sm90: {memory_gbs: 1111}\n  sm42: {link_gbs: 7}\n  10de:2336: {latency_us: 0}\n"
      "pci: {\"32\": {lane_gbs: 3.5}}\ncpus: {intel-6-200: {gbs: 30}}\nmemory: {default: {gbs: 5}}\n"
      "networks: {socket: {latency_us: 30}, default: {gap_us: 2}}\n");
  EXPECT_EQ(table.gpu(gpu(90)).memory_gbs, 1111);
  EXPECT_EQ(table.gpu(gpu(90)).link_gbs, 20.6) << "not named";
  EXPECT_EQ(table.gpu(gpu(42)).link_gbs, 7);
  EXPECT_EQ(table.missing_entry(gpu(42)), "");
  EXPECT_EQ(table.gpu(gpu(90, 0x10de, 0x2336)).latency_us, 0);
  EXPECT_EQ(table.gpu(gpu(90, 0x10de, 0x2336)).memory_gbs, 1111);
  EXPECT_EQ(table.pci_gbs("32.0 GT/s PCIe", 2), 7);
  EXPECT_EQ(table.interconnect_gbs(cpu("x86_64", "GenuineIntel", 6, 206)), 30);
  EXPECT_EQ(table.interconnect_gbs(cpu("x86_64", "GenuineIntel", 6, 207)), 40);
  EXPECT_EQ(table.memory().gbs, 5);
  EXPECT_EQ(table.network("socket").latency_us, 30);
  EXPECT_EQ(table.network("socket").gap_us, 4) << "built in for this network";
  EXPECT_EQ(table.network("ucx").gap_us, 2);
  EXPECT_TRUE(table.network("socket").file_has_latency);
  EXPECT_EQ(table.network("nccl:/lib/libnccl-net-x.so").latency_us, 15);
  EXPECT_FALSE(table.network("nccl:/lib/libnccl-net-x.so").file_has_latency);
  EXPECT_TRUE(with("networks: {default: {latency_us: 15}}\n").network("ib").file_has_latency) << "as built in";
  EXPECT_THAT(table.differences(),
              ElementsAre("hardware.cpus.intel-6-200.gbs=30", "hardware.gpus.10de:2336.latency_us=0",
                          "hardware.gpus.sm42.link_gbs=7", "hardware.gpus.sm90.memory_gbs=1111",
                          "hardware.memory.default.gbs=5", "hardware.networks.default.gap_us=2",
                          "hardware.networks.socket.latency_us=30", "hardware.pci.32.lane_gbs=3.5"));
  EXPECT_THAT(with("gpus: {sm90: {memory_gbs: 2500}}").differences(), IsEmpty()) << "as built in";
}

TEST(HardwareFiles, AreRefusedWithTheirPlace) {
  const struct {
    const char* text;
    const char* error;
  } cases[] = {
      {"gpus: {}\n", "h.yaml: 'tutti_hardware: 1' is missing; is this a file of hardware figures?"},
      {"tutti_hardware: 2\n", "h.yaml:1:17: tutti_hardware: '2' is no version that is known; write 1"},
      {"tutti_hardware: 1\ngpu: {}\n",
       "h.yaml:2:1: unknown section 'gpu'; did you mean 'gpus'?; allowed: tutti_hardware, gpus, protocols, pci, cpus, "
       "memory, networks"},
      {"tutti_hardware: 1\ngpus: [1]\n", "h.yaml:2:7: gpus must be a map, such as 'default: {memory_gbs: 1}'"},
      {"tutti_hardware: 1\nmemory: {default: 3}\n", "h.yaml:2:19: default must be a map, such as 'gbs: 1'"},
      {"tutti_hardware: 1\ngpus: {H200: {memory_gbs: 1}}\n",
       "h.yaml:2:8: gpus has no entry 'H200'; write default, a chip such as sm90 or gfx942, or PCI vendor and device "
       "such as 10de:2335"},
      {"tutti_hardware: 1\ncpus: {intel-6: {gbs: 1}}\n",
       "h.yaml:2:8: cpus has no entry 'intel-6'; write default, intel, amd, arm, power or zhaoxin, or "
       "vendor-family-model such as intel-6-85"},
      {"tutti_hardware: 1\npci: {gen5: {lane_gbs: 1}}\n",
       "h.yaml:2:7: pci has no entry 'gen5'; write default, or GT/s such as 32"},
      {"tutti_hardware: 1\nprotocols: {ll-gfx942: {channel_gbs: 1}}\n",
       "h.yaml:2:13: protocols has no entry 'll-gfx942'; write a plugin such as ll128, or with a chip ll128-sm90"},
      {"tutti_hardware: 1\nprotocols: {default: {channel_gbs: 1}}\n",
       "h.yaml:2:13: protocols has no entry 'default'; write a plugin such as ll128, or with a chip ll128-sm90"},
      {"tutti_hardware: 1\nmemory: {ddr5: {gbs: 1}}\n", "h.yaml:2:10: memory has no entry 'ddr5'; write default"},
      {"tutti_hardware: 1\nnetworks: {So: {gbs: 1}}\n",
       "h.yaml:2:12: networks has no entry 'So'; write default, or a plugin such as socket"},
      {"tutti_hardware: 1\nmemory: {default: {gb: 1}}\n",
       "h.yaml:2:20: unknown figure 'gb'; did you mean 'gbs'?; allowed: gbs, latency_us, gap_us, switch_us"},
      {"tutti_hardware: 1\nmemory: {default: {gbs: fast}}\n",
       "h.yaml:2:25: gbs: 'fast' is no number above 0, up to 1000000"},
      {"tutti_hardware: 1\nmemory: {default: {gbs: 0}}\n", "h.yaml:2:25: gbs: '0' is no number above 0, up to 1000000"},
      {"tutti_hardware: 1\nmemory: {default: {gbs: inf}}\n",
       "h.yaml:2:25: gbs: 'inf' is no number above 0, up to 1000000"},
      {"tutti_hardware: 1\nmemory: {default: {gbs: nan}}\n",
       "h.yaml:2:25: gbs: 'nan' is no number above 0, up to 1000000"},
      {"tutti_hardware: 1\nmemory: {default: {gbs: [1]}}\n",
       "h.yaml:2:25: gbs: '' is no number above 0, up to 1000000"},
      {"tutti_hardware: 1\nmemory: {default: {latency_us: -1}}\n",
       "h.yaml:2:32: latency_us: '-1' is no number from 0, up to 1000000"},
      {"tutti_hardware: 1\nmemory: {default: {latency_us: 1us}}\n",
       "h.yaml:2:32: latency_us: '1us' is no number from 0, up to 1000000"},
      {"tutti_hardware: 1\nmemory: {default: {gbs: 1, gbs: 2}}\n",
       "h.yaml:2:28: 'gbs' stands twice; first at h.yaml:2:20"},
  };
  for (const auto& each : cases) {
    const auto read = Hardware::read(each.text, "h.yaml");
    EXPECT_EQ(read.status().code(), Code::kConfig) << each.text;
    EXPECT_EQ(read.status().text(), each.error) << each.text;
  }
  EXPECT_EQ(Hardware::load("/no/such/figures.yaml").status().code(), Code::kNotFound);
}

TEST(Hardware, PluginsThatTheTableLacksHaveAPlace) {
  const Hardware table = with(
      "networks: {default: {gbs: 1}, socket: {gbs: 2}, sokcet: {gbs: 3}}\n"
      "protocols:\n  ll128-sm90: {channel_gbs: 6}\n  mine-sm90: {channel_gbs: 1}\n");
  std::vector<std::string> found;
  for (const Hardware::PluginEntry& each : table.plugins_of_file()) {
    found.push_back(each.section + " " + each.plugin + " " + each.place);
  }
  EXPECT_EQ(found, (std::vector<std::string>{"networks sokcet h.yaml:2:49", "protocols mine h.yaml:5:3"}));
  EXPECT_TRUE(Hardware::built_in().plugins_of_file().empty());
  EXPECT_EQ(Hardware::built_in().entries("networks"), std::vector<std::string>{"socket"});
  EXPECT_EQ(Hardware::built_in().entries("protocols"), (std::vector<std::string>{"copy", "ll", "ll128", "simple"}));
}

std::string content_of(const std::filesystem::path& file) {
  std::stringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

TEST(UnknownChips, AreLoggedOnceAndHaveTheDefaultFigures) {
  Document document = test::hgx(4, 0);
  document.source = "new.yaml";
  for (Cpu& each : document.cpus) {
    for (Pci& bridge : each.pci) {
      for (Pci& device : bridge.children) {
        if (device.gpu) device.gpu->sm = 142;
      }
    }
  }
  const auto file = std::filesystem::temp_directory_path() / ("hardware_test." + std::to_string(getpid()));
  ASSERT_TRUE(log::configure(log::Level::kInfo, file.string()).ok());
  const System system = required(System::build(document, {}));
  ASSERT_TRUE(log::configure(log::Level::kWarn, "").ok());
  const std::string log = content_of(file);
  std::filesystem::remove(file);
  EXPECT_EQ(system.gpu(system.rank_nodes().front()).memory_gbs, 800);
  const std::string line = "new.yaml: the hardware figures have no entry 'sm142' in gpus";
  ASSERT_THAT(log, HasSubstr(line));
  EXPECT_EQ(log.find(line, log.find(line) + 1), std::string::npos) << "once for four GPUs";
}

TEST(Systems, HaveTheFiguresOfTheirTable) {
  const Hardware table = with("gpus: {sm90: {link_gbs: 10, memory_gbs: 77}}\nnetworks: {socket: {gbs: 3}}\n");
  Document document = test::hgx(2, 2);
  for (Cpu& each : document.cpus) {
    for (Pci& bridge : each.pci) {
      for (Pci& device : bridge.children) {
        for (Nic& adapter : device.nics) adapter.nets.front().mbps = 0;
      }
    }
  }
  BuildOptions options;
  options.hardware = &table;
  options.network = "socket";
  const System system = required(System::build(document, options));
  const std::vector<uint32_t> ranks = system.rank_nodes();
  EXPECT_EQ(system.gpu(ranks[0]).memory_gbs, 77);
  EXPECT_NEAR(system.path(ranks[0], ranks[1]).gbs, 18 * 10, 1e-9);
  EXPECT_EQ(system.path(ranks[0], system.nodes_of(TUTTI_NODE_NET).front()).gbs, 3) << "a port without a speed";
}

}  // namespace
}  // namespace tutti::topology
