// SPDX-License-Identifier: Apache-2.0
#include "unit/topology_machines.h"

#include <fmt/format.h>

#include <algorithm>

namespace tutti::topology::test {
namespace {

Document machine(std::string source, std::vector<Cpu> cpus) {
  Document document;
  document.source = std::move(source);
  document.cpus = std::move(cpus);
  return document;
}

/// Both ends of the link.
void join(Pci& a, Pci& b, uint32_t count) {
  a.gpu->links.push_back(nvlink(b.bus, count));
  b.gpu->links.push_back(nvlink(a.bus, count));
}

void shuffle(std::vector<Pci>& devices, std::mt19937_64& random) {
  std::shuffle(devices.begin(), devices.end(), random);
  for (Pci& device : devices) {
    shuffle(device.children, random);
    std::shuffle(device.nics.begin(), device.nics.end(), random);
    for (Nic& adapter : device.nics) std::shuffle(adapter.nets.begin(), adapter.nets.end(), random);
    if (device.gpu) std::shuffle(device.gpu->links.begin(), device.gpu->links.end(), random);
    std::shuffle(device.peers.begin(), device.peers.end(), random);
  }
}

}  // namespace

BusId bus(uint32_t bus, uint32_t device, uint32_t function) {
  return BusId{uint64_t{bus} << 12 | uint64_t{device} << 4 | function};
}

Cpu intel(int numa, int model) {
  Cpu cpu;
  cpu.numa = numa;
  cpu.arch = "x86_64";
  cpu.vendor = "GenuineIntel";
  cpu.family = 6;
  cpu.model = model;
  return cpu;
}

Cpu amd(int numa) {
  Cpu cpu = intel(numa, 1);
  cpu.vendor = "AuthenticAMD";
  cpu.family = 175;
  return cpu;
}

Pci pci(BusId bus, int gigatransfers, uint32_t lanes) {
  Pci device;
  device.bus = bus;
  device.link_speed = fmt::format("{}.0 GT/s PCIe", gigatransfers);
  device.link_width = lanes;
  return device;
}

Pci gpu(BusId bus, int dev, int sm, int gigatransfers) {
  Pci device = pci(bus, gigatransfers);
  device.pci_class = 0x030200;
  device.gpu.emplace();
  device.gpu->dev = dev;
  device.gpu->sm = sm;
  device.gpu->direct = true;
  return device;
}

Net port(int dev, double mbps) {
  Net port;
  port.name = fmt::format("mlx5_{}", dev);
  port.dev = dev;
  port.mbps = mbps;
  port.port = 1;
  port.direct = true;
  port.guid = 0x1000 + static_cast<uint64_t>(dev);
  return port;
}

Pci nic(BusId bus, int dev, double mbps, int gigatransfers) {
  Pci device = pci(bus, gigatransfers);
  device.pci_class = 0x020000;
  device.nics = {Nic{.nets = {port(dev, mbps)}, .position = {}}};
  return device;
}

PeerLink nvlink(BusId target, uint32_t count) {
  return {.target = target, .target_class = 0x030200, .count = count};
}

PeerLink nvswitch_links(uint32_t count) {
  return {.to = PeerLink::Target::kSwitch, .target = bus(0xf0), .target_class = 0x068000, .count = count};
}

Document dgx1v() {
  constexpr int kGen3 = 8;
  Document document = machine("dgx1v", {intel(0, 79), intel(1, 79)});
  std::vector<Pci> gpus;
  constexpr uint32_t kBuses[] = {0x06, 0x07, 0x0a, 0x0b, 0x85, 0x86, 0x89, 0x8a};
  for (const uint32_t number : kBuses) gpus.push_back(gpu(bus(number), static_cast<int>(gpus.size()), 70, kGen3));
  constexpr struct {
    size_t a, b;
    uint32_t count;
  } kLinks[] = {{0, 1, 1}, {0, 2, 1}, {0, 3, 2}, {0, 4, 2}, {1, 2, 2}, {1, 3, 1}, {1, 5, 2}, {2, 3, 2},
                {2, 6, 1}, {3, 7, 1}, {4, 5, 1}, {4, 6, 1}, {4, 7, 2}, {5, 6, 2}, {5, 7, 1}, {6, 7, 2}};
  for (const auto& link : kLinks) join(gpus[link.a], gpus[link.b], link.count);
  for (uint32_t i = 0; i < 4; ++i) {
    const uint32_t first = kBuses[2 * i];
    Pci hub = pci(bus(first - 2), kGen3);
    hub.children = {gpus[2 * i], gpus[2 * i + 1], nic(bus(first - 1), static_cast<int>(i), 100000, kGen3)};
    document.cpus[i / 2].pci.push_back(hub);
  }
  return document;
}

Document hgx(uint32_t gpus, uint32_t nics) {
  Document document = machine("hgx", {intel(0), intel(1)});
  for (uint32_t i = 0; i < gpus; ++i) {
    Pci hub = pci(bus(3 * i + 1));
    hub.children.push_back(gpu(bus(3 * i + 2), static_cast<int>(i), 90));
    hub.children[0].gpu->links.push_back(nvswitch_links(18));
    for (uint32_t j = i; j < nics; j += gpus) {
      hub.children.push_back(nic(bus(3 * i + 3, j / gpus), static_cast<int>(j), 400000));
    }
    document.cpus[2 * i / gpus].pci.push_back(hub);
  }
  return document;
}

Document pcie(uint32_t gpus_per_switch, uint32_t switches) {
  constexpr int kGen4 = 16;
  Document document = machine("pcie", {amd(0), amd(1)});
  for (uint32_t i = 0; i < switches; ++i) {
    Pci hub = pci(bus(3 * i + 1), kGen4);
    for (uint32_t j = 0; j < gpus_per_switch; ++j) {
      hub.children.push_back(gpu(bus(3 * i + 2, j), static_cast<int>(i * gpus_per_switch + j), 80, kGen4));
    }
    hub.children.push_back(nic(bus(3 * i + 3), static_cast<int>(i), 200000, kGen4));
    document.cpus[2 * i / switches].pci.push_back(hub);
  }
  return document;
}

Document power9() {
  Document document = machine("power9", {});
  for (uint32_t i = 0; i < 2; ++i) {
    Cpu cpu;
    cpu.numa = static_cast<int>(8 * i);
    cpu.arch = "ppc64";
    Pci pair[] = {gpu(bus(0x10 * i + 1), static_cast<int>(2 * i), 70, 8),
                  gpu(bus(0x10 * i + 2), static_cast<int>(2 * i + 1), 70, 8)};
    join(pair[0], pair[1], 3);
    for (Pci& device : pair) {
      device.gpu->links.push_back(
          {.to = PeerLink::Target::kCpu, .target = bus(0xc0 + i), .target_class = 0x060400, .count = 3});
    }
    cpu.pci = {pair[0], pair[1], nic(bus(0x10 * i + 3), static_cast<int>(i), 100000, 16)};
    document.cpus.push_back(cpu);
  }
  return document;
}

Document grace_hopper() {
  Document document = machine("grace", {});
  std::vector<Pci> gpus;
  for (uint32_t i = 0; i < 4; ++i) {
    gpus.push_back(gpu(bus(0x10 * i + 1), static_cast<int>(i), 90));
    gpus[i].gpu->c2c = C2c{.gbs = 44.712, .count = 10};
    for (uint32_t j = 0; j < i; ++j) join(gpus[i], gpus[j], 6);
  }
  for (uint32_t i = 0; i < 4; ++i) {
    Cpu cpu;
    cpu.numa = static_cast<int>(i);
    cpu.arch = "arm64";
    cpu.pci = {gpus[i], nic(bus(0x10 * i + 2), static_cast<int>(i), 200000)};
    document.cpus.push_back(cpu);
  }
  return document;
}

Document workstation() {
  Document document = machine("workstation", {amd(0)});
  document.cpus[0].pci = {gpu(bus(1), 0, 89, 16), gpu(bus(2), 1, 89, 16)};
  for (Pci& device : document.cpus[0].pci) device.gpu->direct = false;
  Net ethernet;
  ethernet.name = "eth0";
  document.cpus[0].nics = {Nic{.nets = {ethernet}, .position = {}}};
  return document;
}

Document mi300x() {
  Document document = hgx(8, 8);
  document.source = "mi300x";
  std::vector<Pci*> gpus;
  for (int numa = 0; Cpu & cpu : document.cpus) {
    cpu = [&] {
      Cpu other = amd(numa++);
      other.pci = std::move(cpu.pci);
      return other;
    }();
    for (Pci& hub : cpu.pci) gpus.push_back(&hub.children[0]);
  }
  for (Pci* device : gpus) {
    device->gpu->sm = 0;
    device->gpu->gcn = "gfx942";
    device->gpu->links.clear();
    for (const Pci* peer : gpus) {
      if (peer == device) continue;
      device->gpu->links.push_back({.kind = PeerLink::Kind::kXgmi, .target = peer->bus, .target_class = 0x038000});
    }
  }
  return document;
}

Document shuffled(Document document, std::mt19937_64& random) {
  std::shuffle(document.cpus.begin(), document.cpus.end(), random);
  for (Cpu& cpu : document.cpus) {
    shuffle(cpu.pci, random);
    std::shuffle(cpu.nics.begin(), cpu.nics.end(), random);
    for (Nic& adapter : cpu.nics) std::shuffle(adapter.nets.begin(), adapter.nets.end(), random);
  }
  return document;
}

}  // namespace tutti::topology::test
