// SPDX-License-Identifier: Apache-2.0
#include "communicator/machine.h"

#include <fmt/format.h>
#include <sched.h>

#include <fstream>

#include "topology/discover.h"

namespace tutti::communicator {
namespace {

std::vector<topology::NetDevice> ports_of(const transport::Net& network) {
  std::vector<topology::NetDevice> ports;
  for (const transport::Net::Device& device : network.devices()) {
    const tutti_net_properties& properties = device.properties;
    topology::NetDevice port;
    port.name.assign(properties.name.data, properties.name.size);
    port.dev = static_cast<int>(device.index);
    port.speed_gbs = properties.speed_gbs;
    port.latency_us = properties.latency_us;
    port.pci_path.assign(properties.pci_path.data, properties.pci_path.size);
    port.guid = properties.guid;
    port.port = static_cast<int>(properties.port);
    port.rail = properties.rail;
    port.direct = (properties.memory & TUTTI_MEMORY_CUDA) != 0;
    ports.push_back(std::move(port));
  }
  return ports;
}

}  // namespace

std::optional<topology::Cpu> current_numa_node() {
  unsigned cpu = 0;
  unsigned node = 0;
  if (getcpu(&cpu, &node) != 0) return std::nullopt;
  std::ifstream file(fmt::format("/sys/devices/system/node/node{}/cpumap", node));
  topology::Cpu home;
  home.numa = static_cast<int>(node);
  if (!(file >> home.affinity)) return std::nullopt;
  return home;
}

Result<topology::System> describe_machine(const MachineOptions& options) {
  topology::DiscoverOptions discovery;
  if (options.network != nullptr) discovery.nets = ports_of(*options.network);
  TUTTI_ASSIGN(topology::Document machine, topology::discover(discovery));
  if (!options.file.empty()) {
    TUTTI_ASSIGN(const topology::Document file, topology::Document::load(options.file));
    TUTTI_ASSIGN(machine, topology::merge(machine, file));
  }
  topology::BuildOptions build;
  build.ranks = options.ranks;
  build.networks = options.network != nullptr;
  build.host_gbs = options.host_gbs;
  return topology::System::build(machine, build);
}

}  // namespace tutti::communicator
