// SPDX-License-Identifier: Apache-2.0
// A YAML file as flat entries with their places. Stricter than YAML: no duplicate keys, anchors, tags or several
// documents.
#pragma once

#include <string>
#include <vector>

#include "config/rules.h"
#include "tutti/status.h"

namespace tutti::config {

struct Entry {
  std::string key;    ///< dotted
  std::string text;   ///< lists as "[a, b]"
  std::string place;  ///< "job.yaml:3:5"
};

struct Tree {
  std::vector<Entry> entries;
  std::vector<Rule> rules;
};

/// kNotFound, or kConfig with file:line:col.
Result<Tree> read_file(const std::string& path);
/// The same for text; `name` stands for the file in places.
Result<Tree> read_text(const std::string& text, const std::string& name);

}  // namespace tutti::config
