// SPDX-License-Identifier: Apache-2.0
// Two documents of one machine made one, and places made devices.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>

#include "topology/document.h"

namespace tutti::topology {
namespace {

constexpr uint32_t kDisplay = 0x03;
constexpr uint32_t kNetwork = 0x02;

uint32_t base_class(const Pci& device) {
  return device.pci_class >> 16;
}

/// Calls visit(device) for all, parents first.
template <class Devices, class Visit>
void for_each(Devices& devices, Visit&& visit) {
  for (auto& device : devices) {
    visit(device);
    for_each(device.children, visit);
  }
}
template <class AnyDocument, class Visit>
void for_each_device(AnyDocument& document, Visit&& visit) {
  for (auto& cpu : document.cpus) for_each(cpu.pci, visit);
}

template <class AnyDocument, class Visit>
void for_each_port(AnyDocument& document, Visit&& visit) {
  const auto visit_all = [&](auto& adapters) {
    for (auto& adapter : adapters) std::ranges::for_each(adapter.nets, visit);
  };
  for (auto& cpu : document.cpus) visit_all(cpu.nics);
  for_each_device(document, [&](auto& device) { visit_all(device.nics); });
}

/// The ports of a document. What makes a port is its name, not its place; an adapter's ports may share theirs.
class Ports {
 public:
  explicit Ports(const Document& document) {
    for_each_port(document, [&](const Net& port) { ports_.push_back(&port); });
  }

  const Net* find(const Net& port) const {
    const auto found = std::ranges::find_if(ports_, [&](const Net* known) {
      return known->name == port.name && (known->port == port.port || known->port == 0 || port.port == 0);
    });
    return found == ports_.end() ? nullptr : *found;
  }

  /// Adapters with those of their ports that are none of these.
  std::vector<Nic> rest_of(const std::vector<Nic>& adapters) const {
    std::vector<Nic> rest;
    for (Nic adapter : adapters) {
      const auto taken = std::erase_if(adapter.nets, [&](const Net& port) { return find(port) != nullptr; });
      if (taken == 0 || !adapter.nets.empty()) rest.push_back(std::move(adapter));
    }
    return rest;
  }

 private:
  std::vector<const Net*> ports_;
};

template <class T>
void prefer(T& value, const T& other, const T& unsaid) {
  if (value == unsaid) value = other;
}

void complete(Gpu& gpu, const Gpu& other) {
  prefer(gpu.dev, other.dev, -1);
  prefer(gpu.sm, other.sm, 0);
  prefer(gpu.gcn, other.gcn, std::string());
  prefer(gpu.arch, other.arch, 0u);
  prefer(gpu.rank, other.rank, -1);
  gpu.direct = gpu.direct || other.direct;
  if (gpu.links.empty()) gpu.links = other.links;
  if (!gpu.c2c) gpu.c2c = other.c2c;
}

void complete(Net& port, const Net& other) {
  prefer(port.dev, other.dev, -1);
  prefer(port.mbps, other.mbps, 0.0);
  prefer(port.port, other.port, 0);
  prefer(port.latency_us, other.latency_us, 0.0);
  prefer(port.guid, other.guid, uint64_t{0});
  prefer(port.max_connections, other.max_connections, int64_t{0});
  port.direct = port.direct || other.direct;
  prefer(port.rail, other.rail, -1);
}

/// What `device` leaves open is as `other` says; its children stay its own, and so do the ports that are `placed`.
void complete(Pci& device, const Pci& other, const Ports& placed) {
  prefer(device.pci_class, other.pci_class, 0u);
  prefer(device.vendor, other.vendor, 0u);
  prefer(device.device, other.device, 0u);
  prefer(device.subsystem_vendor, other.subsystem_vendor, 0u);
  prefer(device.subsystem_device, other.subsystem_device, 0u);
  prefer(device.link_speed, other.link_speed, std::string());
  prefer(device.link_width, other.link_width, 0u);
  if (device.gpu && other.gpu) {
    complete(*device.gpu, *other.gpu);
  } else if (other.gpu) {
    device.gpu = other.gpu;
  }
  std::vector<Nic> rest = placed.rest_of(other.nics);
  if (device.nics.empty()) {
    device.nics = std::move(rest);
  } else {
    for (Nic& adapter : rest) std::ranges::move(adapter.nets, std::back_inserter(device.nics.front().nets));
  }
  if (device.peers.empty()) device.peers = other.peers;
}

void complete(Cpu& cpu, const Cpu& other) {
  prefer(cpu.numa, other.numa, -1);
  prefer(cpu.affinity, other.affinity, std::string());
  prefer(cpu.arch, other.arch, std::string());
  prefer(cpu.vendor, other.vendor, std::string());
  prefer(cpu.family, other.family, 0);
  prefer(cpu.model, other.model, 0);
  prefer(cpu.host_hash, other.host_hash, std::string());
}

/// Devices of the base that the file does not place.
class Unplaced {
 public:
  Unplaced(const std::set<BusId>& placed, const Ports& placed_ports) : placed_(placed), placed_ports_(placed_ports) {}

  /// Adds to `out` what stays of a device where the base has it. What it has below a placed device stays below that,
  /// until attach(). A switch from which all was taken goes.
  void take(const Pci& device, std::vector<Pci>& out) {
    const bool moved = placed_.contains(device.bus);
    Pci copy = device;
    copy.nics = placed_ports_.rest_of(device.nics);
    copy.children.clear();
    for (const Pci& child : device.children) take(child, moved ? below_[device.bus] : copy.children);
    const bool emptied = !device.children.empty() && copy.children.empty() && !copy.gpu && copy.nics.empty();
    if (!moved && !emptied) out.push_back(std::move(copy));
  }

