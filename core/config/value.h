// SPDX-License-Identifier: Apache-2.0
// Values as typed by people: strict reading, canonical writing.
#pragma once

#include <string>
#include <vector>

#include "config/schema.h"
#include "tutti/status.h"

namespace tutti::config {

struct Value {
  int64_t integer = 0;            ///< value of a bool, integer, size (bytes) or duration (ns)
  std::string text;               ///< value of a text or choice
  std::vector<std::string> list;  ///< value of a list, or of names
};

/// Reads `text` as a value of `key`. The failure names the allowed values; the caller adds the position.
Result<Value> parse(const Key& key, std::string_view text);
/// "a,b" or "[a, b]".
Result<std::vector<std::string>> parse_list(std::string_view text);
/// The value as it would stand in YAML; equal values have equal texts.
std::string format(const Key& key, const Value& value);

}  // namespace tutti::config
