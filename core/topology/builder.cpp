// SPDX-License-Identifier: Apache-2.0
#include "topology/builder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>
#include <tuple>

#include "log/log.h"
#include "topology/chip.h"

namespace tutti::topology {
namespace {

constexpr size_t kMaxNodes = 2048;  // paths between all pairs: 100 MB
constexpr uint32_t kUnnumbered = UINT32_MAX;
constexpr uint64_t kFunctionMask = 0xf;

class Builder {
 public:
  Builder(const Document& document, const BuildOptions& options)
      : original_(document),
        document_(in_order(document)),
        options_(options),
        hardware_(options.hardware != nullptr ? *options.hardware : Hardware::built_in()) {}

  Result<Machine> build() {
    TUTTI_TRY(check_addresses());
    TUTTI_TRY(add_cpus());
    for (const auto& [bus, gpu] : gpus_) TUTTI_TRY(wire_gpu(bus, gpu));
    if (missing_peers_ > 0) {
      log::info("{}: {} GPU links lead to GPUs that are not in it", document_.source, missing_peers_);
    }
    for (const auto& [entry, section] : missing_entries_) {
      log::info(
          "{}: the hardware figures have no entry '{}' in {}, so 'default' holds for it; add one in a file for "
          "hardware.file",
          document_.source, entry, section);
    }
    wire_switches();
    TUTTI_TRY(place_ranks());
    return finished();
  }

 private:
  struct PlacedGpu {
    uint32_t node = 0;
    uint32_t cpu = 0;
    const Gpu* gpu = nullptr;
  };

  Status check_addresses();
  Status check_addresses(const std::vector<Pci>& devices);
  Status check_positive(double value, FilePosition position, std::string_view what) const;

  Status add_cpus();
  Status add_devices(const std::vector<Pci>& devices, uint32_t parent, uint32_t cpu);
  void add_gpu(const Pci& device, uint32_t parent, uint32_t cpu);
  Status add_adapter(const Nic& adapter, const Pci* device, uint32_t parent);
  uint32_t adapter_node(const Nic& adapter, const Pci* device, uint32_t parent);
  Status add_port(const Net& port, uint32_t adapter);
  uint32_t nvswitch();

  double port_gbs(const Net& port) const {
    return port.mbps == 0 ? hardware_.network(options_.network).gbs : port.mbps / 8000;
  }
  /// Of a GPU that may not be described.
  GpuFigures figures_of(BusId bus) const {
    const auto gpu = gpus_.find(bus);
    if (gpu != gpus_.end()) return machine_.gpus[gpu->second.node];
    Pci unknown;
    unknown.gpu.emplace();
    return hardware_.gpu(unknown);
  }
  /// All links between a GPU and the CPU on its module.
  double c2c_gbs(const PlacedGpu& gpu) const {
    const C2c& c2c = *gpu.gpu->c2c;
    return (c2c.gbs == 0 ? machine_.gpus[gpu.node].c2c_gbs : c2c.gbs) * c2c.count;
  }

  Status wire_gpu(BusId bus, const PlacedGpu& gpu);
  Status wire_peer(BusId bus, const PlacedGpu& gpu, const PeerLink& link);
  void wire_switches();

  Status place_ranks();
  Status place_on_gpu(const RankPlace& place);
  uint32_t add_sharer(uint32_t gpu);
  Status place_on_cpu(const RankPlace& place);

  Result<Machine> finished();

  uint32_t add_node(uint32_t type, uint64_t id, int index, std::string name = {});
  /// One direction. The opposite direction has the same bandwidth unless it is set separately.
  double& wire(uint32_t from, uint32_t to, uint32_t type) { return wires_[{from, to, type}]; }
  Status wrong_rank(const RankPlace& place, std::string_view text) const {
    return wrong(document_, {}, fmt::format("rank {} {}", place.rank, text));
  }

  const Document& original_;
  const Document document_;
  const BuildOptions& options_;
  const Hardware& hardware_;

