// SPDX-License-Identifier: Apache-2.0
// The system graph of known machines: nodes, and paths by tables made by hand; ranks, trimming, errors.
#include "topology/system.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <ctime>

#include "unit/topology_machines.h"

namespace tutti::topology {
namespace {

using test::bus;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

System built(const Document& document, const BuildOptions& options = {}) {
  Result<System> system = System::build(document, options);
  EXPECT_TRUE(system.ok()) << system.status().to_string();
  return system.ok() ? *std::move(system) : System();
}

std::string error_of(const Document& document, const BuildOptions& options = {}) {
  const Result<System> system = System::build(document, options);
  EXPECT_FALSE(system.ok());
  EXPECT_EQ(system.status().code(), Code::kConfig);
  return std::string(system.status().text());
}

uint32_t named(const System& system, std::string_view name) {
  for (uint32_t node = 0; node < system.nodes().size(); ++node) {
    if (system.name(node) == name) return node;
  }
  ADD_FAILURE() << "no " << name;
  return 0;
}

/// "PIX 48"
std::string path(const System& system, std::string_view from, std::string_view to) {
  const tutti_system_path& path = system.path(named(system, from), named(system, to));
  return fmt::format("{} {:.4g}", path_name(path.type), path.gbs);
}

/// "GPU 0, NUMA 0, GPU 1"
std::string way(const System& system, std::string_view from, std::string_view to) {
  std::string way(from);
  for (const uint32_t hop : system.hops(system.path(named(system, from), named(system, to)))) {
    way += ", " + system.name(system.links()[hop].to);
  }
  return way;
}

std::vector<std::string> names_of(const System& system, uint32_t type) {
  std::vector<std::string> names;
  for (const uint32_t node : system.nodes_of(type)) names.push_back(system.name(node));
  return names;
}

RankPlace on_gpu(uint32_t rank, BusId gpu) {
  return {.rank = rank, .on_gpu = true, .gpu = gpu};
}
RankPlace on_cpu(uint32_t rank, int numa) {
  return {.rank = rank, .gpu = {}, .numa = numa};
}
BuildOptions with(std::vector<RankPlace> ranks, bool networks = true) {
  return {std::move(ranks), networks, {}, nullptr};
}

TEST(SystemPaths, HybridCubeMesh) {
  const System system = built(test::dgx1v());
  // NVLinks of 20 GB/s between GPUs: the direct links, else the largest number that one GPU between them has to both.
  constexpr int kLinks[8][8] = {{0, 1, 1, 2, 2, -1, -1, -2}, {1, 0, 2, 1, -1, 2, -2, -1}, {1, 2, 0, 2, -1, -2, 1, -1},
                                {2, 1, 2, 0, -2, -1, -1, 1}, {2, -1, -1, -2, 0, 1, 1, 2}, {-1, 2, -2, -1, 1, 0, 2, 1},
                                {-1, -2, 1, -1, 1, 2, 0, 2}, {-2, -1, -1, 1, 2, 1, 2, 0}};
  for (int from = 0; from < 8; ++from) {
    for (int to = 0; to < 8; ++to) {
      if (from == to) continue;
      const int links = kLinks[from][to];
      EXPECT_EQ(path(system, fmt::format("GPU {}", from), fmt::format("GPU {}", to)),
                fmt::format("{} {}", links > 0 ? "NVL" : "NVB", 20 * std::abs(links)));
    }
  }
  EXPECT_EQ(path(system, "GPU 0", "GPU 0"), "LOC 5000");
  EXPECT_EQ(path(system, "GPU 0", "NUMA 0"), "PHB 12");
  EXPECT_EQ(path(system, "GPU 0", "NUMA 1"), "SYS 6");  // Broadwell
  EXPECT_EQ(path(system, "mlx5_0", "GPU 1"), "PIX 12");
  EXPECT_EQ(path(system, "mlx5_0", "mlx5_1"), "PHB 12");
  // GPU 0 has no NVLink to GPUs 6 and 7, which are near mlx5_3.
  EXPECT_EQ(path(system, "GPU 0", "mlx5_3"), "SYS 6");
  EXPECT_EQ(path(system, "GPU 0", "mlx5_2"), "PXN 12");
  EXPECT_EQ(way(system, "GPU 0", "mlx5_2"), "GPU 0, GPU 4, PCI 0000:83:00.0, NIC 0000:84:00.0, mlx5_2");
  EXPECT_EQ(way(system, "mlx5_2", "GPU 0"), "mlx5_2, NIC 0000:84:00.0, PCI 0000:83:00.0, GPU 4, GPU 0");
}

TEST(SystemPaths, NvSwitch) {
  const System system = built(test::hgx(8, 8));
  for (int from = 0; from < 8; ++from) {
    for (int to = 0; to < 8; ++to) {
      const std::string gpu = fmt::format("GPU {}", from);
      if (from != to) {
        EXPECT_EQ(path(system, gpu, fmt::format("GPU {}", to)), "NVL 370.8");  // 18 × 20.6
      }
      EXPECT_EQ(path(system, gpu, fmt::format("mlx5_{}", to)), from == to ? "PIX 48" : "PXN 48");
    }
  }
  EXPECT_EQ(way(system, "GPU 1", "GPU 6"), "GPU 1, NVSwitch, GPU 6");
  EXPECT_EQ(way(system, "GPU 1", "mlx5_6"), "GPU 1, NVSwitch, GPU 6, PCI 0000:13:00.0, NIC 0000:15:00.0, mlx5_6");
  EXPECT_EQ(path(system, "GPU 0", "NUMA 1"), "SYS 22");
  EXPECT_EQ(path(system, "NUMA 0", "NVSwitch"), "DIS 0");
  EXPECT_EQ(path(system, "NIC 0000:03:00.0", "mlx5_0"), "NVL 50");
}

TEST(SystemPaths, WithoutSecondGpus) {
  BuildOptions options;
  options.second_gpus = false;
  const auto system = System::build(test::hgx(8, 8), options);
  ASSERT_TRUE(system.ok());
  EXPECT_EQ(path(*system, "GPU 0", "mlx5_0"), "PIX 48");
  EXPECT_EQ(path(*system, "GPU 0", "mlx5_1").substr(0, 3), "PHB");
}

TEST(SystemPaths, PciOnly) {
  const System system = built(test::pcie(2, 2));
  EXPECT_EQ(path(system, "GPU 0", "GPU 1"), "PIX 24");
  EXPECT_EQ(path(system, "GPU 0", "GPU 2"), "SYS 16");
  EXPECT_EQ(path(system, "GPU 0", "mlx5_0"), "PIX 24");
  EXPECT_EQ(path(system, "GPU 0", "mlx5_1"), "SYS 16");
  EXPECT_EQ(path(built(test::pcie(1, 4)), "GPU 0", "GPU 1"), "PHB 24");
}

TEST(SystemPaths, SwitchesBelowASwitch) {
  Document document = test::workstation();
  Pci top = test::pci(bus(0x10), 32);
  for (uint32_t i = 0; i < 2; ++i) {
    Pci hub = test::pci(bus(0x20 + i), 16);
    hub.children = {test::gpu(bus(0x30 + i), static_cast<int>(i), 80, 16)};
    top.children.push_back(hub);
  }
  document.cpus[0].pci = {top};
  const System system = built(document);
  EXPECT_EQ(path(system, "GPU 0", "GPU 1"), "PXB 24");
  EXPECT_EQ(path(system, "GPU 0", "NUMA 0"), "PHB 24");
}

TEST(SystemPaths, PciLinkJoinsSwitches) {
  Document document = test::pcie(2, 2);
  document.cpus[0].pci[0].peers = {document.cpus[1].pci[0].bus, bus(0xee)};  // the second is not there
  const System system = built(document);
  EXPECT_EQ(path(system, "GPU 0", "GPU 2"), "PXB 24");
  EXPECT_EQ(path(system, "GPU 2", "GPU 0"), "PXB 24");
  EXPECT_EQ(path(system, "GPU 0", "mlx5_1"), "PXB 24");
}

TEST(SystemPaths, Power9) {
  const System system = built(test::power9());
  EXPECT_EQ(path(system, "GPU 0", "GPU 1"), "NVL 60");
  EXPECT_EQ(path(system, "GPU 0", "NUMA 0"), "NVL 60");
  EXPECT_EQ(path(system, "GPU 0", "GPU 2"), "SYS 32");
  EXPECT_EQ(way(system, "GPU 0", "GPU 2"), "GPU 0, NUMA 0, NUMA 8, GPU 2");
  EXPECT_EQ(path(system, "GPU 0", "mlx5_0"), "PHB 12.5");
  EXPECT_EQ(path(system, "GPU 0", "mlx5_1"), "SYS 12.5");
}

TEST(SystemPaths, GraceHopper) {
  Document document = test::grace_hopper();
  const System system = built(document);
  EXPECT_EQ(path(system, "GPU 0", "GPU 3"), "NVL 123.6");
  EXPECT_EQ(path(system, "GPU 0", "NUMA 0"), "C2C 447.1");
  EXPECT_EQ(path(system, "GPU 0", "mlx5_0"), "P2C 25");
  EXPECT_EQ(way(system, "GPU 0", "mlx5_0"), "GPU 0, NUMA 0, NIC 0000:02:00.0, mlx5_0");
  EXPECT_EQ(path(system, "GPU 0", "mlx5_1"), "PXN 25");
  EXPECT_EQ(way(system, "GPU 0", "mlx5_1"), "GPU 0, GPU 1, NUMA 1, NIC 0000:12:00.0, mlx5_1");
  for (Cpu& cpu : document.cpus) cpu.pci[0].gpu->direct = false;
  EXPECT_EQ(path(built(document), "GPU 0", "mlx5_0"), "PHB 25");
}

TEST(SystemPaths, Workstation) {
  const System system = built(test::workstation());
  EXPECT_EQ(path(system, "GPU 0", "GPU 1"), "PHB 24");
  EXPECT_EQ(path(system, "eth0", "GPU 1"), "PHB 1.25");
  EXPECT_THAT(names_of(system, TUTTI_NODE_NIC), ElementsAre("NIC eth0"));
}

TEST(SystemPaths, XgmiMesh) {
  const System system = built(test::mi300x());
  EXPECT_EQ(path(system, "GPU 0", "GPU 7"), "NVL 48");
  EXPECT_EQ(path(system, "GPU 7", "mlx5_7"), "PIX 48");
  EXPECT_EQ(path(system, "GPU 0", "mlx5_7"), "PXN 48");
  EXPECT_EQ(system.nodes()[0].chip, 942u);
  EXPECT_EQ(system.nodes()[0].flags, TUTTI_NODE_AMD | TUTTI_NODE_DIRECT);
  Document older = test::mi300x();
  older.cpus[0].pci[0].children[0].gpu->gcn = "gfx90a:sramecc+:xnack-";
  older.cpus[0].pci[1].children[0].gpu->gcn = "gfx908";
  EXPECT_EQ(built(older).nodes()[0].chip, 910u);
  EXPECT_EQ(path(built(older), "GPU 0", "GPU 7"), "NVL 36");
  EXPECT_EQ(path(built(older), "GPU 0", "GPU 1"), "NVL 24");
}

TEST(SystemPaths, PciSpeeds) {
  const struct {
    const char* speed;
    uint32_t width;
    double gbs;
  } kCases[] = {{"8.0 GT/s PCIe", 16, 12}, {"16 GT/s", 16, 24}, {"32.0 GT/s PCIe", 16, 48}, {"32.0 GT/s PCIe", 8, 24},
                {"2.5 GT/s PCIe", 4, .75}, {"5 GT/s", 16, 6},   {"64.0 GT/s PCIe", 2, 12},  {"", 0, 12},
                {"Unknown", 255, 12}};
  for (const auto& [speed, width, gbs] : kCases) {
    Document document = test::workstation();
    document.cpus[0].pci[0].link_speed = speed;
    document.cpus[0].pci[0].link_width = width;
    const System system = built(document);
    EXPECT_EQ(system.path(named(system, "GPU 0"), named(system, "NUMA 0")).gbs, gbs) << speed;
  }
}

TEST(SystemPaths, InterconnectOfTheSlowerCpu) {
  Document document = test::pcie(1, 2);
  const std::pair<Cpu, std::string> kCases[] = {{test::intel(1, 79), "SYS 6"},    {test::intel(1, 0x55), "SYS 10"},
                                                {test::intel(1, 0x6a), "SYS 10"}, {test::intel(1, 0xcf), "SYS 16"},
                                                {test::amd(1), "SYS 16"},         {Cpu{}, "SYS 6"}};
  for (const auto& [cpu, expected] : kCases) {
    std::vector<Pci> devices = std::move(document.cpus[1].pci);
    document.cpus[1] = cpu;
    document.cpus[1].numa = 1;
    document.cpus[1].pci = std::move(devices);
    EXPECT_EQ(path(built(document), "NUMA 0", "NUMA 1"), expected);
  }
}

TEST(SystemPaths, LinksKnownFromOneEndOrUnlikeFromBoth) {
  Document document = test::workstation();
  Pci& first = document.cpus[0].pci[0];
  Pci& second = document.cpus[0].pci[1];
  first.gpu->sm = second.gpu->sm = 80;
  first.gpu->links = {test::nvlink(second.bus, 2), test::nvlink(second.bus, 1), test::nvlink(first.bus, 5),
                      test::nvlink(bus(0x99), 4)};
  EXPECT_EQ(path(built(document), "GPU 0", "GPU 1"), "NVL 60");
  EXPECT_EQ(path(built(document), "GPU 1", "GPU 0"), "NVL 60");
  second.gpu->links = {test::nvlink(first.bus, 1)};
  EXPECT_EQ(path(built(document), "GPU 0", "GPU 1"), "NVL 60");
  EXPECT_EQ(path(built(document), "GPU 1", "GPU 0"), "NVL 20");
  second.gpu->sm = 60;
  EXPECT_EQ(path(built(document), "GPU 0", "GPU 1"), "NVL 54");
}

TEST(SystemPaths, ThroughTheCpuWithoutGpuDirect) {
  Document document = test::hgx(4, 4);
  document.cpus[0].pci[0].children[1].nics[0].nets[0].direct = false;  // mlx5_0
  document.cpus[0].pci[1].children[0].gpu->direct = false;             // GPU 1
  const System system = built(document);
  EXPECT_EQ(path(system, "GPU 0", "mlx5_0"), "PHB 48");
  EXPECT_EQ(way(system, "GPU 0", "mlx5_0"),
            "GPU 0, PCI 0000:01:00.0, NUMA 0, PCI 0000:01:00.0, NIC 0000:03:00.0, mlx5_0");
  EXPECT_EQ(path(system, "mlx5_0", "GPU 2"), "SYS 22");
  EXPECT_EQ(path(system, "GPU 1", "mlx5_1"), "PHB 48") << "nobody else is near it";
  EXPECT_EQ(path(system, "GPU 1", "mlx5_2"), "PXN 48") << "over GPU 2, which can";
}

TEST(SystemPaths, RelaysShareThePorts) {
  Document document = test::hgx(8, 8);  // then 4 switches with 2 GPUs and 2 adapters each
  for (Cpu& cpu : document.cpus) {
    for (size_t i = 0; i < 2; ++i) {
      Pci& hub = cpu.pci[i];
      for (Pci& child : cpu.pci[i + 1].children) hub.children.push_back(child);
      cpu.pci.erase(cpu.pci.begin() + static_cast<ptrdiff_t>(i) + 1);
    }
  }
  const System system = built(document);
  for (const int net : {2, 3, 4, 5, 6, 7}) {
    const std::string relay = fmt::format("GPU 0, NVSwitch, GPU {}, ", net);
    EXPECT_THAT(way(system, "GPU 0", fmt::format("mlx5_{}", net)), HasSubstr(relay));
  }
}

TEST(SystemPaths, TheNearestGpuIsTheRelay) {
  Document document = test::hgx(2, 0);
  const auto gpu = [](uint32_t number, int dev) {
    Pci device = test::gpu(bus(number), dev, 90);
    device.gpu->links = {test::nvswitch_links(18)};
    return device;
  };
  Pci far = test::pci(bus(0x11));
  far.children = {gpu(0x12, 0)};
  Pci near = test::pci(bus(0x20));
  near.children = {gpu(0x21, 1), test::nic(bus(0x22), 0, 400000)};
  Pci top = test::pci(bus(0x10));
  top.children = {far, near};
  document.cpus[0].pci = {top};
  document.cpus[1].pci = {gpu(0x81, 2)};
  const System system = built(document);
  EXPECT_EQ(path(system, "GPU 0", "mlx5_0"), "PXB 48");
  EXPECT_EQ(path(system, "GPU 1", "mlx5_0"), "PIX 48");
  EXPECT_THAT(way(system, "GPU 2", "mlx5_0"), HasSubstr("GPU 2, NVSwitch, GPU 1, "));
}

TEST(SystemNodes, PortsOfOneAdapter) {
  Document document = test::workstation();
  Pci first = test::nic(bus(9, 0, 0), 0, 100000);
  Pci second = test::nic(bus(9, 0, 1), 1, 100000);  // the other function of the same device
  Pci third = test::nic(bus(10), 2, 100000);
  Pci fourth = test::nic(bus(11), 3, 100000);
  fourth.nics[0].nets[0].guid = third.nics[0].nets[0].guid;
  for (const Pci& device : {fourth, second, third, first}) document.cpus[0].pci.push_back(device);
  const System system = built(document);
  EXPECT_THAT(names_of(system, TUTTI_NODE_NIC), ElementsAre("NIC 0000:09:00.0", "NIC 0000:0a:00.0", "NIC eth0"));
  EXPECT_THAT(names_of(system, TUTTI_NODE_NET), ElementsAre("mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3", "eth0"));
  EXPECT_EQ(path(system, "mlx5_0", "mlx5_1"), "NVL 12.5");
  EXPECT_EQ(path(system, "mlx5_2", "mlx5_3"), "NVL 12.5");
  EXPECT_EQ(path(system, "mlx5_1", "mlx5_2"), "PHB 12.5");
  EXPECT_EQ(system.nodes()[named(system, "eth0")].index, 4u) << "the first number that is free";
}

TEST(SystemNodes, AsTheDocumentSays) {
  const System system = built(test::hgx(2, 2));
  const tutti_system_node& gpu = system.nodes()[named(system, "GPU 1")];
  EXPECT_EQ(gpu.type, TUTTI_NODE_GPU);
  EXPECT_EQ(gpu.index, 1u);
  EXPECT_EQ(gpu.id, bus(5).value);
  EXPECT_EQ(gpu.rank, 1u);
  EXPECT_EQ(gpu.chip, 90u);
  EXPECT_EQ(gpu.flags, TUTTI_NODE_DIRECT);
  const tutti_system_node& net = system.nodes()[named(system, "mlx5_1")];
  EXPECT_EQ(net.index, 1u);
  EXPECT_EQ(net.id, 0x1001u);
  EXPECT_EQ(net.port, 1u);
  EXPECT_EQ(net.rank, TUTTI_NO_RANK);
  EXPECT_EQ(system.nodes()[named(system, "NUMA 1")].chip, TUTTI_CPU_INTEL);
  const tutti_system view = system.view();
  EXPECT_EQ(view.struct_size, sizeof(tutti_system));
  EXPECT_EQ(view.node_count, system.nodes().size());
  EXPECT_EQ(view.nodes, system.nodes().data());
  EXPECT_EQ(view.links, system.links().data());
  EXPECT_EQ(&view.paths[3 * view.node_count + 1], &system.path(3, 1));
}

TEST(SystemNodes, ProcessorsAreStatedOrCounted) {
  Document machine = test::dgx1v();
  ASSERT_THAT(machine.cpus, SizeIs(2));
  machine.cpus[0].affinity = "0000000f";
  machine.cpus[1].affinity = "000000f0,00000000";
  EXPECT_EQ(built(machine).processors(), 8);
  machine.cpus[1].processors = 0.5;
  EXPECT_EQ(built(machine).processors(), 4.5) << "the stated number replaces the mask";
  machine.cpus[1].affinity = "";
  EXPECT_EQ(built(machine).processors(), 4.5);
  machine.cpus[1].processors = 0;
  EXPECT_EQ(built(machine).processors(), 0) << "a NUMA node states nothing";
}

TEST(SystemNodes, GpusInPciOrderAndNumbered) {
  Document document = test::workstation();
  document.cpus[0].pci = {test::gpu(bus(7), 0, 80), test::gpu(bus(5), 0, 80), test::gpu(bus(6), -1, 80)};
  const System system = built(document);
  EXPECT_THAT(names_of(system, TUTTI_NODE_GPU), ElementsAre("GPU 0", "GPU 1", "GPU 2"));
  EXPECT_EQ(system.nodes()[0].id, bus(5).value);
  EXPECT_EQ(system.nodes()[2].id, bus(7).value);
}

TEST(SystemRanks, HostsBesideTheirCpus) {
  const System system = built(test::hgx(2, 2), with({on_cpu(5, 0), on_cpu(3, -1), on_cpu(4, 1), on_gpu(9, bus(5))}));
  EXPECT_THAT(names_of(system, TUTTI_NODE_HOST), ElementsAre("host rank 3", "host rank 4", "host rank 5"));
  EXPECT_EQ(path(system, "host rank 3", "host rank 5"), "PHB 8");
  EXPECT_EQ(path(system, "host rank 3", "host rank 4"), "SYS 8");
  EXPECT_EQ(path(system, "host rank 4", "GPU 1"), "PHB 8");
  EXPECT_EQ(path(system, "host rank 3", "mlx5_1"), "SYS 8");
  std::vector<uint32_t> ranks;
  for (const uint32_t node : system.rank_nodes()) ranks.push_back(system.nodes()[node].rank);
  EXPECT_THAT(ranks, ElementsAre(3, 4, 5, 9));
}

/// Each rank of a GPU has a node with the links of the GPU.
TEST(SystemRanks, ShareAGpu) {
  const Document document = test::hgx(2, 1);
  const System alone = built(document, with({on_gpu(0, bus(2)), on_gpu(1, bus(5))}));
  const System shared =
      built(document, with({on_gpu(0, bus(2)), on_gpu(1, bus(2)), on_gpu(2, bus(5)), on_gpu(3, bus(2))}));
  const std::vector<uint32_t> ranks = shared.rank_nodes();
  ASSERT_THAT(ranks, SizeIs(4));
  EXPECT_THAT(shared.nodes_of(TUTTI_NODE_GPU), SizeIs(4));
  const uint32_t port = shared.nodes_of(TUTTI_NODE_NET).front();
  const std::vector<uint32_t> alone_ranks = alone.rank_nodes();
  const tutti_system_path& to_peer = alone.path(alone_ranks[0], alone_ranks[1]);
  const tutti_system_path& to_port = alone.path(alone_ranks[0], alone.nodes_of(TUTTI_NODE_NET).front());
  for (const uint32_t rank : {0, 1, 3}) {
    EXPECT_EQ(shared.nodes()[ranks[rank]].id, bus(2).value);
    EXPECT_EQ(shared.nodes()[ranks[rank]].chip, alone.nodes()[alone_ranks[0]].chip);
    EXPECT_EQ(shared.path(ranks[rank], ranks[2]).gbs, to_peer.gbs);
    EXPECT_EQ(shared.path(ranks[rank], ranks[2]).type, to_peer.type);
    EXPECT_EQ(shared.path(ranks[rank], port).gbs, to_port.gbs);
    EXPECT_EQ(shared.path(ranks[rank], port).type, to_port.type);
    for (const uint32_t other : {0, 1, 3}) {
      if (other == rank) continue;
      EXPECT_EQ(shared.path(ranks[rank], ranks[other]).gbs, shared.gpu(ranks[0]).memory_gbs / 2);
      EXPECT_EQ(shared.path(ranks[rank], ranks[other]).hop_count, 1u);
    }
  }
}

TEST(SystemRanks, TakeTheGpusInTurnIfTheyMayShare) {
  const Document document = test::hgx(2, 0);
  EXPECT_EQ(places_of(document, 5).status().code(), Code::kInvalidArgument);
  const auto places = places_of(document, 5, true);
  ASSERT_TRUE(places.ok()) << places.status().to_string();
  std::vector<std::string> gpus;
  for (const RankPlace& place : *places) gpus.push_back(place.gpu.text());
  EXPECT_THAT(gpus, ElementsAre(bus(2).text(), bus(5).text(), bus(2).text(), bus(5).text(), bus(2).text()));
}

TEST(SystemTrim, WithoutNetworks) {
  const System system = built(test::hgx(8, 8), with({}, false));
  EXPECT_THAT(system.nodes_of(TUTTI_NODE_NET), IsEmpty());
  EXPECT_THAT(system.nodes_of(TUTTI_NODE_NIC), IsEmpty());
  EXPECT_THAT(system.nodes(), SizeIs(8 + 8 + 1 + 2));
}

TEST(SystemTrim, GpusWithoutRankStayAsRelaysOnly) {
  // GPUs 0 and 6 of the cube meet over GPU 2 or GPU 4.
  const System system = built(test::dgx1v(), with({on_gpu(0, bus(0x06)), on_gpu(1, bus(0x89))}, false));
  EXPECT_THAT(names_of(system, TUTTI_NODE_GPU), ElementsAre("GPU 0", "GPU 2", "GPU 6"));
  EXPECT_EQ(system.nodes()[1].rank, TUTTI_NO_RANK);
  EXPECT_EQ(path(system, "GPU 0", "GPU 6"), "NVB 20");
  EXPECT_EQ(path(system, "GPU 2", "NUMA 0"), "PHB 12");
  EXPECT_THAT(names_of(built(test::dgx1v(), with({on_gpu(0, bus(0x06)), on_gpu(1, bus(0x07))}, false)), TUTTI_NODE_GPU),
              ElementsAre("GPU 0", "GPU 1"));
}

TEST(SystemTrim, SwitchesAboveASwitchStay) {
  // Slow chip-to-chip links lead from the GPUs to the CPU, so that only the way between the GPUs needs the switches.
  Document document = test::grace_hopper();
  document.cpus.resize(1);
  Pci upper = test::pci(bus(0x20));
  Pci lower = test::pci(bus(0x21));
  for (int i = 0; i < 2; ++i) {
    lower.children.push_back(test::gpu(bus(0x22 + static_cast<uint32_t>(i)), i, 90));
    lower.children.back().gpu->c2c = C2c{.gbs = 40, .count = 1};
  }
  upper.children = {lower};
  document.cpus[0].pci = {upper};
  const System system = built(document, with({on_gpu(0, bus(0x22)), on_gpu(1, bus(0x23))}, false));
  EXPECT_EQ(path(system, "GPU 0", "GPU 1"), "PIX 48");
  EXPECT_EQ(way(system, "GPU 0", "GPU 1"), "GPU 0, PCI 0000:21:00.0, GPU 1");
  EXPECT_THAT(names_of(system, TUTTI_NODE_PCI), ElementsAre("PCI 0000:20:00.0", "PCI 0000:21:00.0"));
  EXPECT_EQ(way(system, "PCI 0000:21:00.0", "NUMA 0"), "PCI 0000:21:00.0, PCI 0000:20:00.0, NUMA 0");
}

TEST(SystemTrim, SwitchOfOthers) {
  Document document = test::hgx(4, 0);
  document.cpus[0].pci[0].children[0].gpu->links.clear();
  const System system = built(document, with({on_gpu(0, bus(2))}));
  EXPECT_THAT(system.nodes_of(TUTTI_NODE_NVS), IsEmpty());
  EXPECT_THAT(names_of(system, TUTTI_NODE_PCI), ElementsAre("PCI 0000:01:00.0"));
}

TEST(SystemErrors, SayWhereWhatAndWhatToDo) {
  Document document = test::hgx(2, 2);
  document.source = "dgx.xml";
  EXPECT_THAT(error_of({}), HasSubstr("no CPU; describe at least one NUMA node"));

  Document twice = document;
  twice.cpus[1].pci[0].children[0].bus = bus(2);
  twice.cpus[1].pci[0].children[0].position.line = 14;
  twice.cpus[0].pci[0].children[0].position.line = 7;
  EXPECT_EQ(error_of(twice),
            "dgx.xml:14: bus id 0000:02:00.0 stands here a second time (first in line 7); remove one of the two");

  Document numa = document;
  numa.cpus[1].numa = 0;
  EXPECT_THAT(error_of(numa), HasSubstr("NUMA node 0 stands here a second time"));

  Document stray = document;
  stray.cpus[0].pci[0].children[0].gpu->links = {test::nvlink(bus(3), 1)};
  stray.cpus[0].pci[0].children[0].gpu->position.line = 8;
  EXPECT_THAT(error_of(stray), AllOf(HasSubstr("dgx.xml:8: a link of GPU 0000:02:00.0 leads to 0000:03:00.0, which is "
                                               "a network adapter"),
                                     HasSubstr("0x068000")));

  Document slow = document;
  slow.cpus[0].pci[0].children[1].nics[0].nets[0].mbps = -1;
  EXPECT_THAT(error_of(slow), HasSubstr("the speed of mlx5_0"));
  Document none = document;
  none.cpus[0].pci[0].children[0].gpu->links[0].count = 0;
  EXPECT_THAT(error_of(none), HasSubstr("the count of links from GPU 0000:02:00.0 is 0"));
  Document ports = document;
  ports.cpus[0].pci[0].children[1].nics[0].nets[0].dev = 1;
  EXPECT_THAT(error_of(ports), HasSubstr("device 1 of its network, as another port is"));
}

TEST(SystemErrors, OfRanks) {
  Document document = test::hgx(2, 0);
  document.source = "dgx.xml";
  EXPECT_EQ(error_of(document, with({on_gpu(4, bus(9))})),
            "dgx.xml: rank 4 is on GPU 0000:09:00.0, which is not described; use 0000:02:00.0, 0000:05:00.0");
  EXPECT_THAT(error_of(document, with({on_gpu(4, bus(5)), on_cpu(4, 0)})), HasSubstr("rank 4 is placed twice"));
  EXPECT_THAT(error_of(document, with({on_cpu(4, 7)})), HasSubstr("NUMA node 7, which is not described; use 0, 1"));
  document.cpus[0].pci.clear();
  document.cpus[1].pci.clear();
  EXPECT_THAT(error_of(document), HasSubstr("no rank"));
}

TEST(SystemNames, ThereAndBack) {
  for (uint32_t type = 0; type < TUTTI_PATH_TYPE_COUNT; ++type) {
    const Result<uint32_t> back = path_from(path_name(type));
    ASSERT_TRUE(back.ok());
    EXPECT_EQ(*back, type);
  }
  EXPECT_EQ(path_from("PIB").status().code(), Code::kInvalidArgument);
  EXPECT_EQ(node_type_name(TUTTI_NODE_NVS), "NVSwitch");
  EXPECT_EQ(wire_name(TUTTI_WIRE_SYS), "SYS");
  EXPECT_EQ(wire_name(99), "?");
}

#if defined(NDEBUG) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
/// Seconds are those of the processor: the test may have to wait for it.
TEST(SystemBuild, IsFast) {
  const auto seconds_for = [](const Document& document) {
    const std::clock_t start = std::clock();
    built(document);
    return static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  };
  EXPECT_LT(seconds_for(test::hgx(16, 16)), 0.02);
  EXPECT_LT(seconds_for(test::hgx(72, 72)), 0.5);
}
#endif

}  // namespace
}  // namespace tutti::topology
