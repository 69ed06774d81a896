// SPDX-License-Identifier: Apache-2.0
#include "config/tree.h"

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <fstream>
#include <sstream>

namespace tutti::config {
namespace {

constexpr int kMaxDepth = 16;
constexpr size_t kMaxBytes = 1 << 20;

class Reader {
 public:
  explicit Reader(std::string name) : name_(std::move(name)) {}

  Result<Tree> read(const YAML::Node& root) {
    if (root.IsNull() || !root.IsDefined()) return tree_;
    if (!root.IsMap()) return invalid(root, "the file must be a map of settings, such as 'protocol: ll'");
    TUTTI_TRY(walk(root, "", 0));
    return std::move(tree_);
  }

 private:
  Status invalid(const YAML::Node& node, std::string_view text) const {
    return {Code::kConfig, fmt::format("{}: {}", place_of(node, name_), text)};
  }

  Status walk(const YAML::Node& map, const std::string& prefix, int depth) {
    if (depth > kMaxDepth) return invalid(map, "nested too deeply");
    for (const auto& pair : map) {
      const YAML::Node& key = pair.first;
      const YAML::Node& value = pair.second;
      if (!key.IsScalar() || key.Scalar().empty()) return invalid(key, "a key must be a word");
      const std::string full = prefix.empty() ? key.Scalar() : prefix + "." + key.Scalar();
      TUTTI_TRY(full == "rules" ? read_rules(value) : entry(full, key, value, depth));
    }
    return {};
  }

  Status entry(const std::string& full, const YAML::Node& key, const YAML::Node& value, int depth) {
    if (value.IsMap()) return walk(value, full, depth + 1);
    for (const Entry& other : tree_.entries) {
      if (other.key == full) return invalid(key, fmt::format("'{}' stands twice; first at {}", full, other.place));
    }
    Entry out{full, {}, place_of(key, name_)};
    if (value.IsScalar()) {
      out.text = value.Scalar();
    } else if (value.IsSequence()) {
      TUTTI_ASSIGN(out.text, list_text(value));
    } else {
      return invalid(key, fmt::format("'{}' has no value", full));
    }
    tree_.entries.push_back(std::move(out));
    return {};
  }

  Result<std::string> list_text(const YAML::Node& list) {
    std::string text = "[";
    for (const auto& item : list) {
      if (!item.IsScalar() || item.Scalar().find_first_of(",[]") != std::string::npos) {
        return invalid(item, "an item of a list must be a word without commas or brackets");
      }
      if (text.size() > 1) text += ", ";
      text += item.Scalar();
    }
    return text + "]";
  }

  Status read_rules(const YAML::Node& list) {
    if (!list.IsSequence())
      return invalid(list, "rules must be a list: '- match: {...}' and 'choose: {...}' or 'forbid: {...}'");
    for (const auto& item : list) {
      TUTTI_ASSIGN(Rule rule, read_rule(item, name_));
      tree_.rules.push_back(std::move(rule));
    }
    return {};
  }

  std::string name_;
  Tree tree_;
};

}  // namespace

Result<Tree> read_text(const std::string& text, const std::string& name) {
  if (text.size() > kMaxBytes)
    return Status(Code::kConfig, fmt::format("{}: larger than 1 MiB; is it a configuration?", name));
  try {
    const std::vector<YAML::Node> documents = YAML::LoadAll(text);
    if (documents.empty()) return Tree{};
    if (documents.size() > 1)
      return Status(Code::kConfig, fmt::format("{}: holds several YAML documents; keep one", name));
    return Reader(name).read(documents.front());
  } catch (const YAML::Exception& error) {
    return Status(Code::kConfig,
                  fmt::format("{}:{}:{}: {}", name, error.mark.line + 1, error.mark.column + 1, error.msg));
  } catch (const std::exception& error) {
    return Status(Code::kConfig, fmt::format("{}: {}", name, error.what()));
  }
}

Result<Tree> read_file(const std::string& path) {
  std::ifstream in(path);
  if (!in)
    return Status(Code::kNotFound,
                  fmt::format("cannot read the configuration file {}; check the path and its permissions", path));
  std::stringstream text;
  text << in.rdbuf();
  return read_text(text.str(), path);
}

}  // namespace tutti::config
