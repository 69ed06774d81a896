// SPDX-License-Identifier: Apache-2.0
// All settings: name, type, default, allowed values, and a sentence of help. Checks, documentation, `tutti config show`
// and the environment variables come from this table.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/plugin/abi.h"

namespace tutti::config {

enum class Type : uint32_t {
  kBool = TUTTI_CONFIG_BOOL,
  kInteger = TUTTI_CONFIG_INTEGER,
  kSize = TUTTI_CONFIG_SIZE,          ///< "4096", "4KiB", "64M": K, M, G count in 1024s
  kDuration = TUTTI_CONFIG_DURATION,  ///< "250ms", "10s", "1m"; kept in nanoseconds
  kText = TUTTI_CONFIG_TEXT,
  kList = TUTTI_CONFIG_LIST,  ///< [a, b], or "a,b" outside YAML
  kChoice,                    ///< one of Key::allowed
  kNames,                     ///< one name, or a list of names
};

struct Key {
  std::string name;  ///< dotted
  Type type = Type::kText;
  std::string default_text;
  std::string help;
  std::vector<std::string> allowed;  ///< values of a choice
  int64_t minimum = INT64_MIN;       ///< limit of integers, sizes (bytes) and durations (ns); for a text, 1: not empty
  int64_t maximum = INT64_MAX;
  bool must_agree = true;  ///< whether all ranks must have the same value
};

/// The settings of the core.
std::span<const Key> core_keys();
/// A plugin's setting, as `settings.<kind>.<plugin>.<name>`. Ranks must agree on it, but for a network's: an interface
/// may be called differently on each host. A size or duration without a range starts at 0.
Key plugin_key(std::string_view kind, std::string_view plugin, const tutti_config_key& key);
/// "TUTTI_SHM_SLOTS" for "shm.slots".
std::string variable_of(std::string_view name);

}  // namespace tutti::config
