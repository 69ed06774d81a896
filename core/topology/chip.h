// SPDX-License-Identifier: Apache-2.0
// The chips of CPUs and GPUs, as numbers that plugins get.
#pragma once

#include <cstdint>

#include "topology/document.h"

namespace tutti::topology {

/// TUTTI_CPU_*
uint32_t cpu_chip(const Cpu& cpu);
/// tutti_system_node.chip of a GPU: compute capability × 10, or the number of its gfx name ("gfx90a" is 9.0.10: 910).
uint32_t gpu_chip(const Gpu& gpu);

}  // namespace tutti::topology
