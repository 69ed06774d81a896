// SPDX-License-Identifier: Apache-2.0
// A YAML file, read strictly, with the place of everything in it. Stricter than YAML: one document; no duplicate keys,
// anchors, aliases or tags; a scalar is its text ("010" is no number eight). yaml-cpp stays behind this header.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tutti/status.h"

namespace tutti::config {

struct Node {
  enum class Kind { kNothing, kScalar, kList, kMap };

  Kind kind = Kind::kNothing;
  std::string place;      ///< "job.yaml:3:12"
  std::string key;        ///< name in the surrounding map; empty in a list
  std::string key_place;  ///< position of the key; in a list the same as `place`
  std::string text;       ///< text of a scalar
  std::vector<Node> children;
};

/// kConfig, "place: text".
Status wrong(std::string_view place, std::string_view text);

/// The top of a document; a map, or nothing. `name` stands for the file in places. kConfig with a place.
Result<Node> read_document(const std::string& text, const std::string& name);
/// The same for a file; kNotFound if it cannot be read.
Result<Node> read_file(const std::string& path);

}  // namespace tutti::config
