// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "topology/system.h"

namespace tutti::topology {
namespace {

template <size_t kCount>
using Names = std::array<std::string_view, kCount>;

constexpr Names<TUTTI_PATH_TYPE_COUNT> kPathNames = {"LOC", "NVL", "NVB", "C2C", "PIX", "PXB",
                                                     "P2C", "PXN", "PHB", "SYS", "NET", "DIS"};
constexpr Names<TUTTI_NODE_TYPE_COUNT> kNodeTypeNames = {"GPU", "host", "PCI", "NVSwitch", "NUMA", "NIC", "NET"};
constexpr Names<TUTTI_WIRE_TYPE_COUNT> kWireNames = {"LOC", "NVL", "C2C", "PCI", "SYS", "NET"};

template <size_t kCount>
std::string_view name_of(const Names<kCount>& names, uint32_t value) {
  return value < kCount ? names[value] : "?";
}

}  // namespace

std::string_view path_name(uint32_t type) {
  return name_of(kPathNames, type);
}

Result<uint32_t> path_from(std::string_view name) {
  const auto* found = std::ranges::find(kPathNames, name);
  if (found == kPathNames.end()) {
    return Status(Code::kInvalidArgument,
                  fmt::format("'{}' is no type of path; write one of {}", name, fmt::join(kPathNames, ", ")));
  }
  return static_cast<uint32_t>(found - kPathNames.begin());
}

std::string_view node_type_name(uint32_t type) {
  return name_of(kNodeTypeNames, type);
}
std::string_view wire_name(uint32_t type) {
  return name_of(kWireNames, type);
}

}  // namespace tutti::topology
