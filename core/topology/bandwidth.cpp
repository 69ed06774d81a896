// SPDX-License-Identifier: Apache-2.0
#include "topology/bandwidth.h"

#include <algorithm>
#include <charconv>

#include "tutti/plugin/topology.h"

namespace tutti::topology {
namespace {

constexpr double kNetMbpsUnknown = 10000;
constexpr double kC2cLinkGbs = 44.7;  // Grace Hopper
constexpr uint32_t kPciLanes = 16;
constexpr uint32_t kPciLanesMax = 32;  // the kernel says 255 where it does not know

struct PciGeneration {
  double gigatransfers;
  double lane_gbs;
};
constexpr PciGeneration kPciGenerations[] = {{2.5, 0.1875}, {5, 0.375}, {8, 0.75}, {16, 1.5}, {32, 3}, {64, 6}};
constexpr double kPciLaneGbs = 0.75;

double nvlink_gbs(int sm) {
  if (sm >= 100) return 40.1;
  if (sm >= 90) return 20.6;
  if (sm == 86) return 12;
  if (sm >= 70 || sm == 0) return 20;
  return 18;
}

double xgmi_gbs(std::string_view gcn) {
  if (gcn.starts_with("gfx94") || gcn.starts_with("gfx95")) return 48;
  if (gcn.starts_with("gfx90a")) return 36;
  return 24;
}

double intel_interconnect_gbs(const Cpu& cpu) {
  constexpr int kSkylake = 0x55, kSapphireRapids = 0x8f, kEmeraldRapids = 0xcf;
  if (cpu.family != 6 || cpu.model < kSkylake) return 6;
  if (cpu.model < kSapphireRapids) return 10;
  return cpu.model < kEmeraldRapids ? 22 : 40;
}

double zhaoxin_interconnect_gbs(const Cpu& cpu) {
  constexpr int kYongfeng = 0x5b;
  return cpu.family == 7 && cpu.model == kYongfeng ? 9 : 6;
}

}  // namespace

double pci_gbs(std::string_view link_speed, uint32_t link_width) {
  double gigatransfers = 0;
  std::from_chars(link_speed.begin(), link_speed.end(), gigatransfers);
  const auto* generation = std::ranges::find(kPciGenerations, gigatransfers, &PciGeneration::gigatransfers);
  const double lane_gbs = generation == std::end(kPciGenerations) ? kPciLaneGbs : generation->lane_gbs;
  return lane_gbs * (link_width == 0 || link_width > kPciLanesMax ? kPciLanes : link_width);
}

double peer_link_gbs(PeerLink::Kind kind, const Gpu& a, const Gpu& b) {
  if (kind == PeerLink::Kind::kXgmi) return std::min(xgmi_gbs(a.gcn), xgmi_gbs(b.gcn));
  return nvlink_gbs(std::min(a.sm, b.sm));
}

double c2c_gbs(const C2c& c2c) {
  return (c2c.gbs == 0 ? kC2cLinkGbs : c2c.gbs) * c2c.count;
}

double interconnect_gbs(const Cpu& cpu) {
  switch (cpu_chip(cpu)) {
    case TUTTI_CPU_INTEL:
      return intel_interconnect_gbs(cpu);
    case TUTTI_CPU_AMD:
      return 16;
    case TUTTI_CPU_POWER:
      return 32;
    case TUTTI_CPU_ZHAOXIN:
      return zhaoxin_interconnect_gbs(cpu);
    default:  // ARM, and unknown CPUs
      return 6;
  }
}

double net_gbs(const Net& net) {
  return (net.mbps == 0 ? kNetMbpsUnknown : net.mbps) / 8000;
}

uint32_t cpu_chip(const Cpu& cpu) {
  if (cpu.arch == "arm64" || cpu.arch == "aarch64") return TUTTI_CPU_ARM;
  if (cpu.arch.starts_with("ppc64")) return TUTTI_CPU_POWER;
  if (cpu.vendor == "GenuineIntel") return TUTTI_CPU_INTEL;
  if (cpu.vendor == "AuthenticAMD") return TUTTI_CPU_AMD;
  if (cpu.vendor == "CentaurHauls" || cpu.vendor.find("Shanghai") != std::string::npos) return TUTTI_CPU_ZHAOXIN;
  return TUTTI_CPU_UNKNOWN;
}

uint32_t gpu_chip(const Gpu& gpu) {
  constexpr std::string_view kPrefix = "gfx";
  if (!gpu.gcn.starts_with(kPrefix)) return static_cast<uint32_t>(std::max(gpu.sm, 0));
  // Major version in decimal, then one hexadecimal digit each of minor version and stepping.
  uint32_t chip = 0;
  for (const char digit : std::string_view(gpu.gcn).substr(kPrefix.size())) {
    if (digit >= '0' && digit <= '9') {
      chip = chip * 10 + static_cast<uint32_t>(digit - '0');
    } else if (digit >= 'a' && digit <= 'f') {
      chip = chip * 10 + static_cast<uint32_t>(digit - 'a') + 10;
    } else {
      break;  // "gfx90a:sramecc+:xnack-"
    }
  }
  return chip;
}

}  // namespace tutti::topology
