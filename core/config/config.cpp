// SPDX-License-Identifier: Apache-2.0
#include "config/config.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "config/suggest.h"
#include "config/tree.h"

namespace tutti::config {
namespace {

// Variables that are no settings.
const std::vector<std::string> kOtherVariables = {"TUTTI_CONFIG",      "TUTTI_SITE_CONFIG", "TUTTI_SET",
                                                  "TUTTI_UNIQUE_ID",   "TUTTI_RANK",        "TUTTI_RANKS",
                                                  "TUTTI_PLUGIN_PATH", "TUTTI_UNLOAD",      "TUTTI_SKIP_SETUP"};

std::string find_variable(const LoadOptions& options, std::string_view name) {
  for (const auto& [key, value] : options.environment) {
    if (key == name) return value;
  }
  return {};
}

}  // namespace

std::vector<std::pair<std::string, std::string>> process_environment() {
  std::vector<std::pair<std::string, std::string>> out;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const size_t equals = text.find('=');
    if (text.starts_with("TUTTI_") && equals != std::string_view::npos) {
      out.emplace_back(text.substr(0, equals), text.substr(equals + 1));
    }
  }
  std::sort(out.begin(), out.end());
  return out;
}

Result<Config> Config::load(const LoadOptions& options) {
  Config config;
  for (const Key& key : core_keys()) TUTTI_TRY(config.declare(key));
  const std::string site = find_variable(options, "TUTTI_SITE_CONFIG");
  if (!site.empty() || access(options.site_file.c_str(), F_OK) == 0) {
    TUTTI_TRY(config.merge_file(site.empty() ? options.site_file : site, "site"));
  }
  const std::string job = options.job_file.empty() ? find_variable(options, "TUTTI_CONFIG") : options.job_file;
  if (!job.empty()) TUTTI_TRY(config.merge_file(job, "job"));
  TUTTI_TRY(config.merge_environment(options.environment));
  for (const auto& [key, text] : options.settings) TUTTI_TRY(config.set(key, text, "application", "application"));
  return config;
}

Status Config::declare(const Key& key) {
  auto value = parse(key, key.default_text);
  if (!value.ok()) return value.status().with_context(fmt::format("default of '{}'", key.name));
  slots_[key.name] = {key, *std::move(value), "built-in"};
  return {};
}

Status Config::set(const std::string& key, std::string_view text, const std::string& place, const std::string& origin) {
  const auto slot = slots_.find(key);
  if (slot == slots_.end()) {
    if (key.starts_with("settings.")) {
      pending_[key].push_back({std::string(text), place});
      return {};
    }
    return {Code::kConfig, fmt::format("{}: unknown key '{}'{}", place, key, did_you_mean(key, names()))};
  }
  auto value = parse(slot->second.key, text);
  if (!value.ok()) return {Code::kConfig, fmt::format("{}: {}: {}", place, key, value.status().text())};
  slot->second.value = *std::move(value);
  slot->second.origin = origin;
  return {};
}

Status Config::merge_file(const std::string& path, const std::string& layer) {
  TUTTI_ASSIGN(Tree tree, read_file(path));
  for (const Entry& entry : tree.entries) TUTTI_TRY(set(entry.key, entry.text, entry.place, layer + " " + entry.place));
  // A later layer's rules come first, and the first rule that matches decides.
  rules_.insert(rules_.begin(), std::make_move_iterator(tree.rules.begin()), std::make_move_iterator(tree.rules.end()));
  return {};
}

Status Config::merge_environment(const std::vector<std::pair<std::string, std::string>>& environment) {
  std::map<std::string, std::string> keys;
  std::vector<std::string> known = kOtherVariables;
  for (const auto& [name, slot] : slots_) {
    keys[variable_of(name)] = name;
    known.push_back(variable_of(name));
  }
  for (const auto& [variable, text] : environment) {
    if (const auto key = keys.find(variable); key != keys.end()) {
      TUTTI_TRY(set(key->second, text, "environment " + variable, "environment " + variable));
    } else if (variable == "TUTTI_SET") {
      for (std::string_view rest = text; !rest.empty();) {
        const std::string_view item = rest.substr(0, rest.find(';'));
        rest.remove_prefix(std::min(rest.size(), item.size() + 1));
        const size_t equals = item.find('=');
        if (equals == std::string_view::npos) {
          return {Code::kConfig, fmt::format("environment TUTTI_SET: '{}' is not key=value", item)};
        }
        TUTTI_TRY(set(std::string(item.substr(0, equals)), item.substr(equals + 1), "environment TUTTI_SET",
                      "environment TUTTI_SET"));
      }
    } else if (std::find(kOtherVariables.begin(), kOtherVariables.end(), variable) == kOtherVariables.end()) {
      return {Code::kConfig,
              fmt::format("environment: unknown variable {}{}", variable, did_you_mean(variable, known))};
    }
  }
  return {};
}

Status Config::add(std::string_view kind, std::string_view plugin, const std::vector<Key>& keys) {
  const std::string prefix = fmt::format("settings.{}.{}.", kind, plugin);
  std::vector<std::string> known;
  for (const Key& key : keys) {
    TUTTI_TRY(declare(key));
    known.push_back(key.name);
  }
  for (const auto& [key, layers] : pending_) {
    if (!key.starts_with(prefix)) continue;
    for (const Pending& given : layers) {
      if (slots_.find(key) == slots_.end()) {
        return {Code::kConfig, fmt::format("{}: {} plugin '{}' has no setting '{}'{}", given.place, kind, plugin, key,
                                           did_you_mean(key, known))};
      }
      TUTTI_TRY(set(key, given.text, given.place, given.place));
    }
  }
  return {};
}

const Value& Config::value(std::string_view key) const {
  static const Value kNone;
  const auto slot = slots_.find(key);
  return slot == slots_.end() ? kNone : slot->second.value;
}

const std::string& Config::origin(std::string_view key) const {
  static const std::string kNone = "undeclared";
  const auto slot = slots_.find(key);
  return slot == slots_.end() ? kNone : slot->second.origin;
}

std::vector<std::string> Config::names() const {
  std::vector<std::string> out;
  for (const auto& [name, slot] : slots_) out.push_back(name);
  return out;
}

std::vector<Config::Item> Config::items() const {
  std::vector<Item> out;
  for (const auto& [name, slot] : slots_)
    out.push_back({name, format(slot.key, slot.value), slot.origin, slot.key.help});
  return out;
}

std::vector<std::string> Config::agreement() const {
  std::vector<std::string> out;
  for (const auto& [name, slot] : slots_) {
    if (slot.key.must_agree) out.push_back(fmt::format("{}={}", name, format(slot.key, slot.value)));
  }
  for (size_t i = 0; i < rules_.size(); ++i) {
    const Rule& rule = rules_[i];
    out.push_back(fmt::format("rule {}={} {} {} {} {} {} {} {} {} {} {} {}", i, rule.forbids ? "forbid" : "choose",
                              rule.collective ? to_string(*rule.collective) : "*",
                              rule.data_type ? to_string(*rule.data_type) : "*", rule.min_size, rule.max_size,
                              rule.ranks.value_or(0), rule.nodes.value_or(0), rule.link, rule.algorithm, rule.protocol,
                              rule.network, rule.channels.value_or(0)));
  }
  return out;
}

}  // namespace tutti::config