  Machine machine_;
  std::map<std::tuple<uint32_t, uint32_t, uint32_t>, double> wires_;  ///< from, to, type: GB/s
  std::map<BusId, const Pci*> devices_;                               ///< all devices, also devices without a node
  std::map<BusId, PlacedGpu> gpus_;
  std::map<BusId, uint32_t> switches_;
  std::vector<std::pair<uint32_t, BusId>> switch_peers_;
  std::map<std::pair<uint32_t, uint64_t>, uint32_t> adapters_by_device_, adapters_by_guid_;  ///< under a parent
  std::set<int> ports_;
  std::set<std::pair<std::string, std::string_view>> missing_entries_;  ///< entry, section
  uint32_t nvswitch_ = kUnnumbered;
  uint32_t missing_peers_ = 0;
};

Status Builder::check_addresses() {
  if (document_.cpus.empty()) {
    return wrong(document_, {}, "no CPU; describe at least one NUMA node, with the devices below it");
  }
  for (const Cpu& cpu : original_.cpus) TUTTI_TRY(check_addresses(cpu.pci));
  return {};
}

Status Builder::check_addresses(const std::vector<Pci>& devices) {
  for (const Pci& device : devices) {
    const auto [at, is_new] = devices_.emplace(device.bus, &device);
    if (!is_new) {
      const int line = at->second->position.line;
      return wrong(document_, device.position,
                   fmt::format("bus id {} stands here a second time{}; remove one of the two", device.bus.text(),
                               line > 0 ? fmt::format(" (first in line {})", line) : ""));
    }
    TUTTI_TRY(check_addresses(device.children));
  }
  return {};
}

Status Builder::check_positive(double value, FilePosition position, std::string_view what) const {
  if (value > 0 && std::isfinite(value)) return {};
  return wrong(document_, position, fmt::format("{} is {}; give a positive number, or leave it out", what, value));
}

uint32_t Builder::add_node(uint32_t type, uint64_t id, int index, std::string name) {
  const uint32_t number = index < 0 ? kUnnumbered : static_cast<uint32_t>(index);
  machine_.nodes.push_back({type, number, id, TUTTI_NO_RANK, 0, 0, 0, 0, 0, 0});
  machine_.names.push_back(std::move(name));
  machine_.rails.push_back(-1);
  machine_.gpus.emplace_back();
  return machine_.size() - 1;
}

/// Gives the nodes of a type that have no number the smallest free numbers, in order. (If every process sees only one
/// GPU, all processes call it device 0.)
void number(Machine& machine, uint32_t type) {
  std::set<uint32_t> taken;
  for (const uint32_t node : machine.nodes_of(type)) {
    if (!taken.insert(machine.nodes[node].index).second) machine.nodes[node].index = kUnnumbered;
  }
  uint32_t next = 0;
  for (const uint32_t node : machine.nodes_of(type)) {
    if (machine.nodes[node].index != kUnnumbered) continue;
    while (taken.contains(next)) ++next;
    machine.nodes[node].index = next++;
  }
}

Status Builder::add_cpus() {
  for (const Cpu& cpu : document_.cpus) {  // the first nodes
    const uint32_t node = add_node(TUTTI_NODE_CPU, 0, cpu.numa);
    machine_.nodes[node].chip = cpu_chip(cpu);
    for (uint32_t other = 0; other < node; ++other) {
      if (cpu.numa >= 0 && document_.cpus[other].numa == cpu.numa) {
        return wrong(document_, cpu.position, fmt::format("NUMA node {} stands here a second time", cpu.numa));
      }
      const double gbs = std::min(hardware_.interconnect_gbs(cpu), hardware_.interconnect_gbs(document_.cpus[other]));
      wire(node, other, TUTTI_WIRE_SYS) = gbs;
    }
  }
  number(machine_, TUTTI_NODE_CPU);
  for (uint32_t node = 0; const Cpu& cpu : document_.cpus) {
    TUTTI_TRY(add_devices(cpu.pci, node, node));
    for (const Nic& adapter : cpu.nics) TUTTI_TRY(add_adapter(adapter, nullptr, node));
    ++node;
  }
  return {};
}

Status Builder::add_devices(const std::vector<Pci>& devices, uint32_t parent, uint32_t cpu) {
  for (const Pci& device : devices) {
    if (machine_.nodes.size() > kMaxNodes) {
      return wrong(document_, device.position, fmt::format("more than {} devices and ports in one machine", kMaxNodes));
    }
    if (std::string entry = hardware_.missing_pci_entry(device.link_speed); !entry.empty()) {
      missing_entries_.emplace(std::move(entry), "pci");
    }
    if (device.gpu) add_gpu(device, parent, cpu);
    for (const Nic& adapter : device.nics) TUTTI_TRY(add_adapter(adapter, &device, parent));
    if (device.children.empty()) continue;
    const uint32_t node = add_node(TUTTI_NODE_PCI, device.bus.value, -1, fmt::format("PCI {}", device.bus.text()));
    wire(node, parent, TUTTI_WIRE_PCI) = hardware_.pci_gbs(device.link_speed, device.link_width);
    switches_[device.bus] = node;
    for (const BusId peer : device.peers) switch_peers_.emplace_back(node, peer);
    TUTTI_TRY(add_devices(device.children, node, cpu));
  }
  return {};
}

void Builder::add_gpu(const Pci& device, uint32_t parent, uint32_t cpu) {
  const Gpu& gpu = *device.gpu;
  const uint32_t node = add_node(TUTTI_NODE_GPU, device.bus.value, gpu.dev);
  machine_.nodes[node].chip = gpu_chip(gpu);
  machine_.nodes[node].flags = (gpu.direct ? TUTTI_NODE_DIRECT : 0) | (gpu.gcn.empty() ? 0 : TUTTI_NODE_AMD);
  wire(node, parent, TUTTI_WIRE_PCI) = hardware_.pci_gbs(device.link_speed, device.link_width);
  machine_.gpus[node] = hardware_.gpu(device);
  machine_.nodes[node].channel_mbs = static_cast<uint32_t>(std::lround(machine_.gpus[node].channel_gbs * 1000));
  gpus_[device.bus] = {node, cpu, &gpu};
  if (std::string entry = hardware_.missing_entry(device); !entry.empty()) {
    missing_entries_.emplace(std::move(entry), "gpus");
  }
}

Status Builder::add_adapter(const Nic& adapter, const Pci* device, uint32_t parent) {
  const uint32_t node = adapter_node(adapter, device, parent);
  for (const Net& port : adapter.nets) TUTTI_TRY(add_port(port, node));
  return {};
}

/// The functions of one device are one adapter. So are entries with one GUID at one place. An adapter with two PCI
/// links is two adapters: from each CPU, only the ports of its own link are near.
uint32_t Builder::adapter_node(const Nic& adapter, const Pci* device, uint32_t parent) {
  uint32_t node = kUnnumbered;
  const auto look_up = [&](const auto& adapters, uint64_t key) {
    const auto found = adapters.find({parent, key});
    if (node == kUnnumbered && found != adapters.end()) node = found->second;
  };
  const uint64_t address = device == nullptr ? 0 : device->bus.value & ~kFunctionMask;
  if (device != nullptr) look_up(adapters_by_device_, address);
  for (const Net& port : adapter.nets) {
    if (port.guid != 0) look_up(adapters_by_guid_, port.guid);
  }
  if (node == kUnnumbered) {
    const std::string& name = adapter.nets.front().name;
    node = add_node(TUTTI_NODE_NIC, device == nullptr ? 0 : device->bus.value, -1,
                    fmt::format("NIC {}", device == nullptr ? name : device->bus.text()));
    wire(node, parent, TUTTI_WIRE_PCI) =
        device == nullptr ? kLocalGbs : hardware_.pci_gbs(device->link_speed, device->link_width);
  }
  if (device != nullptr) adapters_by_device_[{parent, address}] = node;
  for (const Net& port : adapter.nets) {
    if (port.guid != 0) adapters_by_guid_[{parent, port.guid}] = node;
  }
  return node;
}

Status Builder::add_port(const Net& port, uint32_t adapter) {
  TUTTI_TRY(check_positive(port_gbs(port), port.position, fmt::format("the speed of {} in GB/s", port.name)));
  if (port.dev >= 0 && !ports_.insert(port.dev).second) {
    return wrong(document_, port.position,
                 fmt::format("{} is device {} of its network, as another port is; give it a number of its own",
                             port.name, port.dev));
  }
  const uint32_t node = add_node(TUTTI_NODE_NET, port.guid, port.dev, port.name);
  machine_.nodes[node].flags = port.direct ? TUTTI_NODE_DIRECT : 0;
  machine_.nodes[node].port = static_cast<uint32_t>(std::max(port.port, 0));
  machine_.nodes[node].latency_us = port.latency_us;
  machine_.rails[node] = port.rail;
  machine_.nodes[node].max_channels = static_cast<uint32_t>(std::min<int64_t>(port.max_connections, UINT32_MAX));
  wire(node, adapter, TUTTI_WIRE_NET) = port_gbs(port);
  return {};
}

uint32_t Builder::nvswitch() {
  if (nvswitch_ == kUnnumbered) nvswitch_ = add_node(TUTTI_NODE_NVS, 0, -1, "NVSwitch");
  return nvswitch_;
}

Status Builder::wire_gpu(BusId bus, const PlacedGpu& gpu) {
  for (const PeerLink& link : gpu.gpu->links) TUTTI_TRY(wire_peer(bus, gpu, link));
  if (!gpu.gpu->c2c) return {};
  const double gbs = c2c_gbs(gpu);
  TUTTI_TRY(check_positive(gbs, gpu.gpu->position, fmt::format("C2C of GPU {} in GB/s", bus.text())));
  wire(gpu.node, gpu.cpu, TUTTI_WIRE_C2C) = gbs;
  return {};
}

Status Builder::wire_peer(BusId bus, const PlacedGpu& gpu, const PeerLink& link) {
  if (link.target == bus && link.to == PeerLink::Target::kGpu) return {};
  TUTTI_TRY(check_positive(link.count, gpu.gpu->position, fmt::format("the count of links from GPU {}", bus.text())));
  if (link.to != PeerLink::Target::kGpu) {
    const uint32_t to = link.to == PeerLink::Target::kCpu ? gpu.cpu : nvswitch();
    wire(gpu.node, to, TUTTI_WIRE_NVL) += link.count * machine_.gpus[gpu.node].link_gbs;
    return {};
  }
  if (const auto peer = gpus_.find(link.target); peer != gpus_.end()) {
    const double gbs = std::min(machine_.gpus[gpu.node].link_gbs, machine_.gpus[peer->second.node].link_gbs);
    wire(gpu.node, peer->second.node, TUTTI_WIRE_NVL) += link.count * gbs;
    return {};
  }
  const auto target = devices_.find(link.target);
  if (target != devices_.end() && (!target->second->nics.empty() || !target->second->children.empty())) {
    return wrong(document_, gpu.gpu->position,
                 fmt::format("a link of GPU {} leads to {}, which is {}; let it lead to a GPU, or give the class of an "
                             "NVSwitch (0x068000) or of a CPU's bridge (0x060400)",
                             bus.text(), link.target.text(),
                             target->second->nics.empty() ? "a PCI switch" : "a network adapter"));
  }
  ++missing_peers_;
  return {};
}

void Builder::wire_switches() {
  for (const auto& [node, bus] : switch_peers_) {
    const auto peer = switches_.find(bus);
    if (peer != switches_.end() && peer->second != node) wire(node, peer->second, TUTTI_WIRE_LOC) = kLocalGbs;
  }
}

Status Builder::place_ranks() {
  if (options_.ranks.empty()) {
    for (uint32_t rank = 0; const auto& [bus, gpu] : gpus_) machine_.nodes[gpu.node].rank = rank++;
    if (gpus_.empty()) return wrong(document_, {}, "no rank: it has no GPU, and no rank on a CPU is asked for");
  }
  std::set<uint32_t> ranks;
  for (const RankPlace& place : options_.ranks) {
    if (!ranks.insert(place.rank).second) return wrong_rank(place, "is placed twice; place every rank once");
    TUTTI_TRY(place.on_gpu ? place_on_gpu(place) : place_on_cpu(place));
  }
  return {};
}

Status Builder::place_on_gpu(const RankPlace& place) {
  const auto found = gpus_.find(place.gpu);
  if (found == gpus_.end()) {
    std::vector<std::string> known;
    for (const auto& [bus, gpu] : gpus_) known.push_back(bus.text());
    return wrong_rank(place, fmt::format("is on GPU {}, which is not described; {}", place.gpu.text(),
                                         known.empty() ? "no GPU is" : fmt::format("use {}", fmt::join(known, ", "))));
  }
  uint32_t node = found->second.node;
  if (machine_.nodes[node].rank != TUTTI_NO_RANK) node = add_sharer(node);
  machine_.nodes[node].rank = place.rank;
  return {};
}

/// A further rank on a GPU has a node of its own. The node has the links of the GPU, and a link within the GPU to each
/// earlier rank. So the search counts the bandwidth of the GPU's links once for each of its ranks.
uint32_t Builder::add_sharer(uint32_t gpu) {
  const uint32_t node = add_node(TUTTI_NODE_GPU, machine_.nodes[gpu].id, -1);
  machine_.nodes[node].chip = machine_.nodes[gpu].chip;
  machine_.nodes[node].flags = machine_.nodes[gpu].flags;
  machine_.nodes[node].channel_mbs = machine_.nodes[gpu].channel_mbs;
  machine_.gpus[node] = machine_.gpus[gpu];
  const auto wires = wires_;
  for (const auto& [ends, gbs] : wires) {
    const auto [from, to, type] = ends;
    if (from == gpu) wire(node, to, type) = gbs;
    if (to == gpu) wire(from, node, type) = gbs;
  }
  wire(node, gpu, TUTTI_WIRE_LOC) = machine_.gpus[gpu].memory_gbs / 2;  // a copy reads and writes
  return node;
}

Status Builder::place_on_cpu(const RankPlace& place) {
  std::vector<uint32_t> known;
  for (uint32_t cpu = 0; cpu < document_.cpus.size(); ++cpu) {
    known.push_back(machine_.nodes[cpu].index);
    if (place.numa >= 0 && machine_.nodes[cpu].index != static_cast<uint32_t>(place.numa)) continue;
    const uint32_t node = add_node(TUTTI_NODE_HOST, 0, -1, fmt::format("host rank {}", place.rank));
    machine_.nodes[node].rank = place.rank;
    wire(node, cpu, TUTTI_WIRE_LOC) = hardware_.memory().gbs;
    if (place.computes) machine_.gpus[node] = figures_of(place.gpu);
    return {};
  }
  return wrong_rank(
      place, fmt::format("is on NUMA node {}, which is not described; use {}", place.numa, fmt::join(known, ", ")));
}

std::pair<uint32_t, uint64_t> order_key(const tutti_system_node& node) {
  switch (node.type) {
    case TUTTI_NODE_HOST:
      return {node.type, node.rank};
    case TUTTI_NODE_NET:
      return {node.type, node.index};
    case TUTTI_NODE_NIC:
      return {node.type, node.id == 0 ? UINT64_MAX : node.id};  // virtual adapters last
    default:
      return {node.type, node.id};
  }
}

Result<Machine> Builder::finished() {
  if (machine_.nodes.size() > kMaxNodes) {
    return wrong(document_, {}, fmt::format("more than {} devices and ranks in one machine", kMaxNodes));
  }
  for (const auto& [ends, gbs] : wires_) {
    const auto [from, to, type] = ends;
    machine_.links.push_back({from, to, type, 0, gbs});
    if (!wires_.contains({to, from, type})) machine_.links.push_back({to, from, type, 0, gbs});
  }
  std::vector<uint32_t> order(machine_.nodes.size());
  std::iota(order.begin(), order.end(), 0u);
  std::ranges::stable_sort(order, {}, [this](uint32_t node) { return order_key(machine_.nodes[node]); });
  Machine machine = machine_.select(order);
  for (uint32_t type = 0; type < TUTTI_NODE_TYPE_COUNT; ++type) number(machine, type);
  for (uint32_t node = 0; node < machine.size(); ++node) {
    if (machine.names[node].empty()) {
      machine.names[node] = fmt::format("{} {}", node_type_name(machine.type(node)), machine.nodes[node].index);
    }
  }
  return machine;
}

}  // namespace

Result<Machine> build_machine(const Document& document, const BuildOptions& options) {
  return Builder(document, options).build();
}

Status wrong(const Document& document, FilePosition position, std::string_view text) {
  const std::string_view source = document.source.empty() ? "topology" : std::string_view(document.source);
  if (position.line == 0) return {Code::kConfig, fmt::format("{}: {}", source, text)};
  return {Code::kConfig, fmt::format("{}:{}: {}", source, position.line, text)};
}

}  // namespace tutti::topology
