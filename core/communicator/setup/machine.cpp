// SPDX-License-Identifier: Apache-2.0
#include "communicator/setup/machine.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sched.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <span>

#include "log/log.h"
#include "topology/check.h"
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
    port.direct = (properties.memory & (TUTTI_MEMORY_CUDA | TUTTI_MEMORY_DMABUF)) != 0;
    ports.push_back(std::move(port));
  }
  return ports;
}

/// The ports that a file names, and the number of ports among them that this machine has.
struct Named {
  std::vector<std::string> ports;
  size_t known = 0;
};

/// A file may name ports of networks that are not in use here: only the ports of this network stay, with its numbers.
void keep_ports(std::vector<topology::Nic>& nics, const std::vector<topology::NetDevice>& ports, Named& named) {
  for (topology::Nic& nic : nics) {
    for (const topology::Net& net : nic.nets) {
      if (!net.name.empty()) named.ports.push_back(net.name);
    }
    std::erase_if(nic.nets, [&](topology::Net& net) {
      const auto port =
          std::find_if(ports.begin(), ports.end(), [&](const auto& known) { return known.name == net.name; });
      if (port == ports.end()) return true;
      net.dev = port->dev;
      if (net.mbps <= 0) net.mbps = port->speed_gbs * 8000;
      return false;
    });
    named.known += nic.nets.size();
  }
}
void keep_ports(std::vector<topology::Pci>& devices, const std::vector<topology::NetDevice>& ports, Named& named) {
  for (topology::Pci& device : devices) {
    keep_ports(device.nics, ports, named);
    keep_ports(device.children, ports, named);
  }
}

std::string names_of(std::span<const std::string> names) {
  constexpr size_t kMost = 8;
  const auto first = names.first(std::min(names.size(), kMost));
  return fmt::format("{}{}", fmt::join(first, ", "), names.size() > kMost ? ", ..." : "");
}

/// Keeps the ports of the job's first network. Warns if the job has none of the file's ports.
void keep_ports(topology::Document& file, const MachineOptions& options,
                const std::vector<topology::NetDevice>& ports) {
  Named named;
  for (topology::Cpu& cpu : file.cpus) {
    keep_ports(cpu.nics, ports, named);
    keep_ports(cpu.pci, ports, named);
  }
  if (named.ports.empty() || named.known > 0 || options.network == nullptr || options.other_networks) return;
  std::vector<std::string> here;
  for (const topology::NetDevice& port : ports) here.push_back(port.name);
  log::warn(
      "{}: its network ports are {}, but network '{}' has {} in this machine; is it the file of a different machine or "
      "network?",
      file.source, names_of(named.ports), options.network->options().name, names_of(here));
}

std::optional<topology::Cpu> numa_node(int node, const std::string& nodes) {
  std::ifstream file(fmt::format("{}/node{}/cpumap", nodes, node));
  topology::Cpu home;
  home.numa = node;
  if (!(file >> home.affinity)) return std::nullopt;
  return home;
}

/// Places host ranks as `tutti search` does: in the order of the ranks, on the GPUs of the file in PCI order.
Status stand_in(const topology::Document& file, std::vector<topology::RankPlace>& ranks) {
  const std::vector<topology::BusId> gpus = file.gpus();
  if (gpus.size() < ranks.size()) {
    return {Code::kConfig,
            fmt::format("topology.host_ranks is 'gpu', but {} ranks of this host do not fit on {} GPUs of "
                        "{}; start fewer ranks here, or describe a GPU for each rank",
                        ranks.size(), gpus.size(), file.source)};
  }
  for (auto gpu = gpus.begin(); topology::RankPlace & rank : ranks) {
    rank.on_gpu = true;
    rank.gpu = *gpu++;
  }
  return {};
}

