// SPDX-License-Identifier: Apache-2.0
// The bandwidth of the links of known hardware, in GB/s per direction. The values are those of large messages, not of
// the data sheet.
#pragma once

#include <string_view>

#include "topology/document.h"

namespace tutti::topology {

/// Within a device: never the limit of a path.
inline constexpr double kLocalGbs = 5000;

/// A PCI link from the data of the kernel: "16.0 GT/s PCIe", 16 lanes. An unknown speed counts as third generation, an
/// unknown width as 16 lanes.
double pci_gbs(std::string_view link_speed, uint32_t link_width);
/// One NVLink or xGMI link between two GPUs: the older of the two decides.
double peer_link_gbs(PeerLink::Kind kind, const Gpu& a, const Gpu& b);
/// All links between a GPU and the CPU on its module.
double c2c_gbs(const C2c& c2c);
/// Between the CPUs of a machine. An unknown CPU counts as a slow CPU.
double interconnect_gbs(const Cpu& cpu);
double net_gbs(const Net& net);

/// TUTTI_CPU_*
uint32_t cpu_chip(const Cpu& cpu);
/// tutti_system_node.chip of a GPU: compute capability × 10, or the number of its gfx name ("gfx90a" is 9.0.10: 910).
uint32_t gpu_chip(const Gpu& gpu);

}  // namespace tutti::topology
