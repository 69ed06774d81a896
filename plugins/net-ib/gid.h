// SPDX-License-Identifier: Apache-2.0
// The choice of the GID under which a port is reached.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <string>
#include <vector>

#include "address.h"
#include "settings.h"
#include "tutti/status.h"

namespace tutti::net_ib {

/// One entry of the GID table of a port.
struct Gid {
  uint32_t index = 0;
  uint32_t type = IBV_GID_TYPE_IB;  ///< ibv_gid_type
  Ip ip;                            ///< the bytes of the GID; with RoCE they are an IP address

  /// "10.0.0.1 (GID 3, RoCE v2)".
  std::string to_string() const;
};

/// The best entry for the settings: RoCE v2 before v1, IPv4 before IPv6, link-local last, then the lowest index.
/// kNotFound: no entry fits; the text lists the table and names the settings. A function of its arguments alone.
Result<Gid> choose_gid(std::vector<Gid> table, bool is_infiniband, const Settings& settings, const Subnet& subnet);

/// The GID table of a port, without empty entries.
Result<std::vector<Gid>> gid_table(ibv_context* context, uint32_t port);

}  // namespace tutti::net_ib
