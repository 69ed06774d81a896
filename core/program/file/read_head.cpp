// SPDX-License-Identifier: Apache-2.0
// The head of a plan file, and the checks of keys and values.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "config/value.h"
#include "program/file/reader.h"

namespace tutti::program {

Status Reader::wrong(const YAML::Mark& mark, std::string_view what) const {
  return {Code::kConfig, fmt::format("{}:{}:{}: {}", name_, mark.line + 1, mark.column + 1, what)};
}

Status Reader::check_map(const YAML::Node& node, std::string_view what, Keys allowed, Keys required) const {
  if (!node.IsMap()) return wrong(node, fmt::format("{} must be a map of keys to values", what));
  std::vector<std::string> seen;
  for (const auto& entry : node) {
    if (!entry.first.IsScalar()) return wrong(entry.first, "a key must be a word");
    const std::string& key = entry.first.Scalar();
    if (std::find(allowed.begin(), allowed.end(), key) == allowed.end()) {
      return wrong(entry.first,
                   fmt::format("unknown key '{}'; allowed in {}: {}", key, what, fmt::join(allowed, ", ")));
    }
    if (std::find(seen.begin(), seen.end(), key) != seen.end()) {
      return wrong(entry.first, fmt::format("key '{}' stands there twice", key));
    }
    seen.push_back(key);
  }
  for (std::string_view key : required) {
    if (std::find(seen.begin(), seen.end(), key) == seen.end()) {
      return wrong(node, fmt::format("{} lacks the key '{}'", what, key));
    }
  }
  return {};
}

Status Reader::check_list(const YAML::Node& node, std::string_view key) const {
  if (node.IsSequence()) return {};
  return wrong(node, fmt::format("'{}' must be a list", key));
}

Result<std::string> Reader::text(const YAML::Node& node, std::string_view key) const {
  if (!node.IsScalar()) return wrong(node, fmt::format("'{}' must be text", key));
  const std::string& value = node.Scalar();
  if (std::any_of(value.begin(), value.end(), [](char c) { return c < ' ' || c > '~'; }))
    return wrong(node, fmt::format("'{}' must be printable ASCII text", key));
  return value;
}

Result<uint32_t> Reader::number(const YAML::Node& node, std::string_view key, uint64_t least, uint64_t most) const {
  const bool quoted = node.IsScalar() && node.Tag() == "!";
  uint64_t value = 0;
  if (node.IsScalar() && !quoted) {
    const std::string& digits = node.Scalar();
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    const bool whole = end == digits.data() + digits.size() && !digits.empty() && error != std::errc::invalid_argument;
    if (whole && error == std::errc() && value >= least && value <= most) return static_cast<uint32_t>(value);
    if (whole) return wrong(node, fmt::format("'{}' is {}; allowed: {} to {}", key, digits, least, most));
  }
  return wrong(node, fmt::format("'{}' must be a whole number from {} to {}", key, least, most));
}

/// Reads a number that may be missing, in which case `into` stays.
Status Reader::number(const YAML::Node& map, const char* key, uint64_t least, uint64_t most, uint32_t& into) const {
  const YAML::Node node = map[key];
  if (!node.IsDefined()) return {};
  TUTTI_ASSIGN(into, number(node, key, least, most));
  return {};
}

Result<bool> Reader::truth(const YAML::Node& node, std::string_view key) const {
  if (node.IsScalar() && node.Scalar() == "true") return true;
  if (node.IsScalar() && node.Scalar() == "false") return false;
  return wrong(node, fmt::format("'{}' must be true or false", key));
}

Result<Plan> Reader::read_head(const YAML::Node& root) {
  TUTTI_TRY(
      check_map(root, "a plan file",
                {"version", "collective", "algorithm", "variant", "ranks", "root", "channel", "chunks", "input_blocks",
                 "output_blocks", "scratch", "message_chunks", "min_size", "max_size", "data_types", "plans"},
                {"version", "collective", "algorithm", "ranks", "chunks", "plans"}));
  TUTTI_TRY(read_version(root));
  Plan head;
  TUTTI_ASSIGN(const std::string collective, text(root["collective"], "collective"));
  const std::optional<Collective> known = collective_from(collective);
  if (!known) {
    std::vector<std::string_view> names;
    for (uint32_t i = 0; i < kCollectiveCount; ++i) names.push_back(to_string(static_cast<Collective>(i)));
    return wrong(root["collective"],
                 fmt::format("unknown collective '{}'; allowed: {}", collective, fmt::join(names, ", ")));
  }
  head.collective = *known;
  TUTTI_TRY(number(root, "ranks", 1, kMaxChunks, head.rank_count));
  if (root["root"].IsDefined() && !has_root(head.collective)) {
    return wrong(root["root"], fmt::format("'root': {} has no root", collective));
  }
  TUTTI_TRY(number(root, "root", 0, head.rank_count - 1, head.root));
  TUTTI_TRY(number(root, "channel", 0, UINT32_MAX, head.channel));
  const Blocks blocks = blocks_of(head.collective, head.rank_count);
  head.input_blocks = blocks.input;
  head.output_blocks = blocks.output;
  TUTTI_TRY(number(root, "chunks", 1, kMaxChunks, head.chunks));
  TUTTI_TRY(number(root, "scratch", 0, kMaxChunks, head.scratch_chunks));
  head.message_chunks = kMaxMessageChunks;  // until all steps are known
  TUTTI_TRY(number(root, "message_chunks", 1, kMaxMessageChunks, head.message_chunks));
  TUTTI_TRY(number(root, "input_blocks", 1, head.rank_count, head.input_blocks));
  TUTTI_TRY(number(root, "output_blocks", 1, head.rank_count, head.output_blocks));
  if (Status valid = validate_head(head.view()); !valid.ok()) return wrong(root, valid.text());
  return head;
}

/// Reads a size that may be missing, in which case `into` stays.
Status Reader::read_size(const YAML::Node& root, const char* key, uint64_t& into) const {
  const YAML::Node node = root[key];
  if (!node.IsDefined()) return {};
  TUTTI_ASSIGN(const std::string digits, text(node, key));
  const config::Key size{key, config::Type::kSize, "", "", {}, 0};
  const auto value = config::parse(size, digits);
  if (!value.ok()) return wrong(node, fmt::format("'{}': {}", key, value.status().text()));
  into = static_cast<uint64_t>(value->integer);
  return {};
}

Status Reader::read_purpose(const YAML::Node& root, Purpose& purpose) const {
  TUTTI_TRY(read_size(root, "min_size", purpose.min_size));
  TUTTI_TRY(read_size(root, "max_size", purpose.max_size));
  if (purpose.min_size > purpose.max_size) return wrong(root["min_size"], "'min_size' is larger than 'max_size'");
  const YAML::Node types = root["data_types"];
  if (!types.IsDefined()) return {};
  TUTTI_TRY(check_list(types, "data_types"));
  for (const YAML::Node& node : types) {
    TUTTI_ASSIGN(const std::string name, text(node, "data_types"));
    const std::optional<DataType> type = data_type_from(name);
    if (!type) {
      std::vector<std::string_view> names;
      for (uint32_t i = 0; i < kDataTypeCount; ++i) names.push_back(to_string(static_cast<DataType>(i)));
      return wrong(node, fmt::format("unknown data type '{}'; allowed: {}", name, fmt::join(names, ", ")));
    }
    const bool twice =
        std::find(purpose.data_types.begin(), purpose.data_types.end(), *type) != purpose.data_types.end();
    if (twice) return wrong(node, fmt::format("'data_types' names {} twice", name));
    purpose.data_types.push_back(*type);
  }
  return purpose.data_types.empty() ? wrong(types, "'data_types' is empty; leave the key out for all types") : Status();
}

/// Keys of later versions are refused in files of earlier versions.
Status Reader::read_version(const YAML::Node& root) {
  TUTTI_ASSIGN(version_, number(root["version"], "version", kFirstPlanFileVersion, kPlanFileVersion));
  for (const char* key : {"min_size", "max_size", "data_types", "scratch", "message_chunks"}) {
    TUTTI_TRY(check_version(root, key));
  }
  return {};
}

/// `key` of a map is allowed from version 2 on.
Status Reader::check_version(const YAML::Node& map, const char* key) const {
  const YAML::Node node = map[key];
  if (!node.IsDefined() || version_ >= 2) return {};
  return wrong(node, fmt::format("'{}' needs 'version: 2'", key));
}

}  // namespace tutti::program
