// SPDX-License-Identifier: Apache-2.0
#include "tools/topo/machine.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "config/config.h"
#include "plugin/registry.h"
#include "tools/session.h"
#include "topology/affinity.h"
#include "topology/discover.h"
#include "tutti/plugin/network.h"

namespace tutti::tools {
namespace {

using namespace topology;

std::string text_of(tutti_str text) {
  return text.data == nullptr ? std::string() : std::string(text.data, text.size);
}

Result<std::vector<NetDevice>> ports_of(const plugin::Plugin& plugin) {
  const auto& ops = *plugin.ops<tutti_network_ops>();
  void* context = nullptr;
  std::vector<NetDevice> ports;
  const auto failure = [&] {
    return Status(Code::kSystem, fmt::format("network '{}': {}", plugin.name(), plugin::take_reason()));
  };
  if (ops.create(plugin.self(), 0, &context) != TUTTI_OK) return failure();
  const std::unique_ptr<void, void (*)(void*)> closed(context, ops.destroy);
  uint32_t count = 0;
  if (ops.device_count(context, &count) != TUTTI_OK) return failure();
  for (uint32_t device = 0; device < count; ++device) {
    tutti_net_properties found{};
    found.struct_size = sizeof found;
    if (ops.properties(context, device, &found) != TUTTI_OK) return failure();
    ports.push_back({.name = text_of(found.name),
                     .dev = static_cast<int>(device),
                     .speed_gbs = found.speed_gbs,
                     .latency_us = found.latency_us,
                     .pci_path = text_of(found.pci_path),
                     .guid = found.guid,
                     .port = static_cast<int>(found.port),
                     .rail = found.rail,
                     .direct = (found.memory & TUTTI_MEMORY_CUDA) != 0});
  }
  return ports;
}

/// The ports of the first usable network of the settings, as a communicator would choose it.
Result<std::vector<NetDevice>> network_ports(const MachineOptions& options) {
  TUTTI_ASSIGN(config::Config config, load_config(options.config_file, split_settings(options.settings)));
  TUTTI_ASSIGN(const auto registry, plugin::Registry::load(config, true));
  Status first;
  for (const auto& plugin : registry->of(plugin::Kind::kNetwork)) {
    auto ports = ports_of(*plugin);
    if (ports.ok() && !ports->empty()) return ports;
    if (first.ok()) first = ports.status();
  }
  if (!first.ok()) return first;
  return std::vector<NetDevice>();
}

Result<Document> this_machine(const MachineOptions& options) {
  DiscoverOptions discovery;
  auto ports = network_ports(options);
  if (ports.ok()) {
    discovery.nets = *std::move(ports);
  } else {
    fmt::print(stderr, "tutti: without network ports: {}\n", ports.status().text());
  }
  return discover(discovery);
}

Status complete(Document& document, const MachineOptions& options) {
  std::vector<BusId> gpus;
  for (const std::string& text : options.gpus) {
    TUTTI_ASSIGN(gpus.emplace_back(), BusId::parse(text));
  }
  return complete_overlay(document, gpus, options.mbps, options.sm).status();
}

Result<Document> load_document(const MachineOptions& options) {
  if (options.file.empty()) return this_machine(options);
  TUTTI_ASSIGN(Document document, Document::load(options.file));
  if (options.merge) {
    TUTTI_ASSIGN(const Document found, this_machine(options));
    return merge(found, document);
  }
  if (options.complete || !options.gpus.empty()) TUTTI_TRY(complete(document, options));
  return document;
}

template <class Matches>
std::optional<uint32_t> find_node(const std::optional<System>& system, const Matches& matches) {
  if (!system) return std::nullopt;
  const auto at = std::ranges::find_if(system->nodes(), matches);
  if (at == system->nodes().end()) return std::nullopt;
  return static_cast<uint32_t>(at - system->nodes().begin());
}

}  // namespace

Result<Machine> Machine::load(const MachineOptions& options) {
  Machine machine;
  TUTTI_ASSIGN(machine.document, load_document(options));
  machine.is_overlay = !options.file.empty() && !options.merge && machine.document.is_overlay();
  if (machine.is_overlay) return machine;
  BuildOptions build;
  TUTTI_ASSIGN(build.ranks, topology::places_of(machine.document, options.rank_count));
  TUTTI_ASSIGN(machine.system, System::build(machine.document, build));
  return machine;
}

std::optional<uint32_t> Machine::node(const Pci& pci) const {
  if (!pci.nics.empty() && !pci.nics[0].nets.empty()) return adapter(pci.nics[0].nets[0]);
  return find_node(system, [&](const tutti_system_node& node) {
    return (node.type == TUTTI_NODE_GPU || node.type == TUTTI_NODE_PCI) && node.id == pci.bus.value;
  });
}

/// Several functions of a device, and several devices, may be one adapter: found by its port.
std::optional<uint32_t> Machine::adapter(const Net& net) const {
  const auto port = node(net);
  if (!port) return std::nullopt;
  const auto link = std::ranges::find_if(system->links(), [&](const auto& one) { return one.from == *port; });
  return link == system->links().end() ? std::nullopt : std::optional(link->to);
}

/// A node without a number has the smallest free number.
std::optional<uint32_t> Machine::node(const Cpu& cpu) const {
  int numa = std::max(cpu.numa, 0);
  while (cpu.numa < 0 && std::ranges::find(document.cpus, numa, &Cpu::numa) != document.cpus.end()) ++numa;
  return find_node(system, [&](const tutti_system_node& node) {
    return node.type == TUTTI_NODE_CPU && node.index == static_cast<uint32_t>(numa);
  });
}

std::optional<uint32_t> Machine::node(const Net& net) const {
  return find_node(system, [&](const tutti_system_node& node) {
    return node.type == TUTTI_NODE_NET && node.port == static_cast<uint32_t>(std::max(net.port, 0)) &&
           (net.dev < 0 || node.index == static_cast<uint32_t>(net.dev)) &&
           (net.name.empty() || system->name(static_cast<uint32_t>(&node - system->nodes().data())) == net.name);
  });
}

double Machine::gbs(std::optional<uint32_t> from, std::optional<uint32_t> to) const {
  if (!from || !to) return 0;
  const auto link = std::ranges::find_if(
      system->links(), [&](const tutti_system_link& one) { return one.from == *from && one.to == *to; });
  return link == system->links().end() ? system->path(*from, *to).gbs : link->gbs;
}

std::string link_text(const Pci& pci) {
  std::string text = pci.link_speed.substr(0, pci.link_speed.find(" PCIe"));
  if (pci.link_width != 0) text += fmt::format("{}×{}", text.empty() ? "" : " ", pci.link_width);
  return text;
}

std::string gpu_text(const Pci& pci) {
  return pci.gpu->dev >= 0 ? fmt::format("GPU {}", pci.gpu->dev) : "GPU " + pci.bus.text();
}

std::string chip_text(const Gpu& gpu) {
  constexpr std::array<std::pair<int, std::string_view>, 12> kChips = {{{60, "Pascal"},
                                                                        {61, "Pascal"},
                                                                        {70, "Volta"},
                                                                        {75, "Turing"},
                                                                        {80, "Ampere"},
                                                                        {86, "Ampere"},
                                                                        {89, "Ada"},
                                                                        {90, "Hopper"},
                                                                        {100, "Blackwell"},
                                                                        {103, "Blackwell"},
                                                                        {120, "Blackwell"},
                                                                        {121, "Blackwell"}}};
  if (!gpu.gcn.empty()) return gpu.gcn;
  if (gpu.sm == 0) return "";
  const auto* const chip = std::ranges::find(kChips, gpu.sm, &std::pair<int, std::string_view>::first);
  return fmt::format("sm {}{}", gpu.sm, chip == kChips.end() ? "" : fmt::format(" ({})", chip->second));
}

std::string cpu_text(const Cpu& cpu) {
  return cpu.numa >= 0 ? fmt::format("NUMA {}", cpu.numa) : "CPU";
}

std::string processors_text(const Cpu& cpu) {
  const auto mask = parse_cpu_mask(cpu.affinity);
  const size_t in_mask = mask.ok() ? mask->size() : 0;
  std::string text = cpu.vendor.empty() ? cpu.arch : cpu.vendor;
  if (in_mask == 0 && cpu.processors == 0) return text;
  if (!text.empty()) text += ", ";
  if (cpu.processors > 0) text += fmt::format("{:g}{}", cpu.processors, in_mask > 0 ? " of " : " processors");
  if (in_mask > 0) text += fmt::format("{} processor{}", in_mask, in_mask == 1 ? "" : "s");
  return text;
}

}  // namespace tutti::tools
