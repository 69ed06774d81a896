// SPDX-License-Identifier: Apache-2.0
#include "topology/chip.h"

#include <algorithm>
#include <string_view>

#include "tutti/plugin/topology.h"

namespace tutti::topology {

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
