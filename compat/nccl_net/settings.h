// SPDX-License-Identifier: Apache-2.0
// The settings of the plugin: Tutti's configuration, and two variables of its own.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/config.h"
#include "tutti/status.h"

namespace tutti::nccl_net {

struct Settings {
  config::Config config;
  std::vector<std::string> networks;  ///< best first; if `network` names a network, that network alone
  uint32_t most_receives = 1;         ///< limit of the buffers of one receive
};

/// The settings of this process at this time: site file, job file (TUTTI_CONFIG), environment. TUTTI_NET replaces the
/// setting `network`, TUTTI_NET_RECEIVES is the limit of the buffers of one receive. kConfig, kNotFound.
Result<Settings> read_settings();

}  // namespace tutti::nccl_net
