// SPDX-License-Identifier: Apache-2.0
#include "config/rules.h"

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include "config/suggest.h"
#include "config/value.h"

namespace tutti::config {
namespace {

Status invalid(const YAML::Node& node, const std::string& file, std::string_view text) {
  return {Code::kConfig, fmt::format("{}: {}", place_of(node, file), text)};
}

/// Walks a map's entries, refusing duplicates and what is not `known`.
template <class Visit>
Status each(const YAML::Node& map, const std::string& file, const std::vector<std::string>& known, Visit&& visit) {
  if (!map.IsMap()) return invalid(map, file, "expected a map such as {collective: all_reduce}");
  std::vector<std::string> seen;
  for (const auto& entry : map) {
    const YAML::Node& key = entry.first;
    const YAML::Node& value = entry.second;
    if (!key.IsScalar()) return invalid(key, file, "a key must be a word");
    const std::string& name = key.Scalar();
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      return invalid(key, file, fmt::format("unknown key '{}' in a rule{}", name, did_you_mean(name, known)));
    }
    if (std::find(seen.begin(), seen.end(), name) != seen.end())
      return invalid(key, file, fmt::format("'{}' stands twice", name));
    seen.push_back(name);
    TUTTI_TRY(visit(name, value));
  }
  return {};
}

Result<int64_t> number(const YAML::Node& node, const std::string& file, Type type, int64_t maximum) {
  if (!node.IsScalar()) return invalid(node, file, "expected a single value");
  Key key;
  key.type = type;
  key.minimum = 0;
  key.maximum = maximum;
  auto value = parse(key, node.Scalar());
  if (!value.ok()) return invalid(node, file, value.status().text());
  return value->integer;
}

Status read_match(const YAML::Node& node, const std::string& file, Rule& rule) {
  return each(node, file, {"collective", "min_size", "max_size", "ranks", "nodes", "data_type", "link"},
              [&](const std::string& name, const YAML::Node& value) -> Status {
                if (!value.IsScalar()) return invalid(value, file, fmt::format("'{}' must be a single value", name));
                const std::string& text = value.Scalar();
                if (name == "collective") {
                  rule.collective = collective_from(text);
                  if (!rule.collective)
                    return invalid(value, file,
                                   fmt::format("'{}' is no collective (all_reduce, all_gather, ...)", text));
                } else if (name == "data_type") {
                  rule.data_type = data_type_from(text);
                  if (!rule.data_type)
                    return invalid(value, file, fmt::format("'{}' is no data type (float32, bfloat16, ...)", text));
                } else if (name == "link") {
                  if (text != "shm" && text != "net")
                    return invalid(value, file, fmt::format("'{}' is not one of: shm, net", text));
                  rule.link = text;
                } else if (name == "min_size" || name == "max_size") {
                  TUTTI_ASSIGN(const int64_t bytes, number(value, file, Type::kSize, INT64_MAX));
                  (name == "min_size" ? rule.min_size : rule.max_size) = static_cast<uint64_t>(bytes);
                } else {
                  TUTTI_ASSIGN(const int64_t count, number(value, file, Type::kInteger, INT32_MAX));
                  (name == "ranks" ? rule.ranks : rule.nodes) = static_cast<uint32_t>(count);
                }
                return {};
              });
}

Status read_action(const YAML::Node& node, const std::string& file, Rule& rule) {
  return each(
      node, file, {"algorithm", "protocol", "network", "channels"},
      [&](const std::string& name, const YAML::Node& value) -> Status {
        if (!value.IsScalar()) return invalid(value, file, fmt::format("'{}' must be a single value", name));
        if (name == "channels") {
          TUTTI_ASSIGN(const int64_t count, number(value, file, Type::kInteger, 64));
          if (rule.forbids) return invalid(value, file, "channels can be chosen, not forbidden");
          rule.channels = static_cast<uint32_t>(count);
          return {};
        }
        (name == "algorithm" ? rule.algorithm : name == "protocol" ? rule.protocol : rule.network) = value.Scalar();
        return {};
      });
}

}  // namespace

std::string place_of(const YAML::Node& node, const std::string& file) {
  const YAML::Mark mark = node.Mark();
  return mark.is_null() ? file : fmt::format("{}:{}:{}", file, mark.line + 1, mark.column + 1);
}

Result<Rule> read_rule(const YAML::Node& node, const std::string& file) {
  Rule rule;
  rule.place = place_of(node, file);
  bool acts = false;
  TUTTI_TRY(
      each(node, file, {"match", "choose", "forbid"}, [&](const std::string& name, const YAML::Node& value) -> Status {
        if (name == "match") return read_match(value, file, rule);
        if (acts) return invalid(value, file, "a rule either chooses or forbids");
        acts = true;
        rule.forbids = name == "forbid";
        return read_action(value, file, rule);
      }));
  if (!acts) return invalid(node, file, "a rule needs 'choose' or 'forbid'");
  if (rule.algorithm.empty() && rule.protocol.empty() && rule.network.empty() && !rule.channels) {
    return invalid(node, file, "a rule must name an algorithm, protocol, network or channels");
  }
  return rule;
}

}  // namespace tutti::config
