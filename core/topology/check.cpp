// SPDX-License-Identifier: Apache-2.0
#include "topology/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <map>
#include <utility>

#include "log/log.h"
#include "topology/affinity.h"
#include "topology/system.h"

namespace tutti::topology {
namespace {

/// A device and where it hangs.
struct Located {
  const Pci* pci = nullptr;
  const Pci* parent = nullptr;  ///< null: the CPU
  const Pci* tree = nullptr;    ///< topmost device above it, or itself
  const Cpu* cpu = nullptr;
};

class Checker {
 public:
  explicit Checker(const Document& document) : document_(document) {
    for (const Cpu& cpu : document.cpus) {
      for (const Pci& pci : cpu.pci) locate(pci, nullptr, pci, cpu);
    }
  }

  std::vector<Finding> run() {
    if (gpus_.empty()) {
      add(Severity::kNote, {}, "no GPU: this is an overlay, which gives places only",
          "merge it with what is found on the machine, or name the GPUs (--gpu)");
    }
    for (const Located& at : devices_) {
      check_link(at);
      check_adapters(at);
    }
    for (const Located& gpu : gpus_) check_peers(gpu);
    check_siblings();
    check_neighbours();
    check_affinity();
    check_system();
    std::ranges::stable_sort(findings_, {}, [](const Finding& finding) { return finding.position.line; });
    return std::move(findings_);
  }

 private:
  void locate(const Pci& pci, const Pci* parent, const Pci& tree, const Cpu& cpu);
  void add(Severity severity, FilePosition position, std::string what, std::string advice);
  void check_link(const Located& at);
  void check_adapters(const Located& at);
  void check_peers(const Located& gpu);
  void check_siblings();
  void check_neighbours();
  void check_affinity();
  Result<System> build_system() const;
  void check_system();

