// SPDX-License-Identifier: Apache-2.0
#include "config/tree.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string_view>

#include "config/schema.h"

namespace tutti::config {
namespace {

class Flattener {
 public:
  explicit Flattener(const std::string& layer) : layer_(layer) {}
  Tree take() { return std::move(tree_); }

  Status walk(const Node& map, const std::string& prefix) {
    for (const Node& child : map.children) {
      const std::string key = prefix + child.key;
      if (key == "rules") {
        TUTTI_ASSIGN(tree_.rules, read_rules(child));
      } else if (child.kind == Node::Kind::kMap && !child.children.empty()) {
        TUTTI_TRY(refuse_setting(key, child));
        TUTTI_TRY(walk(child, key + "."));
      } else {
        TUTTI_TRY(add(key, child));
      }
    }
    return {};
  }

 private:
  /// Refuses a map where a setting of the core wants a value.
  static Status refuse_setting(std::string_view key, const Node& map) {
    const auto setting = std::ranges::find(core_keys(), key, &Key::name);
    if (setting == core_keys().end()) return {};
    std::string_view wanted = "a single value";
    if (setting->type == Type::kList) wanted = "a list such as [a, b]";
    if (setting->type == Type::kNames) wanted = "a word or a list of words such as [a, b]";
    return wrong(map.place, fmt::format("{}: expected {}, not a map", key, wanted));
  }

  Status add(const std::string& key, const Node& node) {
    const auto [first, is_new] = places_.try_emplace(key, node.key_place);
    if (!is_new) return wrong(node.key_place, fmt::format("'{}' stands twice; first at {}", key, first->second));
    Entry entry{key, node.text, node.key_place, node.place, false, fmt::format("{} {}", layer_, node.key_place)};
    if (node.kind == Node::Kind::kList) {
      entry.is_list = true;
      TUTTI_ASSIGN(entry.text, list_text(node));
      for (const Node& item : node.children) entry.item_places.push_back(item.place);
    } else if (node.kind != Node::Kind::kScalar) {
      return wrong(node.key_place, fmt::format("'{}' has no value; give it one, or remove it", key));
    }
    tree_.entries.push_back(std::move(entry));
    return {};
  }

  static Result<std::string> list_text(const Node& list) {
    std::string text = "[";
    for (const Node& item : list.children) {
      if (item.kind != Node::Kind::kScalar || item.text.empty() ||
          item.text.find_first_of(",[]") != std::string::npos) {
        return wrong(item.place, "an item of a list must be a word without commas and brackets");
      }
      text.append(text.size() > 1 ? ", " : "").append(item.text);
    }
    return text + "]";
  }

  const std::string& layer_;
  Tree tree_;
  std::map<std::string, std::string> places_;  // by key: "a.b" may also be written {a: {b: ...}}
};

/// Files of a different kind, each by a key that only files of this kind have.
constexpr struct {
  std::string_view key;
  std::string_view kind;
  std::string_view setting;
} kOtherFiles[] = {
    {"tutti_topology", "a topology", "topology.file"},
    {"tutti_hardware", "hardware figures", "hardware.file"},
    {"tutti_table", "a table of the tuner", "settings.tuner.table.file"},
    {"collective", "a plan", "algorithm"},
};

Status refuse_other_files(const Node& root) {
  for (const Node& child : root.children) {
    for (const auto& other : kOtherFiles) {
      if (child.key != other.key) continue;
      return wrong(child.key_place, fmt::format("this file is {}, no configuration; a configuration names it in {}",
                                                other.kind, other.setting));
    }
  }
  return {};
}

}  // namespace

Result<Tree> read_tree(const std::string& path, const std::string& layer) {
  TUTTI_ASSIGN(const Node root, read_file(path));
  TUTTI_TRY(refuse_other_files(root));
  Flattener flattener(layer);
  TUTTI_TRY(flattener.walk(root, ""));
  return flattener.take();
}

}  // namespace tutti::config
