// SPDX-License-Identifier: Apache-2.0
#include "unit/topology_random.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
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
      if (to_cpu) {
        device->gpu->links.push_back(
            {.to = PeerLink::Target::kCpu, .target = bus(0xff, 1), .target_class = 0x060400, .count = links});
      }
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
    for (Pci* device : gpus) std::ranges::stable_sort(device->gpu->links, {}, &PeerLink::kind);
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

class Anything {
 public:
  explicit Anything(std::mt19937_64& random) : random_(random) {}

  Document document() {
    Document made;
    made.name = text();
    made.version = 1 + static_cast<int>(below(2));
    for (int numa = -1; numa < static_cast<int>(below(4)); ++numa) made.cpus.push_back(cpu(numa));
    return made;
  }

 private:
  uint64_t below(uint64_t end) { return random_() % end; }
  bool coin() { return below(2) == 0; }
  template <class T = int>
  T number(uint64_t most) {
    return static_cast<T>(coin() ? below(most + 1) : below(2) * most);
  }
  double real(double most) {
    return coin() ? static_cast<double>(below(3)) : std::uniform_real_distribution(0.0, most)(random_);
  }
  BusId bus() { return {below(uint64_t{1} << 52)}; }
  std::string text() {
    constexpr std::array kTexts = {"",   "a",    "010", "1e3",  "0x10",         "null", "Null", "NULL",
                                   "~",  "true", "no",  "- a",  "a: b",         "#a",   "a #b", " a",
                                   "a ", "'",    "\"",  "&lt;", "<a/>",         "[",    "{}",   "*a",
                                   "!a", "%",    "@",   "\\n",  "\u00e4\u4e2d", "---",  "...",  "?"};
    return kTexts[below(kTexts.size())];
  }

  std::string processors() {
    constexpr std::array kMasks = {"", "0", "ff", "010", "1e3", "00000001,ffffffff"};
    return kMasks[below(kMasks.size())];
  }
  std::string link_speed() {
    constexpr std::array kSpeeds = {"", "Unknown", "8", "2.5 GT/s", "16.0 GT/s PCIe"};
    return kSpeeds[below(kSpeeds.size())];
  }

  Cpu cpu(int numa) {
    Cpu made{numa,
             processors(),
             static_cast<double>(below(5)) / 2,
             text(),
             text(),
             number(65535) - coin(),
             number(65535),
             text(),
             {},
             {},
             {}};
    for (uint64_t count = below(3); count > 0; --count) made.pci.push_back(pci(4));
    for (uint64_t count = below(3); count > 0; --count) made.nics.push_back(nic());
    return made;
  }
  Pci pci(int depth) {
    constexpr uint32_t kId = 0xffffff;
    Pci made;
    made.bus = bus();
    made.pci_class = number<uint32_t>(kId);
    made.vendor = number<uint32_t>(kId);
    made.device = number<uint32_t>(kId);
    made.subsystem_vendor = number<uint32_t>(kId);
    made.subsystem_device = number<uint32_t>(kId);
    made.link_speed = link_speed();
    made.link_width = number<uint32_t>(256);
    if (coin()) made.gpu = gpu();
    for (uint64_t count = below(3); count > 0; --count) made.nics.push_back(nic());
    for (uint64_t count = depth == 0 ? 0 : below(3); count > 0; --count) made.children.push_back(pci(depth - 1));
    for (uint64_t count = below(3); count > 0; --count) made.peers.push_back(bus());
    return made;
  }
  Gpu gpu() {
    Gpu made;
    made.dev = number(1 << 20) - coin();
    made.sm = number(1000);
    made.gcn = coin() ? "" : "gfx942:sramecc+";
    made.arch = number<uint32_t>(UINT32_MAX);
    made.rank = number(INT32_MAX) - coin();
    made.direct = coin();
    for (const auto kind : {PeerLink::Kind::kNvlink, PeerLink::Kind::kXgmi}) {
      for (uint64_t count = below(4); count > 0; --count) made.links.push_back(link(kind));
    }
    if (coin()) made.c2c = C2c{real(1e6), 1 + number<uint32_t>(1023)};
    return made;
  }
  PeerLink link(PeerLink::Kind kind) {
    using To = PeerLink::Target;
    constexpr std::array<std::pair<To, uint32_t>, 4> kTargets = {
        {{To::kGpu, 0}, {To::kGpu, 0x030200}, {To::kSwitch, 0x068000}, {To::kCpu, 0x060400}}};
    const auto [to, target_class] = kTargets[below(kTargets.size())];
    return {kind, to, bus(), target_class, 1 + number<uint32_t>(1023)};
  }
  Nic nic() {
    Nic made;
    for (uint64_t count = below(3); count > 0; --count) {
      Net port;
      port.name = text();
      port.dev = number(1 << 20) - coin();
      port.mbps = real(1e9);
      port.port = number(65535);
      port.latency_us = real(1e9);
      port.guid = number<uint64_t>(UINT64_MAX - 1);
      port.max_connections = number<int64_t>(INT64_MAX);
      port.direct = coin();
      port.rail = number(1 << 20) - coin();
      made.nets.push_back(port);
    }
    return made;
  }

  std::mt19937_64& random_;
};

}  // namespace

Document random_machine(std::mt19937_64& random, Links links) {
  return Generator(random, links).machine();
}

Document random_document(std::mt19937_64& random) {
  return Anything(random).document();
}

}  // namespace tutti::topology::test
