// SPDX-License-Identifier: Apache-2.0
#include "topology/hardware.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "config/document.h"
#include "config/suggest.h"
#include "log/log.h"
#include "topology/chip.h"
#include "topology/hardware_built_in.h"
#include "tutti/plugin/topology.h"

namespace tutti::topology {
namespace {

using config::Node;

constexpr const char* kVersionKey = "tutti_hardware";
constexpr const char* kDefault = "default";
constexpr const char* kNetworks = "networks";
constexpr const char* kProtocols = "protocols";
constexpr std::string_view kAmdPrefix = "gfx";
constexpr double kMostGbs = 1e6;
constexpr double kMostUs = 1e6;
constexpr uint32_t kPciLanes = 16;
constexpr uint32_t kPciLanesMax = 32;  // the kernel says 255 where it does not know

bool all_of(std::string_view text, std::string_view allowed) {
  return !text.empty() && text.find_first_not_of(allowed) == std::string_view::npos;
}

constexpr std::string_view kDigits = "0123456789";
constexpr std::string_view kHexDigits = "0123456789abcdef";

bool is_gpu(std::string_view name) {
  if (name.starts_with("sm")) return all_of(name.substr(2), kDigits);
  if (name.starts_with(kAmdPrefix)) return name == kAmdPrefix || all_of(name.substr(kAmdPrefix.size()), kHexDigits);
  return name.size() == 9 && name[4] == ':' && all_of(name.substr(0, 4), kHexDigits) &&
         all_of(name.substr(5), kHexDigits);
}

bool is_speed(std::string_view name) {
  const size_t point = std::min(name.find('.'), name.size());
  return all_of(name.substr(0, point), kDigits) && (point == name.size() || all_of(name.substr(point + 1), kDigits));
}

const std::vector<std::string> kCpuVendors = {"arm", "power", "intel", "amd", "zhaoxin"};  // by TUTTI_CPU_*, below

bool is_cpu(std::string_view name) {
  const size_t family = name.find('-');
  if (std::ranges::find(kCpuVendors, name.substr(0, family)) == kCpuVendors.end()) return false;
  if (family == std::string_view::npos) return true;
  const size_t model = name.find('-', family + 1);
  return model != std::string_view::npos && all_of(name.substr(family + 1, model - family - 1), kDigits) &&
         all_of(name.substr(model + 1), kDigits) && name.size() < model + 6;
}

bool is_network(std::string_view name) {
  return all_of(name, "abcdefghijklmnopqrstuvwxyz0123456789_");
}

bool is_default(std::string_view name) {
  return name == kDefault;
}

/// "ll128", or with the chip of the GPUs "ll128-sm90".
bool is_protocol(std::string_view name) {
  const size_t chip = std::min(name.find('-'), name.size());
  if (is_default(name) || !is_network(name.substr(0, chip))) return false;
  return chip == name.size() || (name.substr(chip).starts_with("-sm") && all_of(name.substr(chip + 3), kDigits));
}

/// A section of the table, its figures, and the names of its entries.
struct SectionKind {
  const char* name;
  std::vector<std::string> figures;
  bool (*is_entry)(std::string_view name);
  const char* entries;  ///< for texts
};

const std::vector<SectionKind>& section_kinds() {
  static const std::vector<SectionKind> kinds = {
      {"gpus",
       {"memory_gbs", "link_gbs", "c2c_gbs", "latency_us", "gap_us", "staged_gbs", "staged_latency_us", "channel_gbs"},
       [](std::string_view name) { return is_default(name) || is_gpu(name); },
       "default, a chip such as sm90 or gfx942, or PCI vendor and device such as 10de:2335"},
      {kProtocols, {"channel_gbs", "latency_us"}, is_protocol, "a plugin such as ll128, or with a chip ll128-sm90"},
      {"pci",
       {"lane_gbs"},
       [](std::string_view name) { return is_default(name) || is_speed(name); },
       "default, or GT/s such as 32"},
      {"cpus",
       {"gbs"},
       [](std::string_view name) { return is_default(name) || is_cpu(name); },
       "default, intel, amd, arm, power or zhaoxin, or vendor-family-model such as intel-6-85"},
      {"memory", {"gbs", "latency_us", "gap_us", "switch_us"}, is_default, "default"},
      {kNetworks,
       {"gbs", "latency_us", "gap_us", "processor_gbs", "signal_us"},
       is_network,
       "default, or a plugin such as socket"},
  };
  return kinds;
}

Status unknown(const Node& node, std::string_view what, const std::vector<std::string>& known) {
  return config::wrong(node.key_place, fmt::format("unknown {} '{}'{}; allowed: {}", what, node.key,
                                                   config::did_you_mean(node.key, known), fmt::join(known, ", ")));
}

Status must_be_map(const Node& node, std::string_view example) {
  if (node.kind == Node::Kind::kMap) return {};
  return config::wrong(node.place, fmt::format("{} must be a map, such as '{}'", node.key, example));
}

Result<double> number(const Node& node) {
  const double most = node.key.ends_with("_us") ? kMostUs : kMostGbs;
  const bool may_be_zero = node.key.ends_with("_us");
  double value = 0;
  const char* end = node.text.data() + node.text.size();
  const auto [at, error] = std::from_chars(node.text.data(), end, value, std::chars_format::fixed);
  const bool in_range = (may_be_zero ? value >= 0 : value > 0) && value <= most;
  if (node.kind != Node::Kind::kScalar || error != std::errc() || at != end || !in_range) {
    return config::wrong(node.place, fmt::format("{}: '{}' is no number {} 0, up to {:.0f}", node.key, node.text,
                                                 may_be_zero ? "from" : "above", most));
  }
  return value;
}

Status read_version(const Node& root, const std::string& name) {
  for (const Node& node : root.children) {
    if (node.key != kVersionKey) continue;
    if (node.text == "1") return {};
    return config::wrong(node.place,
                         fmt::format("{}: '{}' is no version that is known; write 1", kVersionKey, node.text));
  }
  return config::wrong(name, fmt::format("'{}: 1' is missing; is this a file of hardware figures?", kVersionKey));
}

/// The entry of a link's speed, "16" of "16.0 GT/s PCIe"; empty: the speed is not known.
std::string pci_entry(std::string_view link_speed) {
  double gigatransfers = 0;
  std::from_chars(link_speed.begin(), link_speed.end(), gigatransfers);
  return gigatransfers > 0 ? fmt::format("{:g}", gigatransfers) : "";
}

std::string name_of_chip(const Gpu& gpu) {
  return gpu.gcn.empty() ? fmt::format("sm{}", std::max(gpu.sm, 0)) : gpu.gcn;
}

/// The entries of a GPU beside "default", the most exact one first.
std::vector<std::string> entries_of(const Pci& device) {
  std::vector<std::string> names;
  if (device.vendor != 0 && device.device != 0)
    names.push_back(fmt::format("{:04x}:{:04x}", device.vendor, device.device));
  std::string chip = name_of_chip(*device.gpu);
  if (!chip.starts_with(kAmdPrefix)) {
    names.push_back(std::move(chip));
    return names;
  }
  chip.resize(std::min(chip.find(':'), chip.size()));  // "gfx90a:sramecc+:xnack-"
  for (; chip.size() >= kAmdPrefix.size(); chip.pop_back()) names.push_back(chip);
  return names;
}

std::string vendor_of(const Cpu& cpu) {
  switch (cpu_chip(cpu)) {
    case TUTTI_CPU_ARM:
      return "arm";
    case TUTTI_CPU_POWER:
      return "power";
    case TUTTI_CPU_INTEL:
      return "intel";
    case TUTTI_CPU_AMD:
      return "amd";
    case TUTTI_CPU_ZHAOXIN:
      return "zhaoxin";
    default:
      return kDefault;
  }
}

/// The model that an entry names ("intel-6-85"), if it is of this vendor and family.
std::optional<int> model_of(std::string_view entry, const std::string& vendor_and_family) {
  if (!entry.starts_with(vendor_and_family)) return std::nullopt;
  int model = 0;
  entry.remove_prefix(vendor_and_family.size());
  std::from_chars(entry.data(), entry.data() + entry.size(), model);
  return model;
}

}  // namespace

namespace {

Result<const SectionKind*> kind_of(const Node& section) {
  const auto kind = std::ranges::find(section_kinds(), section.key, &SectionKind::name);
  if (kind != section_kinds().end()) return &*kind;
  std::vector<std::string> known = {kVersionKey};
  for (const SectionKind& each : section_kinds()) known.emplace_back(each.name);
  return unknown(section, "section", known);
}

Status check_entry(const Node& entry, const SectionKind& kind) {
  if (!kind.is_entry(entry.key)) {
    return config::wrong(entry.key_place,
                         fmt::format("{} has no entry '{}'; write {}", kind.name, entry.key, kind.entries));
  }
  TUTTI_TRY(must_be_map(entry, fmt::format("{}: 1", kind.figures.front())));
  for (const Node& figure : entry.children) {
    if (std::ranges::find(kind.figures, figure.key) == kind.figures.end()) {
      return unknown(figure, "figure", kind.figures);
    }
  }
  return {};
}

}  // namespace

/// Keeps the name of a plugin that the table does not have yet.
void Hardware::note_plugin(const std::string& section, const Node& entry) {
  if (section != kNetworks && section != kProtocols) return;
  std::string plugin = entry.key.substr(0, entry.key.find('-'));
  if (!table_[section].contains(plugin)) plugins_of_file_.push_back({section, std::move(plugin), entry.key_place});
}

Status Hardware::merge(const Node& root, const std::string& name) {
  TUTTI_TRY(read_version(root, name));
  for (const Node& section : root.children) {
    if (section.key == kVersionKey) continue;
    TUTTI_ASSIGN(const SectionKind* kind, kind_of(section));
    TUTTI_TRY(must_be_map(section, fmt::format("default: {{{}: 1}}", kind->figures.front())));
    for (const Node& entry : section.children) {
      TUTTI_TRY(check_entry(entry, *kind));
      note_plugin(section.key, entry);
      for (const Node& figure : entry.children) {
        TUTTI_ASSIGN(table_[section.key][entry.key][figure.key], number(figure));
        figures_of_file_.insert(fmt::format("{}.{}.{}", section.key, entry.key, figure.key));
      }
    }
  }
  return {};
}

const Hardware& Hardware::built_in() {
  static const Hardware table = [] {
    Hardware made;
    const std::string name = "built-in.yaml";
    const auto root = config::read_document(built_in_hardware(), name);
    const Status read = root.ok() ? made.merge(*root, name) : root.status();
    if (!read.ok()) log::error("a bug: {}", read.text());
    made.figures_of_file_.clear();
    made.plugins_of_file_.clear();
    return made;
  }();
  return table;
}

Result<Hardware> Hardware::load(const std::string& file) {
  if (file.empty()) return built_in();
  TUTTI_ASSIGN(const Node root, config::read_file(file));
  Hardware made = built_in();
  TUTTI_TRY(made.merge(root, file));
  return made;
}

Result<Hardware> Hardware::read(const std::string& text, const std::string& name) {
  TUTTI_ASSIGN(const Node root, config::read_document(text, name));
  Hardware made = built_in();
  TUTTI_TRY(made.merge(root, name));
  return made;
}

std::vector<std::string> Hardware::entries(std::string_view section) const {
  std::vector<std::string> names;
  const auto found = table_.find(section);
  if (found == table_.end()) return names;
  for (const auto& [name, entry] : found->second) {
    if (name != kDefault) names.push_back(name);
  }
  return names;
}

const double* Hardware::find(std::string_view section, std::span<const std::string> entries,
                             std::string_view name) const {
  const auto found = table_.find(section);
  if (found == table_.end()) return nullptr;
  for (const std::string& entry : entries) {
    const auto at = found->second.find(entry);
    if (at == found->second.end()) continue;
    const auto value = at->second.find(name);
    if (value != at->second.end()) return &value->second;
  }
  return nullptr;
}

double Hardware::figure(std::string_view section, std::span<const std::string> entries, std::string_view name) const {
  const std::string any = kDefault;
  const double* value = find(section, entries, name);
  if (value == nullptr) value = find(section, {&any, 1}, name);
  return value == nullptr ? 0 : *value;
}

GpuFigures Hardware::gpu(const Pci& device) const {
  const std::vector<std::string> entries = entries_of(device);
  const auto of = [&](std::string_view name) { return figure("gpus", entries, name); };
  return {of("memory_gbs"), of("link_gbs"),   of("c2c_gbs"),           of("latency_us"),
          of("gap_us"),     of("staged_gbs"), of("staged_latency_us"), of("channel_gbs")};
}

std::string Hardware::missing_entry(const Pci& device) const {
  const std::vector<std::string> entries = entries_of(device);
  const auto section = table_.find(std::string_view("gpus"));
  const auto is_known = [&](const std::string& entry) { return section->second.contains(entry); };
  if (section != table_.end() && std::ranges::any_of(entries, is_known)) return {};
  return name_of_chip(*device.gpu);
}

std::string Hardware::missing_pci_entry(std::string_view link_speed) const {
  std::string entry = pci_entry(link_speed);
  const auto section = table_.find(std::string_view("pci"));
  if (section != table_.end() && section->second.contains(entry)) return {};
  return entry;
}

double Hardware::pci_gbs(std::string_view link_speed, uint32_t link_width) const {
  const std::vector<std::string> entry = {pci_entry(link_speed)};
  const uint32_t lanes = link_width == 0 || link_width > kPciLanesMax ? kPciLanes : link_width;
  return figure("pci", entry, "lane_gbs") * lanes;
}

double Hardware::interconnect_gbs(const Cpu& cpu) const {
  const std::string vendor = vendor_of(cpu);
  const std::string family = fmt::format("{}-{}-", vendor, cpu.family);
  std::vector<std::string> entries;
  int latest = -1;
  if (const auto section = table_.find(std::string_view("cpus")); section != table_.end()) {
    for (const auto& [name, entry] : section->second) {
      const std::optional<int> model = model_of(name, family);
      if (!model || *model > cpu.model || *model <= latest) continue;
      latest = *model;
      entries = {name};
    }
  }
  entries.push_back(vendor);
  return figure("cpus", entries, "gbs");
}

MemoryFigures Hardware::memory() const {
  const auto of = [&](std::string_view name) { return figure("memory", {}, name); };
  return {of("gbs"), of("latency_us"), of("gap_us"), of("switch_us")};
}

ProtocolFigures Hardware::protocol(std::string_view protocol, uint32_t sm) const {
  const std::vector<std::string> entries = {fmt::format("{}-sm{}", protocol, sm), std::string(protocol)};
  const auto of = [&](std::string_view name) {
    const double* value = find("protocols", entries, name);
    return value == nullptr ? std::nullopt : std::optional(*value);
  };
  return {of("channel_gbs"), of("latency_us")};
}

NetworkFigures Hardware::network(std::string_view plugin) const {
  const std::vector<std::string> entry = {std::string(plugin.substr(0, plugin.find(':')))};
  const auto of = [&](std::string_view name) { return figure("networks", entry, name); };
  const auto file_has = [&](std::string_view name) {
    return figures_of_file_.contains(fmt::format("networks.{}.latency_us", name));
  };
  return {of("gbs"),           of("latency_us"), of("gap_us"),
          of("processor_gbs"), of("signal_us"),  file_has(entry.front()) || file_has(kDefault)};
}

std::vector<std::string> Hardware::differences() const {
  std::vector<std::string> lines;
  const Table& other = built_in().table_;
  for (const auto& [section, entries] : table_) {
    for (const auto& [entry, figures] : entries) {
      for (const auto& [name, value] : figures) {
        const auto at_section = other.find(section);
        const bool has_entry = at_section != other.end() && at_section->second.contains(entry);
        const Entry* built_in_entry = has_entry ? &at_section->second.find(entry)->second : nullptr;
        const bool same =
            built_in_entry != nullptr && built_in_entry->contains(name) && built_in_entry->find(name)->second == value;
        if (!same) lines.push_back(fmt::format("hardware.{}.{}.{}={}", section, entry, name, value));
      }
    }
  }
  return lines;
}

}  // namespace tutti::topology
