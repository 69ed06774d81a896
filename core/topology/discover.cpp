// SPDX-License-Identifier: Apache-2.0
#include "topology/discover.h"

#include <fmt/format.h>
#include <hwloc.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <mutex>
#include <optional>

#include "base/fd.h"
#include "base/fork.h"
#include "topology/affinity.h"
#include "topology/nvml.h"

namespace tutti::topology {
namespace {

constexpr uint32_t kBaseDisplay = 0x03;
constexpr uint32_t kBaseNetwork = 0x02;
constexpr uint32_t kClassGpu = 0x030200;
// Displays of all other vendors belong to service processors.
constexpr uint32_t kNvidia = 0x10de, kAmd = 0x1002, kIntel = 0x8086;

struct Destroy {
  void operator()(hwloc_topology* topology) const { hwloc_topology_destroy(topology); }
};
using Hwloc = std::unique_ptr<hwloc_topology, Destroy>;
using HwlocPci = decltype(hwloc_obj_attr_u::pcidev);

Result<Hwloc> load_hwloc(const std::string& xml) {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) return base::system_error("hwloc cannot start");
  Hwloc topology(raw);
  // These components ask drivers, which takes long and may start them; NVML lists the GPUs. "pci" (libpciaccess, which
  // leaks) is a plugin of hwloc; without it, hwloc reads sysfs.
  for (const char* driver : {"cuda", "nvml", "opencl", "gl", "rsmi", "levelzero", "pci"}) {
    hwloc_topology_set_components(raw, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, driver);
  }
  hwloc_topology_set_cache_types_filter(raw, HWLOC_TYPE_FILTER_KEEP_NONE);
  hwloc_topology_set_io_types_filter(raw, HWLOC_TYPE_FILTER_KEEP_ALL);
  // All processes of a machine see the same machine, with any cgroups.
  hwloc_topology_set_flags(raw, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED);
  if (!xml.empty() && hwloc_topology_set_xml(raw, xml.c_str()) != 0) {
    return base::system_error(fmt::format("hwloc cannot read {}", xml));
  }
  if (hwloc_topology_load(raw) != 0) {
    return base::system_error(fmt::format("hwloc finds no topology in {}", xml.empty() ? "this machine" : xml));
  }
  return topology;
}

BusId bus_id(const HwlocPci& pci) {
  return {uint64_t{pci.domain} << 20 | uint64_t{pci.bus} << 12 | uint64_t{pci.dev} << 4 | pci.func};
}

std::string info(hwloc_obj_t object, const char* name) {
  const char* value = hwloc_obj_get_info_by_name(object, name);
  return value == nullptr ? "" : value;
}

/// The device of a path in sysfs: its last part that is a PCI address.
std::optional<BusId> bus_of(const std::string& pci_path) {
  std::error_code error;
  const auto real = std::filesystem::weakly_canonical(pci_path, error);  // follows "/sys/class/net/eth0/device"
  std::optional<BusId> last;
  for (const auto& part : error ? std::filesystem::path(pci_path) : real) {
    if (part.string().find('.') == std::string::npos) continue;
    if (const auto bus = BusId::parse(part.string()); bus.ok()) last = *bus;
  }
  return last;
}

bool is_gpu(const Pci& pci) {
  const bool by_vendor = pci.vendor == kNvidia || pci.vendor == kAmd || pci.vendor == kIntel;
  return pci.gpu || (pci.pci_class >> 16 == kBaseDisplay && by_vendor);
}

/// Removes branches that lead to no GPU and no network.
void prune(std::vector<Pci>& devices) {
  for (Pci& pci : devices) prune(pci.children);
  std::erase_if(devices, [](const Pci& pci) {
    return pci.children.empty() && pci.nics.empty() && !is_gpu(pci) && pci.pci_class >> 16 != kBaseNetwork;
  });
}

class Discovery {
 public:
  Discovery(const DiscoverOptions& options, hwloc_topology_t topology) : options_(options), topology_(topology) {}

  Document run() {
    document_.source = options_.hwloc_xml.empty() ? "this machine" : options_.hwloc_xml;
    add_cpus();
    add_devices_below(hwloc_get_root_obj(topology_));
    for (const NvmlGpu& gpu : nvml_gpus(options_.nvml)) add_gpu(gpu);
    for (const NetDevice& net : options_.nets) add_net(net);
    for (Cpu& cpu : document_.cpus) prune(cpu.pci);
    return std::move(document_);
  }

