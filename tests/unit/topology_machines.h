// SPDX-License-Identifier: Apache-2.0
// Machines as documents, for tests of their derived forms.
#pragma once

#include <random>

#include "topology/document.h"

namespace tutti::topology::test {

BusId bus(uint32_t bus, uint32_t device = 0, uint32_t function = 0);

Cpu intel(int numa, int model = 0x8f);
Cpu amd(int numa);
/// PCI of the third generation has 8 GT/s, the fourth 16, the fifth 32.
Pci pci(BusId bus, int gigatransfers = 32, uint32_t lanes = 16);
Pci gpu(BusId bus, int dev, int sm, int gigatransfers = 32);
Pci nic(BusId bus, int dev, double mbps, int gigatransfers = 32);
Net port(int dev, double mbps);
PeerLink nvlink(BusId target, uint32_t count);
PeerLink nvswitch_links(uint32_t count);

/// 8 V100 as two quads and a cube between them, 4 switches with 2 GPUs and an adapter of 100 Gb/s each, 2 Broadwells.
Document dgx1v();
/// H100s on NVSwitch, each on a switch of its own, over which `nics` adapters of 400 Gb/s are spread; 2 Sapphire
/// Rapids.
Document hgx(uint32_t gpus, uint32_t nics);
/// A100s without NVLink, PCI 4; the switches are spread over 2 EPYCs; an adapter of 200 Gb/s per switch.
Document pcie(uint32_t gpus_per_switch, uint32_t switches);
/// 2 POWER9, 2 V100 each; GPUs of a CPU and each GPU with its CPU are joined by 3 NVLinks. 1 adapter of 100 Gb/s each.
Document power9();
/// 4 GH200: each a CPU and a GPU, the GPUs joined by 6 NVLinks each; an adapter of 200 Gb/s per CPU.
Document grace_hopper();
/// 2 GPUs below one CPU; Ethernet of which nothing is known.
Document workstation();
/// 8 MI300X joined by one xGMI link each, each on a switch with an adapter of 400 Gb/s, 2 EPYCs.
Document mi300x();

/// The same machine with all siblings in a different order.
Document shuffled(Document document, std::mt19937_64& random);

}  // namespace tutti::topology::test
