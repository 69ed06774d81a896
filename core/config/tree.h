// SPDX-License-Identifier: Apache-2.0
// What one layer of the configuration says: settings by dotted key, with their places, and rules.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "config/document.h"
#include "config/rules.h"
#include "tutti/status.h"

namespace tutti::config {

/// One setting as somebody gave it.
struct Entry {
  std::string key;                            ///< dotted
  std::string text;                           ///< lists as "[a, b]"
  std::string place;                          ///< of the key: "job.yaml:3:5", "environment TUTTI_HOST"
  std::string value_place;                    ///< of the value: "job.yaml:3:12"
  std::optional<bool> is_list;                ///< what it is in YAML; elsewhere text is text
  std::string origin;                         ///< "job job.yaml:3:5"
  std::vector<std::string> item_places = {};  ///< of a list in YAML: where each item stands
};

struct Tree {
  std::vector<Entry> entries;
  std::vector<Rule> rules;
};

/// Reads a file of the layer `layer` ("site", "job"). kNotFound, or kConfig with file:line:col.
Result<Tree> read_tree(const std::string& path, const std::string& layer);

}  // namespace tutti::config
