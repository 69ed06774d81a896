// SPDX-License-Identifier: Apache-2.0
// The common part of XML and YAML: a tree of named elements with attributes. The words are the same in both forms.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "topology/document.h"

namespace tutti::topology {

struct Element {
  std::string tag;
  int line = 0;
  std::vector<std::pair<std::string, std::string>> attributes;
  std::vector<Element> children;

  /// Null if there is none.
  const std::string* attribute(std::string_view name) const;
};

/// The limits of a file in any form.
inline constexpr size_t kMaxFileBytes = size_t{16} << 20;
inline constexpr size_t kMaxYamlBytes = size_t{1} << 20;  // yaml-cpp is slow, and the most that config reads
inline constexpr int kMaxDepth = 31;  // a level is a list of maps in YAML: the most that config nests
inline constexpr size_t kMaxElements = 100'000;

/// Which attributes and children an element may have; null for an unknown tag.
struct ElementKind {
  std::string_view tag;
  std::vector<std::string_view> attributes;
  std::vector<std::string_view> children;
};
const ElementKind* kind_of(std::string_view tag);

/// A <system> element as a document. kConfig names source and line.
Result<Document> decode(const Element& system, std::string_view source);
Element encode(const Document& document);

}  // namespace tutti::topology
