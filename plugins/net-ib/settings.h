// SPDX-License-Identifier: Apache-2.0
// The settings of the plugin (settings.net.ib.*).
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "tutti/sdk/plugin.h"
#include "tutti/status.h"

namespace tutti::net_ib {

inline constexpr uint32_t kMaxQueuePairs = 16;  // of a connection, over all rails
inline constexpr uint32_t kMaxRails = 4;

enum class Flush { kAuto, kAlways, kNever };

struct Settings {
  std::vector<std::string> devices;
  int gid_index = -1;         ///< -1: chosen by the three settings below
  int roce = 0;               ///< 0: any, 1 or 2
  int family = 0;             ///< 0: any, AF_INET or AF_INET6
  std::string subnet;         ///< "10.0.0.0/8", or empty
  std::string exchange;       ///< network interface of the exchange; empty: chosen
  uint32_t rails = 1;         ///< ports of a connection
  uint32_t queue_pairs = 1;   ///< queue pairs of a connection on each port
  uint64_t split_bytes = 0;   ///< messages of at least this size use all queue pairs of all ports
  uint32_t inline_bytes = 0;  ///< messages of at most this size travel in the work request
  bool relaxed_ordering = true;
  uint8_t service_level = 0;
  uint8_t traffic_class = 0;
  uint16_t pkey_index = 0;
  uint8_t retry_count = 6;
  uint8_t timeout = 0;  ///< exponent: 4.096 us * 2^timeout without an acknowledgement
  Flush flush = Flush::kAuto;
  std::chrono::milliseconds peer_loss{10000};

  static std::vector<tutti_config_key> keys();
  /// kConfig for a text that is none of the allowed words.
  static Result<Settings> read(const sdk::Host& host);
  /// Seconds until the device gives up a peer that does not acknowledge.
  double give_up_s() const;
};

}  // namespace tutti::net_ib
