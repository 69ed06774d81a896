// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "topology/system.h"

namespace tutti::topology {
namespace {

using std::string_view_literals::operator""sv;

constexpr std::array kPathNames = {"LOC"sv, "NVL"sv, "NVB"sv, "C2C"sv, "PIX"sv, "PXB"sv,
                                   "P2C"sv, "PXN"sv, "PHB"sv, "SYS"sv, "NET"sv, "DIS"sv};
constexpr std::array kNodeTypeNames = {"GPU"sv, "host"sv, "PCI"sv, "NVSwitch"sv, "NUMA"sv, "NIC"sv, "NET"sv};
constexpr std::array kWireNames = {"LOC"sv, "NVL"sv, "C2C"sv, "PCI"sv, "SYS"sv, "NET"sv};
static_assert(kPathNames.size() == TUTTI_PATH_TYPE_COUNT);
static_assert(kNodeTypeNames.size() == TUTTI_NODE_TYPE_COUNT);
static_assert(kWireNames.size() == TUTTI_WIRE_TYPE_COUNT);

template <size_t kCount>
std::string_view name_of(const std::array<std::string_view, kCount>& names, uint32_t value) {
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