 private:
  void add_cpus();
  Cpu cpu_of(hwloc_obj_t node, const CpuSet& processors) const;
  void add_devices_below(hwloc_obj_t object);
  void add_devices(hwloc_obj_t bridge, bool ports, std::vector<Pci>& to) const;
  Pci pci_of(const HwlocPci& attributes) const;
  std::string sysfs(BusId bus, const char* attribute) const;
  void read_link(Pci& pci) const;
  Cpu& home_of(BusId bus, hwloc_const_nodeset_t near);
  Pci& device(BusId bus);
  void add_gpu(const NvmlGpu& found);
  void add_net(const NetDevice& device);

  const DiscoverOptions& options_;
  hwloc_topology_t topology_;
  Document document_;
};

/// NUMA nodes with processors. hwloc gives memory without processors (HBM, CXL, that of a GPU) the processors beside
/// it.
void Discovery::add_cpus() {
  CpuSet seen;
  hwloc_obj_t node = nullptr;
  while ((node = hwloc_get_next_obj_by_type(topology_, HWLOC_OBJ_NUMANODE, node)) != nullptr) {
    CpuSet processors;
    for (int cpu = hwloc_bitmap_first(node->cpuset); cpu >= 0; cpu = hwloc_bitmap_next(node->cpuset, cpu)) {
      processors.push_back(cpu);
    }
    if (intersect(processors, seen) == processors && !document_.cpus.empty()) continue;
    document_.cpus.push_back(cpu_of(node, processors));
    seen.insert(seen.end(), processors.begin(), processors.end());
    std::ranges::sort(seen);
  }
  std::ranges::sort(document_.cpus, {}, &Cpu::numa);
}

Cpu Discovery::cpu_of(hwloc_obj_t node, const CpuSet& processors) const {
  hwloc_obj_t package = hwloc_get_ancestor_obj_by_type(topology_, HWLOC_OBJ_PACKAGE, node);
  if (package == nullptr) package = hwloc_get_obj_by_type(topology_, HWLOC_OBJ_PACKAGE, 0);
  if (package == nullptr) package = hwloc_get_root_obj(topology_);
  Cpu cpu;
  cpu.numa = node->os_index == HWLOC_UNKNOWN_INDEX ? 0 : static_cast<int>(node->os_index);
  cpu.affinity = format_cpu_mask(processors);
  cpu.vendor = info(package, "CPUVendor");
  cpu.family = std::atoi(info(package, "CPUFamilyNumber").c_str());
  cpu.model = std::atoi(info(package, "CPUModelNumber").c_str());
  const std::string arch = info(hwloc_get_root_obj(topology_), "Architecture");
  cpu.arch = arch == "aarch64" ? "arm64" : arch.starts_with("ppc64") ? "ppc64" : arch;
  return cpu;
}

void Discovery::add_devices_below(hwloc_obj_t object) {
  std::vector<Pci> devices;
  add_devices(object, true, devices);
  for (Pci& pci : devices) home_of(pci.bus, object->nodeset).pci.push_back(std::move(pci));
  for (auto* child = object->first_child; child != nullptr; child = child->next_sibling) add_devices_below(child);
}

/// Bridges come in pairs on the way down: root port and the switch's upstream port, then its downstream port and the
/// next switch's upstream port. The first of each pair (`ports`) is left out, so that a switch is one device.
void Discovery::add_devices(hwloc_obj_t bridge, bool ports, std::vector<Pci>& to) const {
  for (auto* child = bridge->io_first_child; child != nullptr; child = child->next_sibling) {
    if (child->type == HWLOC_OBJ_PCI_DEVICE) {
      to.push_back(pci_of(child->attr->pcidev));
    } else if (child->type == HWLOC_OBJ_BRIDGE && child->attr->bridge.upstream_type == HWLOC_OBJ_BRIDGE_HOST) {
      add_devices(child, ports, to);
    } else if (child->type == HWLOC_OBJ_BRIDGE && ports) {
      add_devices(child, false, to);
    } else if (child->type == HWLOC_OBJ_BRIDGE) {
      Pci& pci = to.emplace_back(pci_of(child->attr->bridge.upstream.pci));
      add_devices(child, true, pci.children);
    }
  }
}

Pci Discovery::pci_of(const HwlocPci& attributes) const {
  Pci pci;
  pci.bus = bus_id(attributes);
  pci.pci_class = uint32_t{attributes.class_id} << 8;
  pci.vendor = attributes.vendor_id;
  pci.device = attributes.device_id;
  pci.subsystem_vendor = attributes.subvendor_id;
  pci.subsystem_device = attributes.subdevice_id;
  read_link(pci);
  return pci;
}

/// The first line of an attribute of a device, or of its port ("../..."); empty where there is none.
std::string Discovery::sysfs(BusId bus, const char* attribute) const {
  std::string line;
  if (options_.sysfs.empty()) return line;
  std::ifstream file(fmt::format("{}/bus/pci/devices/{}/{}", options_.sysfs, bus.text(), attribute));
  std::getline(file, line);
  return line;
}

/// The link speed and width that device and port have in common.
void Discovery::read_link(Pci& pci) const {
  for (const char* attribute : {"max_link_speed", "../max_link_speed"}) {  // "16.0 GT/s PCIe", or "Unknown"
    const std::string text = sysfs(pci.bus, attribute);
    const double speed = std::atof(text.c_str());
    if (speed > 0 && (pci.link_speed.empty() || speed < std::atof(pci.link_speed.c_str()))) pci.link_speed = text;
  }
  for (const char* attribute : {"max_link_width", "../max_link_width"}) {  // 255: unknown
    const int width = std::atoi(sysfs(pci.bus, attribute).c_str());
    if (width <= 0 || width >= 255) continue;
    pci.link_width =
        pci.link_width == 0 ? static_cast<uint32_t>(width) : std::min(pci.link_width, static_cast<uint32_t>(width));
  }
}

/// The NUMA node of a device among the nodes `near` it (null: all nodes). If exactly one node is near, that node; else
/// the node that sysfs names.
Cpu& Discovery::home_of(BusId bus, hwloc_const_nodeset_t near) {
  const auto is_near = [near](const Cpu& cpu) {
    return near == nullptr || hwloc_bitmap_isset(near, static_cast<unsigned>(cpu.numa)) != 0;
  };
  auto& cpus = document_.cpus;
  if (std::ranges::count_if(cpus, is_near) != 1) {
    const std::string numa = sysfs(bus, "numa_node");
    const auto said = std::ranges::find(cpus, numa.empty() ? -1 : std::atoi(numa.c_str()), &Cpu::numa);
    if (said != cpus.end()) return *said;
  }
  const auto first = std::ranges::find_if(cpus, is_near);
  return first == cpus.end() ? cpus.front() : *first;
}

/// A device of the tree. A device that hwloc did not see (in a container) stands directly at its NUMA node.
Pci& Discovery::device(BusId bus) {
  if (Pci* known = document_.find(bus)) return *known;
  Pci& pci = home_of(bus, nullptr).pci.emplace_back();
  pci.bus = bus;
  pci.pci_class = static_cast<uint32_t>(std::strtoul(sysfs(bus, "class").c_str(), nullptr, 16));
  read_link(pci);
  return pci;
}

void Discovery::add_gpu(const NvmlGpu& found) {
  Pci& pci = device(found.bus);
  if (pci.pci_class == 0) pci.pci_class = kClassGpu;
  pci.vendor = found.vendor;
  pci.device = found.device;
  pci.subsystem_vendor = found.subsystem_vendor;
  pci.subsystem_device = found.subsystem_device;
  pci.gpu = found.gpu;
}

void Discovery::add_net(const NetDevice& device) {
  Net net;
  net.name = device.name;
  net.dev = device.dev;
  net.mbps = device.speed_gbs * 8e3;
  net.port = device.port;
  net.latency_us = device.latency_us;
  net.guid = device.guid;
  net.direct = device.direct;
  net.rail = device.rail;
  const auto bus = bus_of(device.pci_path);
  auto& nics = bus ? this->device(*bus).nics : document_.cpus.front().nics;
  if (nics.empty() || !bus) nics.emplace_back();  // ports of one PCI device are of one adapter
  nics.back().nets.push_back(std::move(net));
}

}  // namespace

Result<Document> discover(const DiscoverOptions& options) {
  // hwloc asks libudev, which seeds its hashes once per process and without a lock.
  static std::mutex& mutex = base::process_mutex();
  const std::lock_guard lock(mutex);
  TUTTI_ASSIGN(const Hwloc topology, load_hwloc(options.hwloc_xml));
  return Discovery(options, topology.get()).run();
}

}  // namespace tutti::topology
