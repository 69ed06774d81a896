// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <tuple>

#include "topology/builder.h"

namespace tutti::topology {
namespace {

auto key(const Net& net) {
  return std::tuple(net.port, std::string_view(net.name), net.dev, net.guid);
}

void put_in_order(std::vector<Nic>& nics) {
  std::erase_if(nics, [](const Nic& nic) { return nic.nets.empty(); });
  for (Nic& nic : nics) std::ranges::sort(nic.nets, {}, [](const Net& net) { return key(net); });
  std::ranges::sort(nics, {}, [](const Nic& nic) { return key(nic.nets.front()); });
}

void put_in_order(std::vector<Pci>& devices) {
  for (Pci& device : devices) {
    put_in_order(device.nics);
    put_in_order(device.children);
  }
  std::erase_if(devices,
                [](const Pci& device) { return !device.gpu && device.nics.empty() && device.children.empty(); });
  std::ranges::sort(devices, {}, &Pci::bus);
}

}  // namespace

Document in_order(Document document) {
  for (Cpu& cpu : document.cpus) {
    put_in_order(cpu.nics);
    put_in_order(cpu.pci);
  }
  std::ranges::sort(document.cpus, {}, [](const Cpu& cpu) {
    const auto numa = static_cast<uint32_t>(cpu.numa);  // nodes without a number come last
    return std::tuple(numa, cpu.pci.empty() ? UINT64_MAX : cpu.pci.front().bus.value);
  });
  return document;
}

}  // namespace tutti::topology