  const Document& document_;
  std::vector<Located> devices_, gpus_;
  std::vector<Finding> findings_;
};

std::string name_of(const Pci& pci) {
  if (pci.gpu && pci.gpu->dev >= 0) return fmt::format("GPU {} ({})", pci.gpu->dev, pci.bus.text());
  if (pci.gpu) return fmt::format("GPU {}", pci.bus.text());
  return pci.bus.text();
}

bool is_network(const Pci& pci) {
  return !pci.nics.empty() || pci.pci_class >> 16 == 0x02;
}

/// GB/s of a PCI link, one direction; 0 where speed or width is not given. As lanes carry them: 8b/10b up to 5 GT/s,
/// then 128b/130b.
double slot_gbs(const Pci& pci) {
  const double gts = std::atof(pci.link_speed.c_str());
  return gts * pci.link_width / 8 * (gts <= 5 ? 0.8 : 128.0 / 130);
}

uint32_t link_count(const Gpu& gpu) {
  uint32_t count = 0;
  for (const PeerLink& link : gpu.links) count += link.count;
  return count;
}

void Checker::locate(const Pci& pci, const Pci* parent, const Pci& tree, const Cpu& cpu) {
  const Located at = {&pci, parent, &tree, &cpu};
  devices_.push_back(at);
  if (pci.gpu) gpus_.push_back(at);
  for (const Pci& child : pci.children) locate(child, &pci, tree, cpu);
}

void Checker::add(Severity severity, FilePosition position, std::string what, std::string advice) {
  findings_.push_back({severity, position, std::move(what), std::move(advice)});
}

void Checker::check_link(const Located& at) {
  constexpr std::array kWidths = {0u, 1u, 2u, 4u, 8u, 12u, 16u, 32u};
  const Pci& pci = *at.pci;
  const bool is_generation_6 = std::abs(std::atof(pci.link_speed.c_str()) - 64) < 0.05;
  if (!Hardware::built_in().missing_pci_entry(pci.link_speed).empty()) {
    add(Severity::kError, pci.position, fmt::format("{}: no PCI link runs at '{}'", name_of(pci), pci.link_speed),
        "write 2.5, 5, 8, 16, 32 or 64 GT/s");
  }
  if (std::ranges::find(kWidths, pci.link_width) == kWidths.end()) {
    add(Severity::kError, pci.position, fmt::format("{}: no PCI link has {} lanes", name_of(pci), pci.link_width),
        "write 1, 2, 4, 8, 12, 16 or 32, or leave it out");
  } else if (is_generation_6 && (pci.link_width == 12 || pci.link_width == 32)) {
    add(Severity::kError, pci.position,
        fmt::format("{}: PCI links of generation 6 do not have {} lanes", name_of(pci), pci.link_width),
        "write 1, 2, 4, 8 or 16");
  }
}

void Checker::check_adapters(const Located& at) {
  const double slot = slot_gbs(*at.pci);
  for (const Nic& nic : at.pci->nics) {
    for (const Net& net : nic.nets) {
      if (slot <= 0 || net.mbps / 8e3 <= slot) continue;
      add(Severity::kWarning, net.position,
          fmt::format("{} carries {:.4g} GB/s, its slot {} only {:.4g} ({}, {} lanes)", net.name, net.mbps / 8e3,
                      at.pci->bus.text(), slot, at.pci->link_speed, at.pci->link_width),
          "correct the one that is wrong, or move the adapter to a faster slot");
    }
  }
}

/// Checks the links of one GPU alone, and against the links of their targets.
void Checker::check_peers(const Located& at) {
  const Gpu& gpu = *at.pci->gpu;
  const uint32_t most = gpu.gcn.empty() ? max_nvlinks(gpu.sm) : 0;
  if (const uint32_t count = link_count(gpu); most != 0 && count > most) {
    add(Severity::kError, gpu.position,
        fmt::format("{} has {} NVLinks, a chip of sm {} at most {}", name_of(*at.pci), count, gpu.sm, most),
        "correct the counts, or sm");
  }
  for (const PeerLink& link : gpu.links) {
    if (link.to != PeerLink::Target::kGpu) continue;
    if (link.target == at.pci->bus) {
      add(Severity::kWarning, gpu.position, fmt::format("{} has {} links to itself", name_of(*at.pci), link.count),
          "they join nothing: name the GPU at their other end, or remove them");
      continue;
    }
    const Pci* peer = document_.find(link.target);
    if (peer == nullptr || !peer->gpu) continue;  // the system graph says so
    uint32_t back = 0;
    for (const PeerLink& other : peer->gpu->links) back += other.target == at.pci->bus ? other.count : 0;
    if (back >= link.count) continue;
    add(Severity::kError, gpu.position,
        fmt::format("{} has {} links to {}, which has {} back", name_of(*at.pci), link.count, name_of(*peer), back),
        "links go both ways: give both GPUs the same count");
  }
}

/// GPUs of one chip with fewer links than the best of them.
void Checker::check_siblings() {
  std::map<std::pair<int, std::string>, uint32_t> most;
  const auto chip = [](const Located& at) { return std::pair(at.pci->gpu->sm, at.pci->gpu->gcn); };
  for (const Located& at : gpus_) most[chip(at)] = std::max(most[chip(at)], link_count(*at.pci->gpu));
  for (const Located& at : gpus_) {
    const uint32_t count = link_count(*at.pci->gpu);
    if (count == most[chip(at)]) continue;
    add(Severity::kWarning, at.pci->gpu->position,
        fmt::format("{} has {} links, its siblings up to {}", name_of(*at.pci), count, most[chip(at)]),
        "look whether links are down (nvidia-smi nvlink -s), or complete the file");
  }
}

/// GPUs and adapters that share no switch with the other kind, where some do.
void Checker::check_neighbours() {
  std::map<const Pci*, std::pair<bool, bool>> trees;  // has a GPU, has a network
  for (const Located& at : devices_) {
    auto& [gpu, network] = trees[at.tree];
    gpu |= at.pci->gpu.has_value();
    network |= is_network(*at.pci);
  }
  const bool some_share =
      std::ranges::any_of(trees, [](const auto& tree) { return tree.second.first && tree.second.second; });
  if (!some_share) return;
  for (const Located& at : devices_) {
    const auto [gpu, network] = trees[at.tree];
    if (at.pci->gpu && !network) {
      add(Severity::kWarning, at.pci->position,
          fmt::format("{} has no network adapter behind its switch, other GPUs do", name_of(*at.pci)),
          "its traffic crosses the CPU: look whether the adapter is missing, or declared elsewhere");
    } else if (is_network(*at.pci) && !gpu) {
      add(Severity::kNote, at.pci->position,
          fmt::format("network adapter {} has no GPU behind its switch", name_of(*at.pci)),
          "fine for management networks; otherwise move it beside the GPUs that use it");
    }
  }
}

void Checker::check_affinity() {
  for (const Cpu& cpu : document_.cpus) {
    const std::string node = cpu.numa < 0 ? "the CPU" : fmt::format("NUMA node {}", cpu.numa);
    const auto mask = parse_cpu_mask(cpu.affinity);
    if (mask.ok() && !mask->empty() && cpu.processors > static_cast<double>(mask->size())) {
      add(Severity::kWarning, cpu.position,
          fmt::format("{} states {:g} processors, and its affinity has {}", node, cpu.processors, mask->size()),
          "predictions count the larger number: lower processors, or correct affinity");
    }
    const auto on_cpu = std::ranges::count(gpus_, &cpu, &Located::cpu);
    if (on_cpu == 0 || !cpu.affinity.empty()) continue;
    add(Severity::kWarning, cpu.position, fmt::format("{} with {} GPUs has no affinity", node, on_cpu),
        "their ranks are not bound to its processors: copy the mask from /sys/devices/system/node/node*/cpumap");
  }
}

/// The graph for one rank per GPU. An overlay has no GPU, and gets one rank per NUMA node.
Result<System> Checker::build_system() const {
  BuildOptions options;
  TUTTI_ASSIGN(options.ranks, places_of(document_, 0));
  return System::build(document_, options);
}

void Checker::check_system() {
  const auto system = build_system();
  if (system.ok()) return;
  std::string_view text = system.status().text();  // "dgx.xml:7: bus id ..."
  FilePosition position;
  if (text.starts_with(document_.source)) {
    text.remove_prefix(document_.source.size());
    std::from_chars(text.data() + 1, text.data() + text.size(), position.line);
    text.remove_prefix(std::min(text.find(": ") + 2, text.size()));
  }
  add(Severity::kError, position, std::string(text), "");
}

}  // namespace

std::string_view to_string(Severity severity) {
  constexpr std::array<std::string_view, 3> kNames = {"note", "warning", "error"};
  return kNames[static_cast<size_t>(severity)];
}

std::vector<Finding> check(const Document& document) {
  return Checker(document).run();
}

std::string to_string(const Finding& finding, const Document& document) {
  const std::string line = finding.position.line > 0 ? fmt::format(":{}", finding.position.line) : "";
  const std::string advice = finding.advice.empty() ? "" : "; " + finding.advice;
  return fmt::format("{}{}: {}: {}{}", document.source, line, to_string(finding.severity), finding.what, advice);
}

void warn_of_errors(const Document& document) {
  constexpr size_t kShown = 3;
  const std::vector<Finding> findings = check(document);
  size_t errors = 0;
  for (const Finding& finding : findings) {
    if (finding.severity == Severity::kError && ++errors <= kShown) log::warn("{}", to_string(finding, document));
  }
  const size_t further = findings.size() - std::min(errors, kShown);
  const log::Level level = errors > kShown ? log::Level::kWarn : log::Level::kInfo;
  if (further > 0) log::at(level, "'tutti topo check {}' has {} further findings", document.source, further);
}

uint32_t max_nvlinks(int sm) {
  // NVIDIA's tables of GPUs: P100, V100, Turing, A100, GA102, H100, B200, B300.
  constexpr std::array<std::pair<int, uint32_t>, 8> kMost = {
      {{60, 4}, {70, 6}, {75, 2}, {80, 12}, {86, 4}, {90, 18}, {100, 18}, {103, 18}}};
  const auto* const chip = std::ranges::find(kMost, sm, &std::pair<int, uint32_t>::first);
  return chip == kMost.end() ? 0 : chip->second;
}

}  // namespace tutti::topology
