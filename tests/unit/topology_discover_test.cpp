// SPDX-License-Identifier: Apache-2.0
// Discovery on machines that are not here: hwloc reads them from XML, NVML is a fake, sysfs a folder.
#include "topology/discover.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "unit/required.h"

namespace tutti::topology {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::SizeIs;

BusId bus(std::string_view text) {
  return *BusId::parse(text);
}

std::string bridge(std::string_view at, std::string_view buses, std::string_view children) {
  return fmt::format(
      "<object type='Bridge' bridge_type='1-1' depth='1' bridge_pci='0000:[{}]' pci_busid='{}' "
      "pci_type='0604 [1000:c030] [1000:1003] b0' pci_link_speed='31.5'>{}</object>",
      buses, at, children);
}

std::string host_bridge(std::string_view buses, std::string_view children) {
  return fmt::format("<object type='Bridge' bridge_type='0-1' depth='0' bridge_pci='0000:[{}]'>{}</object>", buses,
                     children);
}

std::string device(std::string_view at, std::string_view type) {
  return fmt::format("<object type='PCIDev' pci_busid='{}' pci_type='{} [10de:1234] a1' pci_link_speed='31.5'/>", at,
                     type);
}

constexpr const char* kGpu = "0302 [10de:2330]";
constexpr const char* kNic = "0207 [15b3:1021]";

std::string node(int numa, std::string_view processors, int memory_only = -1) {
  const auto object = [&](int index) {
    return fmt::format(
        "<object type='NUMANode' os_index='{}' cpuset='{}' complete_cpuset='{}' nodeset='{:#x}' "
        "complete_nodeset='{:#x}' local_memory='1073741824'/>",
        index, processors, processors, 1 << index, 1 << index);
  };
  return object(numa) + (memory_only < 0 ? "" : object(memory_only));
}

/// Two processors (0, 1 and 32, 33) in two packages, with the devices of each package and of both.
std::string two_sockets(std::string_view first, std::string_view second, std::string_view both = "") {
  const auto package = [](int index, std::string_view processors, int nodes, std::string_view inside, int pu,
                          std::string_view masks_0, std::string_view masks_1) {
    const auto unit = [&](int number, std::string_view mask) {
      return fmt::format(
          "<object type='PU' os_index='{}' cpuset='{}' complete_cpuset='{}' nodeset='{:#x}' "
          "complete_nodeset='{:#x}'/>",
          number, mask, mask, nodes, nodes);
    };
    return fmt::format(
        "<object type='Package' os_index='{}' cpuset='{}' complete_cpuset='{}' nodeset='{:#x}' "
        "complete_nodeset='{:#x}'><info name='CPUVendor' value='GenuineIntel'/>"
        "<info name='CPUFamilyNumber' value='6'/><info name='CPUModelNumber' value='143'/>{}{}{}</object>",
        index, processors, processors, nodes, nodes, unit(pu, masks_0), unit(pu + 1, masks_1), inside);
  };
  return fmt::format(
      "<topology version='2.0'>"
      "<object type='Machine' os_index='0' cpuset='0x00000003,0x00000003' complete_cpuset='0x00000003,0x00000003' "
      "allowed_cpuset='0x00000003,0x00000003' nodeset='0x7' complete_nodeset='0x7' allowed_nodeset='0x7'>"
      "<info name='Architecture' value='x86_64'/>{}{}{}</object></topology>",
      package(0, "0x3", 5, node(0, "0x3", 2) + std::string(first), 0, "0x1", "0x2"),
      package(1, "0x3,0x0", 2, node(1, "0x3,0x0") + std::string(second), 32, "0x1,0x0", "0x2,0x0"), both);
}

/// A GPU and an adapter behind a switch on one socket, a GPU at a root port of the second socket; and devices that are
/// not needed.
std::string usual_machine() {
  const std::string behind_switch =
      bridge("0000:02:00.0", "03-03", device("0000:03:00.0", kGpu)) +
      bridge("0000:02:01.0", "04-04", device("0000:04:00.0", kNic) + device("0000:04:00.1", kNic)) +
      bridge("0000:02:02.0", "05-05", device("0000:05:00.0", "0108 [144d:a80a]"));
  return two_sockets(
      host_bridge("00-0f", bridge("0000:00:01.0", "01-05", bridge("0000:01:00.0", "02-05", behind_switch)) +
                               bridge("0000:00:1c.0", "06-06", device("0000:06:00.0", "0300 [1a03:2000]"))),
      host_bridge("80-8f", bridge("0000:80:01.0", "83-83", device("0000:83:00.0", kGpu))));
}

class DiscoverTest : public testing::Test {
 protected:
  DiscoverTest() : folder_(fs::temp_directory_path() / fmt::format("tutti-discover-{}", getpid())) {
    fs::create_directories(folder_ / "bus/pci/devices");
    options_.nvml.clear();
    options_.sysfs = folder_;
  }
  ~DiscoverTest() override {
    fs::remove_all(folder_);
    unsetenv("TUTTI_FAKE_NVML");
  }

