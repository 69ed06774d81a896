// SPDX-License-Identifier: Apache-2.0
#include "unit/topology_random.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "unit/topology_machines.h"

namespace tutti::topology::test {
namespace {

class Generator {
 public:
  Generator(std::mt19937_64& random, Links links) : random_(random), links_(links), buses_(255) {
    std::iota(buses_.begin(), buses_.end(), 1u);
    std::shuffle(buses_.begin(), buses_.end(), random_);
  }

  Document machine() {
    document_.source = "random";
    const int cpus = draw(1, 4);
    const int vendor = draw(0, 3);
    for (int numa = 0; numa < cpus; ++numa) add_cpu(numa, vendor);
    const int gpus = draw(1, 16);
    const bool mixed = chance(20);
    const bool direct = chance(80);
    kind_ = draw(0, 6);
    for (int dev = 0; dev < gpus; ++dev) {
      if (mixed) kind_ = draw(0, 6);
      Pci device = gpu(next_bus(), dev, 0, pick({8, 16, 32}));
      set_chip(*device.gpu);
      device.gpu->direct = direct && !chance(10);
      place(device);
    }
    const int nics = draw(0, 8);
    for (int i = 0; i < nics; ++i) add_adapter();
    join_switches();
    join_gpus();
    return std::move(document_);
  }

 private:
  int draw(int low, int high) { return std::uniform_int_distribution(low, high)(random_); }
  bool chance(int percent) { return draw(1, 100) <= percent; }
  int pick(std::initializer_list<int> from) { return from.begin()[draw(0, static_cast<int>(from.size()) - 1)]; }
  BusId next_bus() {
    const uint32_t number = buses_.back();
    buses_.pop_back();
    return bus(number, static_cast<uint32_t>(draw(0, 31)));
  }

  void add_cpu(int numa, int vendor) {
    Cpu cpu = vendor == 0 ? amd(numa) : intel(numa, pick({79, 0x55, 0x8f, 0xcf}));
    if (vendor == 2) cpu.arch = "arm64";
    if (vendor == 3) cpu.arch = "ppc64";
    const int trees = draw(0, 3);
    for (int i = 0; i < trees; ++i) cpu.pci.push_back(tree(draw(0, 2)));
    document_.cpus.push_back(std::move(cpu));
  }

  Pci tree(int depth) {
    Pci hub = pci(next_bus(), pick({8, 16, 32}), static_cast<uint32_t>(pick({8, 16, 16})));
    if (depth == 0) return hub;
    const int count = draw(1, 2);
    for (int i = 0; i < count; ++i) hub.children.push_back(tree(depth - 1));
    return hub;
  }

  /// Below any CPU, at any depth.
  void place(Pci device) {
    auto* siblings = &document_.cpus[static_cast<size_t>(draw(0, static_cast<int>(document_.cpus.size()) - 1))].pci;
    while (!chance(20)) {
      std::vector<Pci*> hubs;
      for (Pci& sibling : *siblings) {
        if (!sibling.gpu && sibling.nics.empty()) hubs.push_back(&sibling);
      }
      if (hubs.empty()) break;
      siblings = &hubs[static_cast<size_t>(draw(0, static_cast<int>(hubs.size()) - 1))]->children;
    }
    siblings->push_back(std::move(device));
  }

  void set_chip(Gpu& gpu) {
    constexpr int kGenerations[] = {60, 70, 80, 86, 90, 100};
    if (kind_ < 6) {
      gpu.sm = kGenerations[kind_];
    } else {
      gpu.gcn = chance(50) ? "gfx90a" : "gfx942";
    }
  }

  void add_adapter() {
    Nic adapter;
    const int ports = draw(1, 2);
    const double mbps = pick({10000, 25000, 100000, 200000, 400000});
    for (int i = 0; i < ports; ++i) {
      adapter.nets.push_back(port(nets_++, mbps));
      adapter.nets.back().guid = adapter.nets.front().guid;
      adapter.nets.back().direct = chance(80);
    }
    if (chance(10)) {
      document_.cpus.front().nics.push_back(adapter);
      return;
    }
    Pci device = pci(next_bus(), pick({8, 16, 32}));
    device.nics.push_back(adapter);
    place(std::move(device));
  }

  void join_switches() {
    std::vector<Pci>& hubs = document_.cpus.front().pci;
    if (hubs.size() < 2 || !chance(20)) return;
    hubs[0].peers.push_back(hubs[1].bus);
    hubs[1].peers.push_back(hubs[0].bus);
  }

  static void collect(std::vector<Pci>& devices, std::vector<Pci*>& gpus) {
    for (Pci& device : devices) {
      if (device.gpu) gpus.push_back(&device);
      collect(device.children, gpus);
    }
  }

  void join_gpus() {
    std::vector<Pci*> gpus;
    for (Cpu& cpu : document_.cpus) {
      collect(cpu.pci, gpus);
    }
    const bool by_chip = document_.cpus.front().arch == "arm64" && chance(50);
    const bool to_cpu = document_.cpus.front().arch == "ppc64" && chance(50);
    const auto links = static_cast<uint32_t>(draw(1, 6));
    for (Pci* device : gpus) {
      if (by_chip) device->gpu->c2c = C2c{.gbs = 44.7, .count = static_cast<uint32_t>(draw(1, 10))};
      if (to_cpu) device->gpu->links.push_back({.to = PeerLink::Target::kCpu, .target = bus(0xff, 1), .count = links});
    }
    switch (draw(0, 3)) {
      case 0:
        break;
      case 1:
        for (Pci* device : gpus) device->gpu->links.push_back(nvswitch_links(3 * links));
        break;
      case 2:
        mesh(gpus, 100);
        break;
      default:
        mesh(gpus, draw(20, 80));
    }
  }

  void mesh(const std::vector<Pci*>& gpus, int percent) {
    for (size_t i = 0; i < gpus.size(); ++i) {
      for (size_t j = 0; j < i; ++j) {
        if (!chance(percent)) continue;
        PeerLink link = nvlink(gpus[j]->bus, static_cast<uint32_t>(draw(1, 3)));
        if (!gpus[i]->gpu->gcn.empty() && !gpus[j]->gpu->gcn.empty()) link.kind = PeerLink::Kind::kXgmi;
        gpus[i]->gpu->links.push_back(link);
        link.target = gpus[i]->bus;
        if (links_ == Links::kAny && chance(10)) link.count = static_cast<uint32_t>(draw(1, 3));
        if (chance(90)) gpus[j]->gpu->links.push_back(link);  // otherwise one end tells of both directions
      }
    }
  }

  std::mt19937_64& random_;
  const Links links_;
  std::vector<uint32_t> buses_;
  Document document_;
  int kind_ = 0;
  int nets_ = 0;
};

}  // namespace

Document random_machine(std::mt19937_64& random, Links links) {
  return Generator(random, links).machine();
}

}  // namespace tutti::topology::test
