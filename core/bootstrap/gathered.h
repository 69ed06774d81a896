// SPDX-License-Identifier: Apache-2.0
// The result of an all-gather of the bootstrap.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace tutti::bootstrap {

/// The bytes that each rank gave, by rank. Copies share the bytes, also between the ranks of a process. Immutable, so
/// any thread may read.
class Gathered {
 public:
  using Part = std::span<const std::byte>;

  Gathered() = default;
  /// `parts`: by rank. They refer to `bytes`, and stay valid when the vector moves.
  Gathered(std::vector<std::byte> bytes, std::vector<Part> parts)
      : content_(std::make_shared<const Content>(Content{std::move(bytes), std::move(parts)})) {}

  size_t size() const { return parts().size(); }
  Part operator[](size_t rank) const { return parts()[rank]; }
  std::vector<Part>::const_iterator begin() const { return parts().begin(); }
  std::vector<Part>::const_iterator end() const { return parts().end(); }

 private:
  struct Content {
    std::vector<std::byte> bytes;
    std::vector<Part> parts;
  };
  const std::vector<Part>& parts() const { return content_->parts; }

  std::shared_ptr<const Content> content_ = std::make_shared<const Content>();
};

}  // namespace tutti::bootstrap