  /// Writes the file in the style of lstopo: hwloc's own XML reader takes attributes in double quotes and a line for
  /// each header only. If the package libhwloc-plugins is installed, hwloc reads by libxml2, which takes any XML.
  void use(std::string xml) {
    std::replace(xml.begin(), xml.end(), '\'', '"');
    options_.hwloc_xml = folder_ / "machine.xml";
    std::ofstream(options_.hwloc_xml) << "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
                                      << "<!DOCTYPE topology SYSTEM \"hwloc2.dtd\">\n"
                                      << xml << '\n';
  }
  void use_gpus(const char* machine) {
    setenv("TUTTI_FAKE_NVML", machine, 1);
    options_.nvml = TUTTI_FAKE_NVML;
  }
  /// A device as the kernel shows it: "bus/pci/devices/..." is a link into the tree of "devices/".
  fs::path add_to_sysfs(const std::string& path, const std::string& attribute, const std::string& value) {
    fs::path real = folder_ / "devices" / path;
    fs::create_directories(real);
    std::ofstream(real / attribute) << value << '\n';
    const fs::path link = folder_ / "bus/pci/devices" / real.filename();
    if (!fs::exists(link)) fs::create_directory_symlink(real, link);
    return real;
  }
  Document discovered() { return test::required(discover(options_)); }

