// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <span>
#include <vector>

#include "tools/topo/print.h"

namespace tutti::tools {
namespace {

using namespace topology;

/// A line of the tree and the lines below it.
struct Branch {
  double gbs = 0;  ///< bandwidth of the edge that leads here; 0: not known
  std::string text;
  std::vector<Branch> below;
};

/// The texts that are not empty, with two spaces between.
std::string joined(std::initializer_list<std::string> texts) {
  std::string all;
  for (const std::string& text : texts) {
    if (!text.empty()) all += (all.empty() ? "" : "  ") + text;
  }
  return all;
}

std::string rank_text(const Machine& machine, std::optional<uint32_t> node) {
  if (!node || machine.system->nodes()[*node].rank == TUTTI_NO_RANK) return {};
  return fmt::format("rank {}", machine.system->nodes()[*node].rank);
}

std::string pci_text(const Machine& machine, const Pci& pci) {
  const std::string at = pci.bus.text();
  if (pci.gpu) {
    return joined({gpu_text(pci), chip_text(*pci.gpu), at, link_text(pci), rank_text(machine, machine.node(pci))});
  }
  if (!pci.nics.empty()) return joined({"NIC", at, link_text(pci)});
  if (!pci.children.empty()) return joined({"switch", at, link_text(pci)});
  const uint32_t base = pci.pci_class >> 16;
  return joined({base == 0x03 ? "place of a GPU" : base == 0x02 ? "place of a NIC" : "place", at, link_text(pci)});
}

void add_ports(const Machine& machine, const std::vector<Nic>& nics, std::optional<uint32_t> parent, Branch& to) {
  for (const Nic& nic : nics) {
    for (const Net& net : nic.nets) {
      const std::string device = net.dev >= 0 ? fmt::format("device {}", net.dev) : "";
      const std::string rail = net.rail >= 0 ? fmt::format("rail {}", net.rail) : "";
      const std::string direct = net.direct ? "GPUDirect" : "";
      to.below.push_back({machine.gbs(parent, machine.node(net)),
                          joined({net.name.empty() ? "port" : net.name, device, rail, direct}),
                          {}});
    }
  }
}

Branch branch_of(const Machine& machine, const Pci& pci, std::optional<uint32_t> parent) {
  const auto node = machine.node(pci);
  Branch branch = {machine.gbs(parent, node), pci_text(machine, pci), {}};
  add_ports(machine, pci.nics, node, branch);
  for (const Pci& child : pci.children) branch.below.push_back(branch_of(machine, child, node));
  return branch;
}

/// Ranks that compute on the processors of a node.
void add_ranks(const Machine& machine, std::optional<uint32_t> node, Branch& to) {
  for (const auto& link : machine.system ? machine.system->links() : std::span<const tutti_system_link>()) {
    if (link.from != node || machine.system->nodes()[link.to].type != TUTTI_NODE_HOST) continue;
    to.below.push_back({link.gbs, rank_text(machine, link.to), {}});
  }
}

Branch branch_of(const Machine& machine, const Cpu& cpu) {
  const auto node = machine.node(cpu);
  Branch branch = {0, joined({cpu_text(cpu), processors_text(cpu)}), {}};
  for (const Pci& pci : cpu.pci) branch.below.push_back(branch_of(machine, pci, node));
  add_ports(machine, cpu.nics, node, branch);
  add_ranks(machine, node, branch);
  return branch;
}

void print(const Branch& branch, const std::string& indent, std::string& to) {
  for (const Branch& child : branch.below) {
    const bool last = &child == &branch.below.back();
    const std::string edge = child.gbs > 0 ? fmt::format(" {:.4g} GB/s ─ ", child.gbs) : " ";
    to += fmt::format("{}{}─{}{}\n", indent, last ? "└" : "├", edge, child.text);
    print(child, indent + (last ? "   " : "│  "), to);
  }
}

/// "a, b, c" of nodes.
std::string names(const System& system, const std::vector<uint32_t>& nodes) {
  std::vector<std::string_view> all;
  for (const uint32_t node : nodes) all.push_back(system.name(node));
  return fmt::format("{}", fmt::join(all, ", "));
}

/// Links of one type and speed from equal places in one line: "NVLink: GPU 0 ═ 370.8 GB/s ═ GPU 1, GPU 2".
std::string wires(const System& system, uint32_t type, std::string_view title) {
  std::map<std::pair<uint32_t, double>, std::vector<uint32_t>> bundles;
  for (const tutti_system_link& link : system.links()) {
    const bool to_switch = system.nodes()[link.to].type == TUTTI_NODE_NVS;
    const bool from_switch = system.nodes()[link.from].type == TUTTI_NODE_NVS;
    if (link.type != type || to_switch || (!from_switch && link.from > link.to)) continue;
    bundles[{link.from, link.gbs}].push_back(link.to);
  }
  std::string text;
  for (auto& [bundle, targets] : bundles) {
    std::ranges::sort(targets);
    text += fmt::format("{}: {} ═ {:.4g} GB/s ═ {}\n", title, system.name(bundle.first), bundle.second,
                        names(system, targets));
  }
  return text;
}

bool has_amd(const System& system) {
  return std::ranges::any_of(system.nodes(), [](const tutti_system_node& node) {
    return node.type == TUTTI_NODE_GPU && (node.flags & TUTTI_NODE_AMD) != 0;
  });
}

}  // namespace

std::string tree(const Machine& machine) {
  std::string text = joined({machine.document.name, machine.document.source}) + "\n";
  for (const Cpu& cpu : machine.document.cpus) {
    const Branch branch = branch_of(machine, cpu);
    text += branch.text + "\n";
    print(branch, "", text);
  }
  if (machine.system) {
    text += wires(*machine.system, TUTTI_WIRE_NVL, has_amd(*machine.system) ? "xGMI" : "NVLink");
    text += wires(*machine.system, TUTTI_WIRE_C2C, "chip to chip");
    text += wires(*machine.system, TUTTI_WIRE_SYS, "between CPUs");
  }
  if (machine.is_overlay) {
    text += fmt::format(
        "{} is an overlay: it gives places only, no GPUs. --merge lays it over this machine; --gpu "
        "BUSID and --complete make\nGPUs and adapters of its places.\n",
        machine.document.source);
  }
  return text;
}

}  // namespace tutti::tools
