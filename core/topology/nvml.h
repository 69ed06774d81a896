// SPDX-License-Identifier: Apache-2.0
// NVIDIA GPUs and their NVLinks as the driver's management library (NVML) tells them. The library is opened at run
// time: machines without it have no NVIDIA GPUs.
#pragma once

#include <string>
#include <vector>

#include "topology/document.h"

namespace tutti::topology {

struct NvmlGpu {
  BusId bus;
  uint32_t vendor = 0, device = 0, subsystem_vendor = 0, subsystem_device = 0;
  Gpu gpu;
};

/// All GPUs in NVML's order, which is that of bus ids. Empty where `library` cannot be opened or refuses (debug log);
/// a GPU that does not answer is left out (info log).
std::vector<NvmlGpu> nvml_gpus(const std::string& library);

}  // namespace tutti::topology