  fs::path folder_;
  DiscoverOptions options_;
};

TEST_F(DiscoverTest, FindsProcessors) {
  use(usual_machine());
  const Document document = discovered();
  ASSERT_THAT(document.cpus, SizeIs(2)) << "memory without processors is no CPU";
  EXPECT_EQ(document.cpus[0].numa, 0);
  EXPECT_EQ(document.cpus[1].numa, 1);
  EXPECT_EQ(document.cpus[0].affinity, "00000003");
  EXPECT_EQ(document.cpus[1].affinity, "00000003,00000000");
  for (const Cpu& cpu : document.cpus) {
    EXPECT_EQ(cpu.arch, "x86_64");
    EXPECT_EQ(cpu.vendor, "GenuineIntel");
    EXPECT_EQ(cpu.family, 6);
    EXPECT_EQ(cpu.model, 143);
  }
}

TEST_F(DiscoverTest, KeepsWhatLeadsToGpusAndNetworks) {
  use(usual_machine());
  const Document document = discovered();
  ASSERT_THAT(document.cpus[0].pci, SizeIs(1)) << "the display of the service processor is no GPU";
  const Pci& a_switch = document.cpus[0].pci[0];
  EXPECT_EQ(a_switch.bus, bus("0000:01:00.0")) << "a switch is its upstream port; root ports do not count";
  EXPECT_EQ(a_switch.pci_class, 0x060400u);
  ASSERT_THAT(a_switch.children, SizeIs(3)) << "the disk leads nowhere";
  EXPECT_EQ(a_switch.children[0].bus, bus("0000:03:00.0"));
  EXPECT_EQ(a_switch.children[0].pci_class, 0x030200u);
  EXPECT_EQ(a_switch.children[0].vendor, 0x10deu);
  EXPECT_EQ(a_switch.children[0].device, 0x2330u);
  EXPECT_EQ(a_switch.children[0].subsystem_device, 0x1234u);
  EXPECT_FALSE(a_switch.children[0].gpu) << "without NVML there is only a place";
  ASSERT_THAT(document.cpus[1].pci, SizeIs(1));
  EXPECT_EQ(document.cpus[1].pci[0].bus, bus("0000:83:00.0"));
  EXPECT_TRUE(document.is_overlay());
}

TEST_F(DiscoverTest, LinksAreWhatBothEndsCan) {
  use(usual_machine());
  add_to_sysfs("pci0000:00/0000:02:00.0", "max_link_speed", "16.0 GT/s PCIe");
  add_to_sysfs("pci0000:00/0000:02:00.0", "max_link_width", "16");
  add_to_sysfs("pci0000:00/0000:02:00.0/0000:03:00.0", "max_link_speed", "32.0 GT/s PCIe");
  add_to_sysfs("pci0000:00/0000:02:00.0/0000:03:00.0", "max_link_width", "8");
  add_to_sysfs("pci0000:00/0000:04:00.0", "max_link_speed", "Unknown");
  add_to_sysfs("pci0000:00/0000:04:00.0", "max_link_width", "255");
  const Document document = discovered();
  EXPECT_EQ(document.find(bus("0000:03:00.0"))->link_speed, "16.0 GT/s PCIe");
  EXPECT_EQ(document.find(bus("0000:03:00.0"))->link_width, 8u);
  EXPECT_EQ(document.find(bus("0000:04:00.0"))->link_speed, "");
  EXPECT_EQ(document.find(bus("0000:04:00.0"))->link_width, 0u);
}

TEST_F(DiscoverTest, AsksSysfsWhereHwlocDoesNotKnowTheNode) {
  use(two_sockets("", "", host_bridge("00-0f", device("0000:00:06.0", kGpu) + device("0000:00:07.0", kGpu))));
  add_to_sysfs("pci0000:00/0000:00:07.0", "numa_node", "1");
  add_to_sysfs("pci0000:00/0000:00:06.0", "numa_node", "-1");
  const Document document = discovered();
  ASSERT_THAT(document.cpus[0].pci, SizeIs(1));
  EXPECT_EQ(document.cpus[0].pci[0].bus, bus("0000:00:06.0"));
  ASSERT_THAT(document.cpus[1].pci, SizeIs(1));
  EXPECT_EQ(document.cpus[1].pci[0].bus, bus("0000:00:07.0"));
}

TEST_F(DiscoverTest, CountsLinksPerSwitch) {
  use(usual_machine());
  use_gpus("switch");
  const Document document = discovered();
  const Pci* first = document.find(bus("0000:03:00.0"));
  ASSERT_TRUE(first->gpu);
  EXPECT_EQ(first->gpu->dev, 0);
  EXPECT_EQ(first->gpu->sm, 90);
  EXPECT_FALSE(first->gpu->c2c);
  EXPECT_EQ(first->subsystem_device, 0x16c1u);
  ASSERT_THAT(first->gpu->links, SizeIs(2));
  EXPECT_EQ(first->gpu->links[0].to, PeerLink::Target::kSwitch);
  EXPECT_EQ(first->gpu->links[0].target, bus("0000:c5:00.0"));
  EXPECT_EQ(first->gpu->links[0].target_class, 0x068000u);
  EXPECT_EQ(first->gpu->links[0].count + first->gpu->links[1].count, 18u);
  const Pci* second = document.find(bus("0000:83:00.0"));
  ASSERT_TRUE(second->gpu);
  EXPECT_EQ(second->gpu->links[0].count + second->gpu->links[1].count, 16u) << "two are down";
}

TEST_F(DiscoverTest, CountsLinksPerGpuAndPlacesUnseenDevices) {
  use(usual_machine());
  use_gpus("mesh");
  add_to_sysfs("pci0001:00/0001:0a:00.0", "numa_node", "1");
  const Document document = discovered();
  const auto links = [&](std::string_view at) {
    std::vector<std::pair<std::string, uint32_t>> found;
    for (const PeerLink& link : document.find(bus(at))->gpu->links) {
      EXPECT_EQ(link.to, PeerLink::Target::kGpu);
      found.emplace_back(link.target.text(), link.count);
    }
    return found;
  };
  using Link = std::pair<std::string, uint32_t>;
  EXPECT_THAT(links("0000:03:00.0"),
              ElementsAre(Link("0000:83:00.0", 2), Link("0001:0a:00.0", 2), Link("0000:99:00.0", 1)))
      << "what is down does not count; what is not visible does";
  EXPECT_THAT(links("0000:83:00.0"), ElementsAre(Link("0000:03:00.0", 2), Link("0001:0a:00.0", 1)));
  ASSERT_THAT(document.cpus[1].pci, SizeIs(2));
  const Pci& unseen = document.cpus[1].pci[1];
  EXPECT_EQ(unseen.bus, bus("0001:0a:00.0"));
  EXPECT_EQ(unseen.pci_class, 0x030200u);
  EXPECT_EQ(unseen.device, 0x1db1u);
}

TEST_F(DiscoverTest, UnderstandsVirtualMachines) {
  use(two_sockets("", ""));
  use_gpus("virtual");
  const Document document = discovered();
  ASSERT_THAT(document.cpus[0].pci, SizeIs(1)) << "nobody knows where: the first CPU";
  const Gpu& gpu = *document.cpus[0].pci[0].gpu;
  ASSERT_THAT(gpu.links, SizeIs(1));
  EXPECT_EQ(gpu.links[0].to, PeerLink::Target::kSwitch);
  EXPECT_EQ(gpu.links[0].target, bus("fffffff:ff:ff.0"));
  EXPECT_EQ(gpu.links[0].count, 18u);
}

TEST_F(DiscoverTest, KnowsChipToChip) {
  use(usual_machine());
  use_gpus("grace");
  const Document document = discovered();
  const Gpu& gpu = *document.find(bus("0000:03:00.0"))->gpu;
  ASSERT_TRUE(gpu.c2c);
  EXPECT_EQ(gpu.c2c->count, 9u) << "one is down";
  EXPECT_DOUBLE_EQ(gpu.c2c->gbs, 44.712);
  ASSERT_THAT(gpu.links, SizeIs(1));
  EXPECT_EQ(gpu.links[0].to, PeerLink::Target::kCpu);
}

TEST_F(DiscoverTest, WithoutDriverThereAreNoGpus) {
  use(usual_machine());
  for (const char* machine : {"empty", "no such machine"}) {
    use_gpus(machine);
    EXPECT_TRUE(discovered().is_overlay()) << machine;
  }
  options_.nvml = folder_ / "absent.so";
  EXPECT_TRUE(discovered().is_overlay());
}

TEST_F(DiscoverTest, PlacesPorts) {
  use(usual_machine());
  add_to_sysfs("pci0000:00/0000:04:00.0/infiniband/mlx5_0", "port", "1");
  fs::create_directories(folder_ / "class/net");
  fs::create_directory_symlink(folder_ / "devices/pci0000:00/0000:04:00.0", folder_ / "class/net/eth0");
  options_.nets = {{.name = "mlx5_0",
                    .dev = 3,
                    .speed_gbs = 50,
                    .latency_us = 1.5,
                    .pci_path = folder_ / "devices/pci0000:00/0000:04:00.0/infiniband/mlx5_0",
                    .guid = 7,
                    .port = 1,
                    .rail = 2,
                    .direct = true},
                   {.name = "eth0", .dev = 4, .pci_path = folder_ / "class/net/eth0"},
                   {.name = "unseen", .dev = 5, .pci_path = "/sys/devices/pci0000:f0/0000:f1:00.0"},
                   {.name = "lo", .dev = 6}};
  const Document document = discovered();
  const Pci* adapter = document.find(bus("0000:04:00.0"));
  ASSERT_THAT(adapter->nics, SizeIs(1));
  ASSERT_THAT(adapter->nics[0].nets, SizeIs(2)) << "ports of one device are of one adapter";
  const Net& net = adapter->nics[0].nets[0];
  EXPECT_EQ(net.name, "mlx5_0");
  EXPECT_EQ(net.dev, 3);
  EXPECT_DOUBLE_EQ(net.mbps, 400e3);
  EXPECT_DOUBLE_EQ(net.latency_us, 1.5);
  EXPECT_EQ(net.guid, 7u);
  EXPECT_EQ(net.port, 1);
  EXPECT_EQ(net.rail, 2);
  EXPECT_TRUE(net.direct);
  EXPECT_EQ(adapter->nics[0].nets[1].name, "eth0");
  const Pci* unseen = document.find(bus("0000:f1:00.0"));
  ASSERT_NE(unseen, nullptr);
  EXPECT_EQ(unseen->nics[0].nets[0].name, "unseen");
  ASSERT_THAT(document.cpus[0].nics, SizeIs(1));
  EXPECT_EQ(document.cpus[0].nics[0].nets[0].name, "lo");
}

TEST_F(DiscoverTest, ThisMachine) {
  options_.sysfs = "/sys";
  options_.nets = {{.name = "lo"}};
  const Document document = discovered();
  EXPECT_EQ(document.source, "this machine");
  ASSERT_FALSE(document.cpus.empty());
  EXPECT_FALSE(document.cpus[0].affinity.empty());
  EXPECT_THAT(document.cpus[0].nics, SizeIs(1));
}

TEST_F(DiscoverTest, AFileThatIsNotThereIsNamed) {
  options_.hwloc_xml = folder_ / "absent.xml";
  const auto document = discover(options_);
  ASSERT_FALSE(document.ok());
  EXPECT_EQ(document.status().code(), Code::kSystem);
  EXPECT_THAT(std::string(document.status().text()), testing::HasSubstr("absent.xml"));
}

}  // namespace
}  // namespace tutti::topology
