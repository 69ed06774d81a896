// SPDX-License-Identifier: Apache-2.0
#include "config/config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/auxv.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>

#include "config/suggest.h"
#include "config/trust.h"
#include "log/log.h"

namespace tutti::config {
namespace {

// Variables that are no settings. TUTTI_TEST_* belongs to the tests.
const std::vector<std::string> kOtherVariables = {
    "TUTTI_CONFIG",         "TUTTI_SITE_CONFIG", "TUTTI_SET",  "TUTTI_ID",           "TUTTI_ID_SECRET",
    "TUTTI_ID_SECRET_FILE", "TUTTI_MEETING",     "TUTTI_RANK", "TUTTI_RANKS",        "TUTTI_PLUGIN_PATH",
    "TUTTI_UNLOAD",         "TUTTI_SKIP_SETUP",  "TUTTI_NET",  "TUTTI_NET_RECEIVES", "TUTTI_SSH"};
constexpr std::string_view kSiteVariable = "TUTTI_SITE_CONFIG";
constexpr std::string_view kJobVariable = "TUTTI_CONFIG";
constexpr std::string_view kRules = "rules";
constexpr std::string_view kRulesVariable = "TUTTI_RULES";
constexpr const char* kRulesPlace =
    "rules can stand only in a file, as a list under the key 'rules'; --config or "
    "TUTTI_CONFIG names the file";
constexpr std::string_view kTrust = "plugins.trust";
constexpr std::string_view kTestVariable = "TUTTI_TEST_";
constexpr std::string_view kSettings = "settings.";
constexpr std::string_view kSettingsVariable = "TUTTI_SETTINGS_";

/// The keys of a section: "shm.slots" of "shm".
std::vector<std::string> keys_below(const std::string& section, const std::vector<std::string>& known) {
  std::vector<std::string> keys;
  const auto is_below = [&](const std::string& key) { return key.starts_with(section + "."); };
  std::copy_if(known.begin(), known.end(), std::back_inserter(keys), is_below);
  return keys;
}

/// A setting that stands in no file.
Entry entry_of(std::string key, std::string_view text, const std::string& origin) {
  return {std::move(key), std::string(text), origin, origin, std::nullopt, origin};
}

/// Whether a key or a variable begins with `section`.
bool is_in(std::string_view name, std::string_view section, char separator) {
  return name == section || (name.starts_with(section) && name[section.size()] == separator);
}

/// The advice for a word that is not `known`.
std::string advice(std::string_view word, const std::vector<std::string>& known) {
  const std::string guess = did_you_mean(word, known);
  return guess.empty() ? "; `tutti config show` lists what there is" : guess;
}

std::string find_variable(const LoadOptions& options, std::string_view name) {
  for (const auto& [key, value] : options.environment) {
    if (key == name) return value;
  }
  return {};
}

}  // namespace

std::vector<std::pair<std::string, std::string>> process_environment() {
  std::vector<std::pair<std::string, std::string>> out;
  if (getauxval(AT_SECURE) != 0) return out;
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

/// The value of plugins.trust in the environment and in the application, above all files. load() reports errors in
/// these layers.
std::optional<std::string> Config::trust_above_files(const LoadOptions& options) {
  Config above;
  bool good = true;
  for (const Key& key : core_keys()) good = good && above.declare(key).ok();
  good = good && above.merge_environment(options.environment).ok();
  for (const auto& [key, text] : options.settings) {
    good = good && above.set(entry_of(key, text, options.settings_origin)).ok();
  }
  return good && above.origin(kTrust) != "built-in" ? std::optional(above.text(kTrust)) : std::nullopt;
}

Result<Config> Config::load(const LoadOptions& options) {
  Config config;
  for (const Key& key : core_keys()) TUTTI_TRY(config.declare(key));
  const std::optional<std::string> trust = trust_above_files(options);
  const std::string site = find_variable(options, kSiteVariable);
  if (!site.empty() || access(options.site_file.c_str(), F_OK) == 0) {
    TUTTI_TRY(site.empty() ? config.merge_file(options.site_file, "", "site", trust)
                           : config.merge_file(site, kSiteVariable, "site", trust));
  }
  const std::string job = find_variable(options, kJobVariable);
  if (!options.job_file.empty()) {
    TUTTI_TRY(config.merge_file(options.job_file, options.job_file_origin, "job", trust));
  } else if (!job.empty()) {
    TUTTI_TRY(config.merge_file(job, kJobVariable, "job", trust));
  }
  TUTTI_TRY(config.merge_environment(options.environment));
  for (const auto& [key, text] : options.settings) TUTTI_TRY(config.set(entry_of(key, text, options.settings_origin)));
  return config;
}

Status Config::declare(const Key& key) {
  auto value = parse(key, key.default_text);
  if (!value.ok()) return value.status().with_context(fmt::format("default of '{}'", key.name));
  slots_[key.name] = {key, *std::move(value), "built-in", "built-in"};
  return {};
}

Status Config::set(const Entry& entry) {
  if (const auto slot = slots_.find(entry.key); slot != slots_.end()) return apply(entry, slot->second);
  if (entry.key.starts_with(kSettings)) return keep(entry);
  if (is_in(entry.key, kRules, '.')) return wrong(entry.place, fmt::format("'{}': {}", entry.key, kRulesPlace));
  if (const std::vector<std::string> below = keys_below(entry.key, names()); !below.empty()) {
    return wrong(entry.place, fmt::format("'{}' is a section, not a setting; its settings are {}", entry.key,
                                          fmt::join(below, ", ")));
  }
  return wrong(entry.place, fmt::format("unknown key '{}'{}", entry.key, advice(entry.key, names())));
}

Status Config::apply(const Entry& entry, Slot& slot) {
  const bool wants_list = slot.key.type == Type::kList;
  const bool wants_either = slot.key.type == Type::kNames;
  if (!wants_either && entry.is_list.value_or(wants_list) != wants_list) {
    return wrong(entry.value_place, fmt::format("{}: expected {}", slot.key.name,
                                                wants_list ? "a list such as [a, b]" : "a single value, not a list"));
  }
  auto value = parse(slot.key, entry.text);
  if (!value.ok()) return wrong(entry.value_place, fmt::format("{}: {}", slot.key.name, value.status().text()));
  slot.overrides.insert(slot.overrides.begin(), {format(slot.key, slot.value), slot.origin});
  slot.value = *std::move(value);
  slot.origin = entry.origin;
  slot.place = entry.value_place;
  slot.item_places = entry.item_places;
  return {};
}

/// Keeps a setting until add() has the keys of its plugin.
Status Config::keep(const Entry& entry) {
  static const std::vector<std::string> kKinds = {"algo", "proto", "net", "tuner"};
  const std::string_view rest = std::string_view(entry.key).substr(kSettings.size());
  const std::string_view kind = rest.substr(0, rest.find('.'));
  if (std::find(kKinds.begin(), kKinds.end(), kind) == kKinds.end()) {
    return wrong(entry.place, fmt::format("'{}': '{}' is no kind of plugin{}; there are: {}", entry.key, kind,
                                          did_you_mean(kind, kKinds), fmt::join(kKinds, ", ")));
  }
  const size_t dots = static_cast<size_t>(std::count(rest.begin(), rest.end(), '.'));
  if (dots < 2 || rest.find("..") != std::string_view::npos || rest.ends_with('.')) {
    return wrong(entry.place, fmt::format("'{}' is not of the form settings.<kind>.<plugin>.<name>", entry.key));
  }
  pending_.push_back(entry);
  return {};
}

/// `named_by`: the origin of `path`, for the text if the file cannot be read; empty: none. `trust`: of the layers above
/// the files; without it, files below decide.
Status Config::merge_file(const std::string& path, std::string_view named_by, const std::string& layer,
                          const std::optional<std::string>& trust) {
  TUTTI_TRY(check_trust(path, "the configuration file", trust.value_or(text(kTrust))));
  auto read = read_tree(path, layer);
  const bool is_read = read.ok() || read.status().code() == Code::kConfig;  // else the text has no place in the file
  if (!is_read) return named_by.empty() ? read.status() : read.status().with_context(named_by);
  TUTTI_ASSIGN(Tree tree, std::move(read));
  for (const Entry& entry : tree.entries) TUTTI_TRY(set(entry));
  // A later layer's rules come first, and the first rule that matches decides.
  rules_.insert(rules_.begin(), std::make_move_iterator(tree.rules.begin()), std::make_move_iterator(tree.rules.end()));
  return {};
}

Status Config::merge_environment(const std::vector<std::pair<std::string, std::string>>& environment) {
  std::map<std::string, std::string, std::less<>> keys;
  std::vector<std::string> known = kOtherVariables;
  for (const auto& [name, slot] : slots_) {
    keys[variable_of(name)] = name;
    known.push_back(variable_of(name));
  }
  std::string_view assignments;
  for (const auto& [variable, text] : environment) {
    const std::string origin = "environment " + variable;
    if (const auto key = keys.find(variable); key != keys.end()) {
      TUTTI_TRY(set(entry_of(key->second, text, origin)));
    } else if (variable.starts_with(kSettingsVariable)) {
      pending_.push_back(entry_of(variable, text, origin));
    } else if (variable == "TUTTI_SET") {
      assignments = text;
    } else if (is_in(variable, kRulesVariable, '_')) {
      return wrong(origin, kRulesPlace);
    } else if (!variable.starts_with(kTestVariable) &&
               std::find(kOtherVariables.begin(), kOtherVariables.end(), variable) == kOtherVariables.end()) {
      return wrong("environment", fmt::format("unknown variable {}{}", variable, advice(variable, known)));
    }
  }
  return merge_assignments(assignments, "environment TUTTI_SET");
}

Status Config::merge_assignments(std::string_view list, const std::string& origin) {
  while (!list.empty()) {
    const std::string_view item = list.substr(0, list.find(';'));
    list.remove_prefix(std::min(list.size(), item.size() + 1));
    if (item.empty()) continue;
    const size_t equals = item.find('=');
    if (equals == std::string_view::npos) return wrong(origin, fmt::format("'{}' is not key=value", item));
    TUTTI_TRY(set(entry_of(std::string(item.substr(0, equals)), item.substr(equals + 1), origin)));
  }
  return {};
}

Status Config::add(std::string_view kind, std::string_view plugin, const std::vector<Key>& keys) {
  const std::string prefix = fmt::format("settings.{}.{}.", kind, plugin);
  const std::string variable_prefix = variable_of(prefix);
  std::vector<std::string> known;
  for (const Key& key : keys) {
    TUTTI_TRY(declare(key));
    known.push_back(key.name);
  }
  for (const Entry& entry : pending_) {
    const bool is_variable = entry.key.starts_with(variable_prefix);
    if (!is_variable && !entry.key.starts_with(prefix)) continue;
    const auto key = std::find_if(known.begin(), known.end(), [&](const std::string& name) {
      return (is_variable ? variable_of(name) : name) == entry.key;
    });
    if (key == known.end()) {
      if (is_variable) std::transform(known.begin(), known.end(), known.begin(), variable_of);
      std::vector<std::string> allowed;
      const size_t start = is_variable ? variable_prefix.size() : prefix.size();
      for (const std::string& name : known) allowed.push_back(name.substr(start));
      return wrong(entry.place,
                   fmt::format("{} plugin '{}' has no setting '{}'{}; {}", kind, plugin, entry.key,
                               did_you_mean(entry.key, known),
                               allowed.empty() ? "it has none" : fmt::format("allowed: {}", fmt::join(allowed, ", "))));
    }
    TUTTI_TRY(apply(entry, slots_.find(*key)->second));
  }
  return {};
}

std::vector<std::string> Config::unused(std::string_view kind) const {
  const std::string prefix = kind.empty() ? "settings." : fmt::format("settings.{}.", kind);
  std::vector<std::string> out;
  for (const Entry& entry : pending_) {
    if (!entry.key.starts_with(prefix) && !entry.key.starts_with(variable_of(prefix))) continue;
    const bool used = std::any_of(slots_.begin(), slots_.end(), [&](const auto& slot) {
      return slot.first == entry.key || variable_of(slot.first) == entry.key;
    });
    if (!used) out.push_back(fmt::format("{}: {}", entry.place, entry.key));
  }
  return out;
}

const Value& Config::value(std::string_view key) const {
  static const Value kNone;
  const auto slot = slots_.find(key);
  if (slot != slots_.end()) return slot->second.value;
  log::error("a bug: nobody declared the configuration key '{}'", key);
  return kNone;
}

std::string Config::joined(std::string_view key) const {
  return fmt::format("{}", fmt::join(list(key), ","));
}

const std::string& Config::origin(std::string_view key) const {
  static const std::string kNone = "undeclared";
  const auto slot = slots_.find(key);
  return slot == slots_.end() ? kNone : slot->second.origin;
}

const std::string& Config::place(std::string_view key) const {
  const auto slot = slots_.find(key);
  return slot == slots_.end() ? origin(key) : slot->second.place;
}

const std::string& Config::item_place(std::string_view key, size_t index) const {
  const auto slot = slots_.find(key);
  if (slot == slots_.end() || index >= slot->second.item_places.size()) return place(key);
  return slot->second.item_places[index];
}

std::vector<std::string> Config::names() const {
  std::vector<std::string> out;
  for (const auto& [name, slot] : slots_) out.push_back(name);
  return out;
}

std::vector<Config::Item> Config::items() const {
  std::vector<Item> out;
  for (const auto& [name, slot] : slots_) {
    out.push_back({name, format(slot.key, slot.value), slot.origin, slot.key.help, slot.overrides});
  }
  return out;
}

std::vector<std::string> Config::agreement() const {
  std::vector<std::string> out;
  for (const auto& [name, slot] : slots_) {
    if (slot.key.must_agree) out.push_back(fmt::format("{}={}", name, format(slot.key, slot.value)));
  }
  for (size_t i = 0; i < rules_.size(); ++i) out.push_back(fmt::format("rules.{}={}", i, to_string(rules_[i])));
  return out;
}

/// FNV-1a (Fowler, Noll and Vo, 1991).
uint64_t Config::hash() const {
  uint64_t hash = 0xcbf29ce484222325;
  const auto add = [&](char c) { hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3; };
  for (const std::string& line : agreement()) {
    for (const char c : line) add(c);
    add('\n');
  }
  return hash;
}

}  // namespace tutti::config
