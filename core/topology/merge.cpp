// SPDX-License-Identifier: Apache-2.0
// Merges two documents of one machine, and makes devices of places.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <string_view>
#include <type_traits>
#include <utility>

#include "topology/document.h"

namespace tutti::topology {
namespace {

constexpr uint32_t kDisplay = 0x03;
constexpr uint32_t kNetwork = 0x02;

uint32_t base_class(const Pci& device) {
  return device.pci_class >> 16;
}

bool is_unknown(const Cpu& cpu) {
  return cpu.numa < 0;
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

/// Calls visit(adapters) for the adapters of each CPU and each device.
template <class AnyDocument, class Visit>
void for_each_place(AnyDocument& document, Visit&& visit) {
  for (auto& cpu : document.cpus) visit(cpu.nics);
  for_each_device(document, [&](auto& device) { visit(device.nics); });
}
template <class AnyDocument, class Visit>
void for_each_port(AnyDocument& document, Visit&& visit) {
  for_each_place(document, [&](auto& adapters) {
    for (auto& adapter : adapters) std::ranges::for_each(adapter.nets, visit);
  });
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

void complete(Net& port, const Net& other) {
  prefer(port.name, other.name, std::string());
  prefer(port.dev, other.dev, -1);
  prefer(port.mbps, other.mbps, 0.0);
  prefer(port.port, other.port, 0);
  prefer(port.latency_us, other.latency_us, 0.0);
  prefer(port.guid, other.guid, uint64_t{0});
  prefer(port.max_connections, other.max_connections, int64_t{0});
  port.direct = port.direct || other.direct;
  prefer(port.rail, other.rail, -1);
}

/// Fills the open values of `device` from `other`. Its children and ports do not change.
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
  if (device.peers.empty()) device.peers = other.peers;
}

void complete(Cpu& cpu, const Cpu& other) {
  prefer(cpu.numa, other.numa, -1);
  prefer(cpu.affinity, other.affinity, std::string());
  prefer(cpu.processors, other.processors, 0.0);
  prefer(cpu.arch, other.arch, std::string());
  prefer(cpu.vendor, other.vendor, std::string());
  prefer(cpu.family, other.family, 0);
  prefer(cpu.model, other.model, 0);
  prefer(cpu.host_hash, other.host_hash, std::string());
}

/// For each CPU of the base, the index of the same NUMA node in the file, or past its end. Two CPUs with an unknown
/// node are the same if both documents have no further CPU. They are also the same if both documents have equally many
/// CPUs with an unknown node: then they are matched in order.
std::vector<size_t> same_nodes(const Document& base, const Document& over) {
  const auto unknown = [](const Document& at) { return std::ranges::count_if(at.cpus, is_unknown); };
  const bool only = base.cpus.size() == 1 && over.cpus.size() == 1;
  const bool in_order = unknown(base) == unknown(over);
  std::vector<bool> taken(over.cpus.size());
  std::vector<size_t> nodes;
  for (const Cpu& cpu : base.cpus) {
    const auto is_same = [&](const Cpu& other) {
      if (cpu.numa == other.numa) return in_order || !is_unknown(cpu);
      return only && (is_unknown(cpu) || is_unknown(other));
    };
    size_t at = 0;
    while (at < over.cpus.size() && (taken[at] || !is_same(over.cpus[at]))) ++at;
    if (at < over.cpus.size()) taken[at] = true;
    nodes.push_back(at);
  }
  return nodes;
}

using Devices = std::map<BusId, const Pci*>;

Devices devices_of(const Document& document) {
  Devices devices;
  for_each_device(document, [&](const Pci& device) { devices.emplace(device.bus, &device); });
  return devices;
}

/// By the addresses of their adapters: ports that lie beside a CPU or on a device of the base, and the same place in
/// the file.
using Places = std::map<const std::vector<Nic>*, const std::vector<Nic>*>;

Places same_places(const Document& base, const Document& over, const std::vector<size_t>& nodes,
                   const Devices& placed) {
  Places places;
  for (size_t i = 0; i < base.cpus.size(); ++i) {
    if (nodes[i] < over.cpus.size()) places[&base.cpus[i].nics] = &over.cpus[nodes[i]].nics;
  }
  for_each_device(base, [&](const Pci& device) {
    const auto found = placed.find(device.bus);
    if (found != placed.end()) places[&device.nics] = &found->second->nics;
  });
  return places;
}

/// The matching between ports of the file and ports of the base. A port is identified by its name, not by its place.
/// The ports of an adapter may share their name: then the number decides. If one of two ports has no name, the place
/// decides.
class Ports {
 public:
  Ports(const Document& base, const Document& over, Places places) : places_(std::move(places)) {
    const auto same = [](const std::vector<Nic>& place) { return &place; };
    const std::vector<Port> known = ports_of(base, [&](const std::vector<Nic>& place) { return place_of(place); });
    placed_ = ports_of(over, same);
    const auto any_number = [](const Net& a, const Net& b) { return a.port == b.port || a.port == 0 || b.port == 0; };
    pair_up(
        known, [](const Port& port) { return std::pair(std::string_view(port.net->name), port.net->port); },
        [](const Net& a, const Net&) { return !a.name.empty(); });
    pair_up(
        known, [](const Port& port) { return std::string_view(port.net->name); },
        [&](const Net& a, const Net& b) { return !a.name.empty() && any_number(a, b); });
    pair_up(
        known, [](const Port& port) { return port.place; },
        [&](const Net& a, const Net& b) { return (a.name.empty() || b.name.empty()) && any_number(a, b); });
  }

  /// Fills the open values of the file's ports from the base. `merged` still equals the file.
  void complete_all(Document& merged) const {
    auto placed = placed_.begin();
    for_each_port(merged, [&](Net& port) {
      const auto known = known_.find((placed++)->net);
      if (known != known_.end()) complete(port, *known->second);
    });
  }

  /// Adds to `adapters` the ports of the base that the file does not have: to the adapter that has ports of the same
  /// adapter at this place, or as an adapter of their own.
  void add_rest(const std::vector<Nic>& of_base, std::vector<Nic>& adapters) const {
    const std::vector<Nic>* place = place_of(of_base);
    for (const Nic& adapter : of_base) {
      Nic rest{{}, adapter.position};
      Nic* home = nullptr;
      for (const Net& port : adapter.nets) {
        const auto taken = taken_.find(&port);
        if (taken == taken_.end()) {
          rest.nets.push_back(port);
        } else if (home == nullptr && taken->second->place == place) {
          home = &adapters[taken->second->adapter];
        }
      }
      const bool is_kept = adapter.nets.empty() && (place == nullptr || place->empty());
      if (home != nullptr) {
        std::ranges::move(rest.nets, std::back_inserter(home->nets));
      } else if (is_kept || !rest.nets.empty()) {
        adapters.push_back(std::move(rest));
      }
    }
  }

 private:
  struct Port {
    const Net* net;
    const std::vector<Nic>* place;  // place in the file; null: the file does not have it
    size_t adapter;                 // index of the adapter at its place
  };

  const std::vector<Nic>* place_of(const std::vector<Nic>& of_base) const {
    const auto found = places_.find(&of_base);
    return found == places_.end() ? nullptr : found->second;
  }

  template <class PlaceOf>
  static std::vector<Port> ports_of(const Document& document, PlaceOf&& place_of) {
    std::vector<Port> ports;
    for_each_place(document, [&](const std::vector<Nic>& adapters) {
      for (size_t i = 0; i < adapters.size(); ++i) {
        for (const Net& port : adapters[i].nets) ports.push_back({&port, place_of(adapters), i});
      }
    });
    return ports;
  }

  /// Each port of the file that has none yet takes the first of the base that is free, has the same key and is the
  /// same.
  template <class Key, class IsSame>
  void pair_up(const std::vector<Port>& known, Key&& key, IsSame&& is_same) {
    std::multimap<std::invoke_result_t<Key, const Port&>, const Net*> free;  // equal keys stay in order
    for (const Port& port : known) {
      if (!taken_.contains(port.net)) free.emplace(key(port), port.net);
    }
    for (const Port& port : placed_) {
      if (known_.contains(port.net)) continue;
      const auto [first, last] = free.equal_range(key(port));
      const auto found =
          std::find_if(first, last, [&](const auto& other) { return is_same(*port.net, *other.second); });
      if (found == last) continue;
      known_[port.net] = found->second;
      taken_[found->second] = &port;
      free.erase(found);
    }
  }

  const Places places_;
  std::vector<Port> placed_;                 // the file's, in its order
  std::map<const Net*, const Net*> known_;   // port of the base, by the port of the file
  std::map<const Net*, const Port*> taken_;  // port of the file, by the port of the base
};

/// Devices of the base that the file does not place.
class Unplaced {
 public:
  Unplaced(const Devices& placed, const Ports& ports) : placed_(placed), ports_(ports) {}

  /// Adds to `out` the parts of a device that stay at their place in the base. Entries below a placed device stay below
  /// it, until attach(). A switch that became empty is removed.
  void take(const Pci& device, std::vector<Pci>& out) {
    const bool moved = placed_.contains(device.bus);
    Pci copy = device;
    copy.nics.clear();
    copy.children.clear();
    if (!moved) ports_.add_rest(device.nics, copy.nics);
    for (const Pci& child : device.children) take(child, moved ? below_[device.bus] : copy.children);
    const bool emptied = !device.children.empty() && copy.children.empty() && !copy.gpu && copy.nics.empty();
    if (!moved && !emptied) out.push_back(std::move(copy));
  }

  void attach(Document& merged) {
    for_each_device(merged, [&](Pci& device) {
      const auto found = below_.find(device.bus);
      if (found == below_.end()) return;
      std::ranges::move(found->second, std::back_inserter(device.children));
      below_.erase(found);
    });
  }

 private:
  const Devices& placed_;
  const Ports& ports_;
  std::map<BusId, std::vector<Pci>> below_;  // by placed device
};

/// A device cannot be a GPU to the one and an adapter to the other.
Status check_same_kind(const Pci& device, const Document& over, const Pci& known, const Document& base) {
  const bool is_gpu = device.gpu && !known.gpu && !known.nics.empty();
  const bool is_adapter = known.gpu && !device.gpu && !device.nics.empty();
  if (!is_gpu && !is_adapter) return {};
  return {Code::kConfig,
          fmt::format("{}:{}: {} is a {} here and a {} in {}; correct the one that is wrong", over.source,
                      device.position.line, device.bus.text(), is_gpu ? "GPU" : "network adapter",
                      is_gpu ? "network adapter" : "GPU", base.source)};
}

/// Fills the open values and adds the further ports of the file's devices. `merged` has only the file's devices yet.
Status complete_devices(Document& merged, const Document& over, const Document& base, const Ports& ports) {
  Devices known = devices_of(base);
  Status kinds;
  for_each_device(merged, [&](Pci& device) {
    const auto found = known.find(device.bus);
    if (found == known.end()) return;
    if (kinds.ok()) kinds = check_same_kind(device, over, *found->second, base);
    complete(device, *found->second);
    ports.add_rest(found->second->nics, device.nics);
    known.erase(found);  // a second device of this address stays as it is, for System::build() to refuse
  });
  return kinds;
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
  const Devices placed = devices_of(over);
  const std::vector<size_t> nodes = same_nodes(base, over);
  const Ports ports(base, over, same_places(base, over, nodes, placed));
  ports.complete_all(merged);
  TUTTI_TRY(complete_devices(merged, over, base, ports));
  Unplaced unplaced(placed, ports);
  for (size_t i = 0; i < base.cpus.size(); ++i) {
    const Cpu& cpu = base.cpus[i];
    // A NUMA node that the file leaves out and that holds nothing more is still a place for threads.
    const bool is_new = nodes[i] == over.cpus.size();
    Cpu& home = is_new ? merged.cpus.emplace_back() : merged.cpus[nodes[i]];
    if (is_new) home.position = cpu.position;
    complete(home, cpu);
    for (const Pci& device : cpu.pci) unplaced.take(device, home.pci);
    ports.add_rest(cpu.nics, home.nics);
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