  void attach(Document& merged) {
    for (auto& [bus, devices] : below_) std::ranges::move(devices, std::back_inserter(merged.find(bus)->children));
    below_.clear();
  }

 private:
  const std::set<BusId>& placed_;
  const Ports& placed_ports_;
  std::map<BusId, std::vector<Pci>> below_;  // by placed device
};

/// The same NUMA node in `document`, or its only CPU if `only` and one of the two does not know its node.
Cpu* find_node(Document& document, int numa, bool only) {
  const auto found = std::ranges::find_if(
      document.cpus, [&](const Cpu& cpu) { return cpu.numa == numa || (only && (cpu.numa < 0 || numa < 0)); });
  return found == document.cpus.end() ? nullptr : &*found;
}

/// A device cannot be a GPU to the one and an adapter to the other.
Status check_same_kind(const Pci& device, const Document& over, const Pci& known, const Document& base) {
  const bool is_gpu = device.gpu && !known.gpu && !known.nics.empty();
  const bool is_adapter = known.gpu && !device.gpu && !device.nics.empty();
  if (!is_gpu && !is_adapter) return {};
  return {Code::kConfig,
          fmt::format("{}:{}: {} is a {} here and a {} in {}; correct the one that is wrong", over.source,
                      device.place.line, device.bus.text(), is_gpu ? "GPU" : "network adapter",
                      is_gpu ? "network adapter" : "GPU", base.source)};
}

/// Numbers that nothing has yet, ascending.
class Numbers {
 public:
  void take(int number) { taken_.insert(number); }
  int next() {
    while (taken_.contains(next_)) ++next_;
    return next_++;
  }

 private:
  std::set<int> taken_;
  int next_ = 0;
};

}  // namespace

Result<Document> merge(const Document& base, const Document& over) {
  if (over.cpus.empty()) return base;
  if (base.cpus.empty()) return over;
  Document merged = over;
  merged.source = fmt::format("{} over {}", over.source, base.source);
  prefer(merged.name, base.name, std::string());
  merged.version = std::max(base.version, over.version);
  std::set<BusId> placed;
  const Ports placed_ports(over);
  Status kinds;
  for_each_device(merged, [&](Pci& device) {
    placed.insert(device.bus);
    const Pci* known = base.find(device.bus);
    if (known == nullptr) return;
    if (kinds.ok()) kinds = check_same_kind(device, over, *known, base);
    complete(device, *known, placed_ports);
  });
  TUTTI_TRY(kinds);
  const Ports known_ports(base);
  for_each_port(merged, [&](Net& port) {
    const Net* known = port.name.empty() ? nullptr : known_ports.find(port);
    if (known != nullptr) complete(port, *known);
  });
  Unplaced unplaced(placed, placed_ports);
  const bool only = base.cpus.size() == 1 && over.cpus.size() == 1;
  for (const Cpu& cpu : base.cpus) {
    Cpu* home = find_node(merged, cpu.numa, only);
    Cpu rest = cpu;
    rest.pci.clear();
    rest.nics.clear();
    Cpu& target = home != nullptr ? *home : rest;
    if (home != nullptr) complete(*home, cpu);
    for (const Pci& device : cpu.pci) unplaced.take(device, target.pci);
    for (Nic& adapter : placed_ports.rest_of(cpu.nics)) {
      if (!adapter.nets.empty()) target.nics.push_back(std::move(adapter));
    }
    // A NUMA node that the file leaves out and that holds nothing more is still a place for threads.
    if (home == nullptr) merged.cpus.push_back(std::move(rest));
  }
  unplaced.attach(merged);
  return merged;
}

Result<uint32_t> complete_overlay(Document& document, const std::vector<BusId>& gpus, double mbps, int sm) {
  for (const BusId& bus : gpus) {
    if (document.find(bus) != nullptr) continue;
    return Status(Code::kNotFound,
                  fmt::format("{} has no device {}; name one that it places", document.source, bus.text()));
  }
  Numbers gpu_numbers;
  Numbers port_numbers;
  for_each_device(document, [&](const Pci& device) {
    if (device.gpu) gpu_numbers.take(device.gpu->dev);
  });
  for_each_port(document, [&](const Net& port) { port_numbers.take(port.dev); });
  std::vector<Pci*> made;
  uint32_t count = 0;
  for_each_device(document, [&](Pci& device) {
    const bool named = std::find(gpus.begin(), gpus.end(), device.bus) != gpus.end();
    if (!device.gpu && (named || (base_class(device) == kDisplay && device.children.empty()))) {
      device.gpu.emplace();
      device.gpu->sm = sm;
      device.gpu->direct = true;
      made.push_back(&device);
    }
    if (device.nics.empty() && base_class(device) == kNetwork && device.children.empty()) {
      Net net;
      net.dev = port_numbers.next();
      net.name = fmt::format("net{}", net.dev);
      net.mbps = mbps;
      net.direct = true;
      device.nics.push_back({{std::move(net)}, {}});
    }
    count += device.gpu ? 1 : 0;
  });
  std::sort(made.begin(), made.end(), [](const Pci* a, const Pci* b) { return a->bus < b->bus; });
  for (Pci* device : made) device->gpu->dev = gpu_numbers.next();
  return count;
}

}  // namespace tutti::topology
