// SPDX-License-Identifier: Apache-2.0
#include "gid.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <tuple>

namespace tutti::net_ib {
namespace {

constexpr size_t kMostEntries = 2047;  // the kernel takes the size of the table in 16 bits

const char* name_of(uint32_t type) {
  return type == IBV_GID_TYPE_ROCE_V2 ? "RoCE v2" : type == IBV_GID_TYPE_ROCE_V1 ? "RoCE v1" : "InfiniBand";
}

int version_of(const Gid& gid) {
  return gid.type == IBV_GID_TYPE_ROCE_V2 ? 2 : gid.type == IBV_GID_TYPE_ROCE_V1 ? 1 : 0;
}

bool fits(const Gid& gid, bool is_infiniband, const Settings& settings, const Subnet& subnet) {
  if (settings.gid_index >= 0) return gid.index == static_cast<uint32_t>(settings.gid_index);
  if (is_infiniband) return true;
  if (settings.roce != 0 && version_of(gid) != settings.roce) return false;
  if (settings.family != 0 && gid.ip.family() != settings.family) return false;
  return subnet.contains(gid.ip);
}

std::string text_of(const std::vector<Gid>& table) {
  std::string out;
  for (const Gid& gid : table) out += fmt::format("{}{}", out.empty() ? "" : ", ", gid.to_string());
  return out.empty() ? "nothing; does its network interface have an address?" : out;
}

}  // namespace

std::string Gid::to_string() const {
  return fmt::format("{} (GID {}, {})", ip.to_string(), index, name_of(type));
}

Result<Gid> choose_gid(std::vector<Gid> table, bool is_infiniband, const Settings& settings, const Subnet& subnet) {
  const std::string all = text_of(table);
  std::erase_if(table, [&](const Gid& gid) { return !fits(gid, is_infiniband, settings, subnet); });
  const auto order = [&](const Gid& gid) {
    const bool is_v4 = gid.ip.family() == AF_INET;
    return std::tuple(is_infiniband ? 0 : -version_of(gid),
                      is_infiniband            ? 0
                      : is_v4                  ? 0
                      : gid.ip.is_link_local() ? 2
                                               : 1,
                      gid.index);
  };
  const auto best =
      std::min_element(table.begin(), table.end(), [&](const Gid& a, const Gid& b) { return order(a) < order(b); });
  if (best != table.end()) return *best;
  return Status(
      Code::kNotFound,
      fmt::format("no GID of the port fits settings.net.ib.gid_index, roce, family and subnet; it has {}", all));
}

Result<std::vector<Gid>> gid_table(ibv_context* context, uint32_t port) {
  std::vector<ibv_gid_entry> entries(kMostEntries);
  const ssize_t count = ibv_query_gid_table(context, entries.data(), entries.size(), 0);
  if (count < 0) return system_error("cannot read the GID table", static_cast<int>(-count));
  entries.resize(static_cast<size_t>(count));
  std::vector<Gid> out;
  for (const ibv_gid_entry& entry : entries) {
    if (entry.port_num != port) continue;
    Gid& gid = out.emplace_back();
    gid.index = entry.gid_index;
    gid.type = entry.gid_type;
    std::memcpy(gid.ip.bytes.data(), entry.gid.raw, sizeof entry.gid.raw);
  }
  return out;
}

}  // namespace tutti::net_ib
