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

/// A version of the ABI of a kind of plugins.
struct Abi {
  uint32_t major = 0;
  uint32_t minor = 0;
  friend bool operator==(const Abi&, const Abi&) = default;
};

/// The ABI of a kind that this host has.
constexpr Abi abi_of(Kind kind) {
  constexpr std::array<Abi, 5> kAbis = {{{},
                                         {TUTTI_ALGORITHM_ABI_MAJOR, TUTTI_ALGORITHM_ABI_MINOR},
                                         {TUTTI_PROTOCOL_ABI_MAJOR, TUTTI_PROTOCOL_ABI_MINOR},
                                         {TUTTI_NETWORK_ABI_MAJOR, TUTTI_NETWORK_ABI_MINOR},
                                         {TUTTI_TUNER_ABI_MAJOR, TUTTI_TUNER_ABI_MINOR}}};
  const auto index = static_cast<uint32_t>(kind);
  return kAbis[index < kAbis.size() ? index : 0];
}

/// Whether a host of ABI `host` takes a plugin of ABI `plugin`. ABI 0.x is not stable: versions must be equal.
constexpr bool takes(Abi host, Abi plugin) {
  return host.major == 0 ? plugin == host : plugin.major == host.major && plugin.minor <= host.minor;
}

/// "tutti-net-ib.so".
inline std::string file_name(Kind kind, std::string_view name) {
  return std::string("tutti-").append(short_name(kind)).append("-").append(name).append(".so");
}

}  // namespace tutti::plugin
