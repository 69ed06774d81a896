// SPDX-License-Identifier: Apache-2.0
// The kinds of plugins and their names.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "tutti/plugin/abi.h"

namespace tutti::plugin {

enum class Kind : uint32_t {
  kAlgorithm = TUTTI_KIND_ALGORITHM,
  kProtocol = TUTTI_KIND_PROTOCOL,
  kNetwork = TUTTI_KIND_NETWORK,
  kTuner = TUTTI_KIND_TUNER,
};
inline constexpr std::array<Kind, 4> kKinds = {Kind::kAlgorithm, Kind::kProtocol, Kind::kNetwork, Kind::kTuner};

/// "algo", "proto", "net", "tuner": in file names and in the names of settings.
constexpr std::string_view short_name(Kind kind) {
  constexpr std::array<std::string_view, 5> kNames = {"unknown", "algo", "proto", "net", "tuner"};
  const auto index = static_cast<uint32_t>(kind);
  return kNames[index < kNames.size() ? index : 0];
}

/// "algorithm", "protocol", "network", "tuner": in texts.
constexpr std::string_view to_string(Kind kind) {
  constexpr std::array<std::string_view, 5> kNames = {"unknown", "algorithm", "protocol", "network", "tuner"};
  const auto index = static_cast<uint32_t>(kind);
  return kNames[index < kNames.size() ? index : 0];
}

/// "tutti-net-ib.so".
inline std::string file_name(Kind kind, std::string_view name) {
  return std::string("tutti-").append(short_name(kind)).append("-").append(name).append(".so");
}

}  // namespace tutti::plugin
