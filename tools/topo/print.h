// SPDX-License-Identifier: Apache-2.0
// A machine as text and as a drawing.
#pragma once

#include <string>

#include "tools/topo/machine.h"

namespace tutti::tools {

/// NUMA nodes, switches, GPUs and ports as a tree with GB/s on every edge, and a line per bundle of GPU links.
std::string tree(const Machine& machine);
/// How every pair of ranks and ports is joined, with GB/s.
std::string matrix(const Machine& machine);
/// A drawing in SVG, for light and dark backgrounds.
std::string svg(const Machine& machine);

}  // namespace tutti::tools
