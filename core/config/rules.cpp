// SPDX-License-Identifier: Apache-2.0
#include "config/rules.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "config/suggest.h"
#include "config/value.h"

namespace tutti::config {
namespace {

constexpr std::string_view kMatch = "rules.match.";
constexpr std::string_view kChoose = "rules.choose.";

/// Names of an enumeration's values 0 ... count-1.
template <class Enum>
std::vector<std::string> names(uint32_t count) {
  std::vector<std::string> out;
  for (uint32_t i = 0; i < count; ++i) out.emplace_back(to_string(static_cast<Enum>(i)));
  return out;
}

std::vector<Key> make_keys() {
  const auto match = [](std::string_view name, Type type, std::string help, int64_t minimum = 0,
                        int64_t maximum = INT64_MAX, std::vector<std::string> allowed = {}) {
    return Key{std::string(kMatch).append(name), type, "", std::move(help), std::move(allowed), minimum, maximum};
  };
  const auto choose = [](std::string_view name, Type type, std::string help, int64_t maximum = INT64_MAX) {
    return Key{std::string(kChoose).append(name), type, "", std::move(help), {}, 1, maximum};
  };
  return {
      match("collective", Type::kChoice, "The collective.", 0, 0, names<Collective>(kCollectiveCount)),
      match("data_type", Type::kChoice, "The type of its elements.", 0, 0, names<DataType>(kDataTypeCount)),
      match("min_size", Type::kSize, "Its block has at least so many bytes."),
      match("max_size", Type::kSize, "Its block has at most so many bytes."),
      match("ranks", Type::kInteger, "The communicator has so many ranks.", 1, INT32_MAX),
      match("nodes", Type::kInteger, "The communicator spans so many hosts.", 1, INT32_MAX),
      match("link", Type::kChoice, "The communicator has links of this sort.", 0, 0, {"shm", "net"}),
      match("device", Type::kChoice, "The device of the communicator.", 0, 0, {"host", "cuda"}),
      choose("algorithm", Type::kText,
             "An algorithm (ring), one of its variants (direct/two-shot), a plan file or a folder of plan files "
             "(plans/)."),
      choose("protocol", Type::kText, "A protocol."),
      choose("network", Type::kText, "A network."),
      choose("channels", Type::kInteger, "Channels; can be chosen, not forbidden.", 64),
  };
}

/// Walks a map whose keys must be among `known`.
template <class Visit>
Status each(const Node& map, std::string_view what, const std::vector<std::string>& known, Visit&& visit) {
  if (map.kind != Node::Kind::kMap) {
    return wrong(map.place, fmt::format("{} must be a map with: {}", what, fmt::join(known, ", ")));
  }
  for (const Node& child : map.children) {
    if (std::find(known.begin(), known.end(), child.key) == known.end()) {
      return wrong(child.key_place, fmt::format("unknown key '{}' in {}{}; allowed: {}", child.key, what,
                                                did_you_mean(child.key, known), fmt::join(known, ", ")));
    }
    TUTTI_TRY(visit(child));
  }
  return {};
}

/// Walks the values of `match`, `choose` or `forbid`, read as rule_keys() says.
template <class Take>
Status each_value(const Node& map, std::string_view prefix, Take&& take) {
  std::vector<std::string> known;
  for (const Key& key : rule_keys()) {
    if (key.name.starts_with(prefix)) known.push_back(key.name.substr(prefix.size()));
  }
  return each(map, fmt::format("'{}' of a rule", map.key), known, [&](const Node& node) -> Status {
    const std::string name = std::string(prefix).append(node.key);
    const auto key = std::find_if(rule_keys().begin(), rule_keys().end(), [&](const Key& k) { return k.name == name; });
    if (node.kind != Node::Kind::kScalar)
      return wrong(node.place, fmt::format("{}: expected a single value", node.key));
    const auto value = parse(*key, node.text);
    if (!value.ok()) return wrong(node.place, fmt::format("{}: {}", node.key, value.status().text()));
    take(node, *value);
    return {};
  });
}

Status read_match(const Node& node, Rule& rule) {
  TUTTI_TRY(each_value(node, kMatch, [&](const Node& item, const Value& value) {
    const std::string& name = item.key;
    if (name == "collective") rule.collective = collective_from(value.text);
    if (name == "data_type") rule.data_type = data_type_from(value.text);
    if (name == "min_size") rule.min_size = static_cast<uint64_t>(value.integer);
    if (name == "max_size") rule.max_size = static_cast<uint64_t>(value.integer);
    if (name == "ranks") rule.ranks = static_cast<uint32_t>(value.integer);
    if (name == "nodes") rule.nodes = static_cast<uint32_t>(value.integer);
    if (name == "link") rule.link = value.text;
    if (name == "device") rule.device = value.text;
  }));
  if (rule.min_size > rule.max_size) return wrong(node.place, "min_size is larger than max_size: nothing can match");
  return {};
}

Status read_action(const Node& node, Rule& rule) {
  const auto put = [](const Node& item, const Value& value, std::string& text, std::string& place) {
    text = value.text;
    place = item.place;
  };
  TUTTI_TRY(each_value(node, kChoose, [&](const Node& item, const Value& value) {
    const std::string& name = item.key;
    if (name == "algorithm") put(item, value, rule.algorithm, rule.algorithm_place);
    if (name == "protocol") put(item, value, rule.protocol, rule.protocol_place);
    if (name == "network") put(item, value, rule.network, rule.network_place);
    if (name == "channels") rule.channels = static_cast<uint32_t>(value.integer);
  }));
  if (rule.forbids && rule.channels) return wrong(node.place, "channels can be chosen, not forbidden");
  if (node.children.empty()) return wrong(node.place, "name an algorithm, protocol, network or channels");
  return {};
}

Result<Rule> read_rule(const Node& node) {
  Rule rule;
  rule.place = node.place;
  bool acts = false;
  TUTTI_TRY(each(node, "a rule", {"match", "choose", "forbid"}, [&](const Node& child) -> Status {
    if (child.key == "match") return read_match(child, rule);
    if (acts) return wrong(child.key_place, "a rule either chooses or forbids; make it two");
    acts = true;
    rule.forbids = child.key == "forbid";
    return read_action(child, rule);
  }));
  if (!acts) return wrong(node.place, "a rule needs 'choose' or 'forbid'");
  return rule;
}

}  // namespace

std::span<const Key> rule_keys() {
  static const std::vector<Key> keys = make_keys();
  return keys;
}

Result<std::vector<Rule>> read_rules(const Node& list) {
  if (list.kind != Node::Kind::kList) {
    return wrong(list.place, "rules must be a list: '- match: {...}' and 'choose: {...}' or 'forbid: {...}'");
  }
  std::vector<Rule> rules;
  for (const Node& node : list.children) {
    TUTTI_ASSIGN(Rule rule, read_rule(node));
    rules.push_back(std::move(rule));
  }
  return rules;
}

bool matches_ranks(const Rule& rule, uint32_t ranks, uint32_t nodes, bool on_gpu) {
  return rule.ranks.value_or(ranks) == ranks && rule.nodes.value_or(nodes) == nodes &&
         (rule.device.empty() || (rule.device == "cuda") == on_gpu);
}

bool matches_all(const Rule& rule) {
  return !rule.collective && !rule.data_type && rule.min_size == 0 && rule.max_size == UINT64_MAX && !rule.ranks &&
         !rule.nodes && rule.link.empty() && rule.device.empty();
}

namespace {

/// Whether `rule` matches each call that `other` matches. A rule that names a network only matches if there is one.
bool matches_calls_of(const Rule& rule, const Rule& other) {
  const auto contains = [](const auto& mine, const auto& theirs) { return !mine || mine == theirs; };
  return contains(rule.collective, other.collective) && contains(rule.data_type, other.data_type) &&
         contains(rule.ranks, other.ranks) && contains(rule.nodes, other.nodes) && rule.min_size <= other.min_size &&
         rule.max_size >= other.max_size && (rule.link.empty() || rule.link == other.link) &&
         (rule.device.empty() || rule.device == other.device) && (rule.network.empty() || !other.network.empty());
}

}  // namespace

Status check_hidden_rules(std::span<const Rule> rules) {
  for (size_t i = 0; i < rules.size(); ++i) {
    for (size_t earlier = 0; earlier < i; ++earlier) {
      if (!matches_calls_of(rules[earlier], rules[i])) continue;
      return wrong(rules[i].place, fmt::format("this rule never applies: the rule at {} matches all of its calls, and "
                                               "the first rule that matches decides; put this rule before it",
                                               rules[earlier].place));
    }
  }
  return {};
}

bool excludes_network(const Rule& rule, std::string_view network) {
  if (rule.network.empty()) return false;
  if (!rule.forbids) return rule.network != network;
  return rule.network == network && rule.algorithm.empty() && rule.protocol.empty();
}

std::string to_string(const Rule& rule) {
  const auto size = [](uint64_t bytes) {
    Key key;
    key.type = Type::kSize;
    Value value;
    value.integer = static_cast<int64_t>(bytes);
    return format(key, value);
  };
  std::vector<std::string> match;
  if (rule.collective) match.push_back(fmt::format("collective: {}", to_string(*rule.collective)));
  if (rule.data_type) match.push_back(fmt::format("data_type: {}", to_string(*rule.data_type)));
  if (rule.min_size > 0) match.push_back(fmt::format("min_size: {}", size(rule.min_size)));
  if (rule.max_size < UINT64_MAX) match.push_back(fmt::format("max_size: {}", size(rule.max_size)));
  if (rule.ranks) match.push_back(fmt::format("ranks: {}", *rule.ranks));
  if (rule.nodes) match.push_back(fmt::format("nodes: {}", *rule.nodes));
  if (!rule.link.empty()) match.push_back(fmt::format("link: {}", rule.link));
  if (!rule.device.empty()) match.push_back(fmt::format("device: {}", rule.device));
  std::vector<std::string> action;
  if (!rule.algorithm.empty()) action.push_back(fmt::format("algorithm: {}", rule.algorithm));
  if (!rule.protocol.empty()) action.push_back(fmt::format("protocol: {}", rule.protocol));
  if (!rule.network.empty()) action.push_back(fmt::format("network: {}", rule.network));
  if (rule.channels) action.push_back(fmt::format("channels: {}", *rule.channels));
  return fmt::format("match {{{}}} {} {{{}}}", fmt::join(match, ", "), rule.forbids ? "forbid" : "choose",
                     fmt::join(action, ", "));
}

}  // namespace tutti::config