/// Warns of a file whose GPUs are all unknown here. The kernel's list of devices may be hidden from a container, so the
/// GPUs of the ranks count as known, too.
void warn_if_foreign(const topology::Document& file, const topology::Document& machine,
                     const std::vector<topology::RankPlace>& ranks) {
  const std::vector<topology::BusId> given = file.gpus();
  const std::vector<topology::BusId> here = machine.gpus();
  std::set<topology::BusId> known(here.begin(), here.end());
  for (const topology::RankPlace& rank : ranks) {
    if (rank.computes) known.insert(rank.gpu);
  }
  const auto is_known = [&](const topology::BusId& gpu) { return known.contains(gpu); };
  if (given.empty() || std::any_of(given.begin(), given.end(), is_known)) return;
  log::warn(
      "{}: none of its {} GPUs is in this machine, although figures and choices follow the file; is it the file "
      "of a different machine? To let host ranks stand for its GPUs, set topology.host_ranks to gpu",
      file.source, given.size());
}

}  // namespace

void place_on_gpus(std::vector<topology::RankPlace>& ranks, std::span<const std::string> addresses,
                   bool reach_each_other) {
  bool all_known = true;
  for (topology::RankPlace& rank : ranks) {
    rank.computes = true;
    if (rank.rank < addresses.size()) {
      if (const auto bus = topology::BusId::parse(addresses[rank.rank]); bus.ok()) rank.gpu = *bus;
    }
    all_known = all_known && rank.gpu != topology::BusId();
  }
  for (topology::RankPlace& rank : ranks) rank.on_gpu = all_known && reach_each_other;
}

std::optional<topology::Cpu> current_numa_node() {
  unsigned cpu = 0;
  unsigned node = 0;
  if (getcpu(&cpu, &node) != 0) return std::nullopt;
  return numa_node(static_cast<int>(node), "/sys/devices/system/node");
}

std::optional<topology::Cpu> numa_node_of(const std::string& address, const std::string& devices,
                                          const std::string& nodes) {
  const auto bus = topology::BusId::parse(address);
  if (!bus.ok()) return std::nullopt;
  int node = -1;
  std::ifstream file(fmt::format("{}/{}/numa_node", devices, bus->text()));
  if (!(file >> node) || node < 0) return std::nullopt;  // -1: the firmware does not say it
  return numa_node(node, nodes);
}

Result<topology::System> describe_machine(const MachineOptions& options) {
  topology::DiscoverOptions discovery;
  if (options.network != nullptr) discovery.nets = ports_of(*options.network);
  TUTTI_ASSIGN(topology::Document machine, topology::discover(discovery));
  topology::BuildOptions build;
  build.ranks = options.ranks;
  if (options.stand_in && options.file.empty()) {
    return Status(Code::kConfig,
                  "topology.host_ranks is 'gpu', but no file gives the GPUs; name one in topology.file, or "
                  "set topology.host_ranks to numa");
  }
  if (!options.file.empty()) {
    TUTTI_ASSIGN(topology::Document file, topology::Document::load(options.file));
    topology::warn_of_errors(file);
    keep_ports(file, options, discovery.nets);
    if (options.stand_in) {
      TUTTI_TRY(stand_in(file, build.ranks));
    } else {
      warn_if_foreign(file, machine, build.ranks);
    }
    TUTTI_ASSIGN(machine, topology::merge(machine, file));
  }
  build.networks = options.network != nullptr;
  build.second_gpus = options.second_gpus;
  build.hardware = options.hardware;
  if (options.network != nullptr) build.network = options.network->options().name;
  auto system = topology::System::build(machine, build);
  const auto on_gpu = [](const topology::RankPlace& rank) { return rank.on_gpu; };
  if (system.ok() || options.stand_in || std::none_of(build.ranks.begin(), build.ranks.end(), on_gpu)) return system;
  log::info("ranks are placed by NUMA nodes, not by GPUs: {}", system.status().text());
  for (topology::RankPlace& rank : build.ranks) rank.on_gpu = false;
  return topology::System::build(machine, build);
}

}  // namespace tutti::communicator
