// SPDX-License-Identifier: Apache-2.0
// The machine that this process runs on, as a document: NUMA nodes and PCI devices by hwloc, NVIDIA GPUs by NVML,
// network ports as the caller's network plugins list them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "topology/document.h"
#include "tutti/status.h"

namespace tutti::topology {

/// A device of a network plugin.
struct NetDevice {
  std::string name;
  int dev = 0;                ///< its number in the plugin
  double speed_gbs = 0;       ///< GB/s, one direction; 0: not known
  double latency_us = 0;      ///< 0: not known
  std::string pci_path = {};  ///< in sysfs: its PCI device, or anything below or a link to that; empty: virtual
  uint64_t guid = 0;
  int port = 0;
  int rail = -1;
  bool direct = false;  ///< reads and writes GPU memory
};

struct DiscoverOptions {
  std::vector<NetDevice> nets;
  std::string hwloc_xml;                   ///< a file of hwloc's instead of this machine; empty: this machine
  std::string nvml = "libnvidia-ml.so.1";  ///< as dlopen takes it; empty: without
  std::string sysfs = "/sys";              ///< where link speeds and NUMA nodes of devices are read; empty: nowhere
};

/// Any thread; one at a time. Takes some ms (hwloc), and as long as NVML needs to wake the GPUs. One node per NUMA node
/// with processors; PCI switches, GPUs and network controllers in bus order, without what leads to neither. A switch
/// stands for its upstream and downstream ports, as in NCCL's files; root ports do not appear. What the kernel does not
/// place stands at the first NUMA node. NVLinks may lead to GPUs that this process cannot see. kSystem if hwloc fails.
Result<Document> discover(const DiscoverOptions& options = {});

}  // namespace tutti::topology
