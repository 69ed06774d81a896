// SPDX-License-Identifier: Apache-2.0
// The model's settings, for every tuner plugin that is built with the model.
#pragma once

#include <vector>

#include "alpha_beta/model.h"
#include "tutti/sdk/plugin.h"

namespace tutti::alpha_beta {

inline std::vector<tutti_config_key> model_settings() {
  return {
      sdk::setting(TUTTI_CONFIG_INTEGER, "memory_gbs", "1000",
                   "bandwidth of a rank's own memory in GB/s, reads and writes together", 1, 1000000),
      sdk::setting(TUTTI_CONFIG_INTEGER, "channel_gbs", "45", "the bandwidth of one channel, in GB/s", 1, 100000),
      sdk::setting(TUTTI_CONFIG_SIZE, "channel_bytes", "64KiB", "fewer bytes are not worth a channel of their own", 1,
                   int64_t{1} << 40),
      sdk::setting(TUTTI_CONFIG_DURATION, "call_latency", "0us", "added to every prediction", 0, 1000000000),
  };
}

inline Constants constants_of(const sdk::Host& host) {
  Constants constants;
  constants.memory_gbs = static_cast<double>(host.integer("memory_gbs"));
  constants.channel_gbs = static_cast<double>(host.integer("channel_gbs"));
  constants.channel_bytes = static_cast<double>(host.integer("channel_bytes"));
  constants.call_us = static_cast<double>(host.integer("call_latency")) / 1e3;
  return constants;
}

}  // namespace tutti::alpha_beta
