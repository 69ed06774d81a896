// SPDX-License-Identifier: Apache-2.0
// The machine of this process as a document: NUMA nodes and PCI devices by hwloc, NVIDIA GPUs by NVML, network ports
// from the caller's network plugins.
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
  std::string sysfs = "/sys";              ///< the directory with link speeds and NUMA nodes of devices; empty: none
};

/// Any thread; one at a time. Takes some ms (hwloc), and the time that NVML needs to wake the GPUs. The document has
/// one node per NUMA node with processors. It has PCI switches, GPUs and network controllers in bus order, without
/// branches that lead to neither GPU nor network. A switch stands for its upstream and downstream ports, as in NCCL's
/// files; root ports do not appear. Devices without a place stand at the first NUMA node. NVLinks may lead to GPUs that
/// this process cannot see. kSystem if hwloc fails.
Result<Document> discover(const DiscoverOptions& options = {});

}  // namespace tutti::topology
