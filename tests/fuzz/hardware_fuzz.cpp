// SPDX-License-Identifier: Apache-2.0
// Any bytes as a file of hardware figures: it is read, or refused with a position. All figures of a table that was read
// are finite, and no bandwidth is 0.
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "topology/hardware.h"

namespace topology = tutti::topology;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto table = topology::Hardware::read(std::string(reinterpret_cast<const char*>(data), size), "fuzz");
  if (!table.ok()) {
    if (!table.status().text().starts_with("fuzz:")) std::abort();  // no place
    return 0;
  }
  topology::Pci device;
  device.vendor = 0x10de;
  device.device = 0x2335;
  for (const char* gcn : {"", "gfx942"}) {
    device.gpu.emplace().gcn = gcn;
    device.gpu->sm = 90;
    const topology::GpuFigures gpu = table->gpu(device);
    for (const double gbs : {gpu.memory_gbs, gpu.link_gbs, gpu.c2c_gbs, gpu.staged_gbs, gpu.channel_gbs}) {
      if (!std::isfinite(gbs) || gbs <= 0) std::abort();
    }
    for (const double us : {gpu.latency_us, gpu.gap_us, gpu.staged_latency_us}) {
      if (!std::isfinite(us) || us < 0) std::abort();
    }
  }
  const double pci_gbs = table->pci_gbs("32.0 GT/s PCIe", 16);
  if (!std::isfinite(pci_gbs) || pci_gbs <= 0 || table->memory().gbs <= 0 || table->network("socket").gbs <= 0) {
    std::abort();
  }
  return 0;
}
