// SPDX-License-Identifier: Apache-2.0
// One layer of the configuration: settings by dotted key, with their positions, and rules.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "config/document.h"
#include "config/rules.h"
#include "tutti/status.h"

namespace tutti::config {

/// One setting as its origin gave it.
struct Entry {
  std::string key;              ///< dotted
  std::string text;             ///< lists as "[a, b]"
  std::string place;            ///< position of the key: "job.yaml:3:5", "environment TUTTI_HOST"
  std::string value_place;      ///< position of the value: "job.yaml:3:12"
  std::optional<bool> is_list;  ///< whether the value is a list in YAML; in all other layers values are text
  std::string origin;           ///< "job job.yaml:3:5"
  std::vector<std::string> item_places = {};  ///< positions of the items of a YAML list
};

struct Tree {
  std::vector<Entry> entries;
  std::vector<Rule> rules;
};

/// Reads a file of the layer `layer` ("site", "job"). kNotFound, or kConfig with file:line:col.
Result<Tree> read_tree(const std::string& path, const std::string& layer);

}  // namespace tutti::config
