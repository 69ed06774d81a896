// SPDX-License-Identifier: Apache-2.0
// Two documents of one machine made one, and places made devices.
#include <fmt/format.h>

#include <algorithm>
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

/// What `device` leaves open is as `other` says; its children stay its own.
void complete(Pci& device, const Pci& other) {
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
  if (device.nics.empty()) device.nics = other.nics;
  if (device.peers.empty()) device.peers = other.peers;
}

void complete(Cpu& cpu, const Cpu& other) {
  prefer(cpu.affinity, other.affinity, std::string());
  prefer(cpu.arch, other.arch, std::string());
  prefer(cpu.vendor, other.vendor, std::string());
  prefer(cpu.family, other.family, 0);
  prefer(cpu.model, other.model, 0);
  prefer(cpu.host_hash, other.host_hash, std::string());
}

/// A device of the base that the file does not place: it stays where it was, without what the file has taken elsewhere.
bool keep_unplaced(const Pci& device, const std::set<BusId>& placed, std::vector<Pci>& out) {
  if (placed.contains(device.bus)) {
    bool kept = false;
    for (const Pci& child : device.children) kept = keep_unplaced(child, placed, out) || kept;
    return kept;
  }
  Pci copy = device;
  copy.children.clear();
  for (const Pci& child : device.children) keep_unplaced(child, placed, copy.children);
  const bool was_switch = !device.children.empty();
  if (was_switch && copy.children.empty() && !copy.gpu && copy.nics.empty()) return false;  // all moved away
  out.push_back(std::move(copy));
  return true;
}

Cpu* cpu_of(Document& document, int numa) {
  for (Cpu& cpu : document.cpus) {
    if (cpu.numa == numa) return &cpu;
  }
  return nullptr;
}

std::set<std::string> names_of_ports(const Document& document) {
  std::set<std::string> names;
  const auto add = [&](const std::vector<Nic>& nics) {
    for (const Nic& nic : nics) {
      for (const Net& net : nic.nets) names.insert(net.name);
    }
  };
  for (const Cpu& cpu : document.cpus) add(cpu.nics);
  for_each_device(document, [&](const Pci& device) { add(device.nics); });
  return names;
}

/// Virtual adapters of the base whose ports the file does not name anywhere.
void keep_virtual(const Cpu& cpu, const std::set<std::string>& named, Cpu& out) {
  for (Nic nic : cpu.nics) {
    std::erase_if(nic.nets, [&](const Net& net) { return named.contains(net.name); });
    if (!nic.nets.empty()) out.nics.push_back(std::move(nic));
  }
}

}  // namespace

Result<Document> merge(const Document& base, const Document& over) {
  if (over.cpus.empty()) return base;
  if (base.cpus.empty()) return over;
  Document merged = over;
  merged.source = fmt::format("{} over {}", over.source, base.source);
  prefer(merged.name, base.name, std::string());
  merged.version = std::max(base.version, over.version);
  std::set<BusId> placed;
  for_each_device(over, [&](const Pci& device) { placed.insert(device.bus); });
  for_each_device(merged, [&](Pci& device) {
    if (const Pci* known = base.find(device.bus)) complete(device, *known);
  });
  const std::set<std::string> named = names_of_ports(over);
  for (const Cpu& cpu : base.cpus) {
    Cpu* home = cpu_of(merged, cpu.numa);
    Cpu rest = cpu;
    rest.pci.clear();
    rest.nics.clear();
    Cpu& target = home != nullptr ? *home : rest;
    if (home != nullptr) complete(*home, cpu);
    for (const Pci& device : cpu.pci) keep_unplaced(device, placed, target.pci);
    keep_virtual(cpu, named, target);
    // A NUMA node that the file leaves out and that holds nothing more is still a place for threads.
    if (home == nullptr) merged.cpus.push_back(std::move(rest));
  }
  return merged;
}

Result<uint32_t> complete_overlay(Document& document, const std::vector<BusId>& gpus, double mbps, int sm) {
  for (const BusId& bus : gpus) {
    if (document.find(bus) != nullptr) continue;
    return Status(Code::kNotFound,
                  fmt::format("{} has no device {}; name one that it places", document.source, bus.text()));
  }
  std::vector<Pci*> made;
  uint32_t count = 0;
  int next_port = 0;
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
      net.name = fmt::format("net{}", next_port);
      net.dev = next_port++;
      net.mbps = mbps;
      net.direct = true;
      device.nics.push_back({{std::move(net)}, {}});
    }
    count += device.gpu ? 1 : 0;
  });
  std::sort(made.begin(), made.end(), [](const Pci* a, const Pci* b) { return a->bus < b->bus; });
  for (size_t i = 0; i < made.size(); ++i) made[i]->gpu->dev = static_cast<int>(i);
  return count;
}

}  // namespace tutti::topology
