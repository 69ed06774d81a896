// SPDX-License-Identifier: Apache-2.0
#include "plugin/names.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <filesystem>

#include "config/plan_names.h"
#include "config/suggest.h"
#include "plugin/loader.h"
#include "plugin/network_names.h"
#include "plugin/search.h"
#include "tutti/plugin/algorithm.h"

namespace tutti::plugin {
namespace {

constexpr std::string_view kSettings = "settings.";
constexpr std::string_view kVariable = "TUTTI_";
constexpr std::string_view kSettingsVariable = "TUTTI_SETTINGS_";

std::string list_key(Kind kind) {
  return fmt::format("plugins.{}", to_string(kind));
}

bool has(const std::vector<std::string>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::string joined(const std::vector<std::string>& names) {
  return fmt::format("{}", fmt::join(names, ", "));
}

/// Loads the image of a plugin that the configuration names.
Result<std::shared_ptr<Image>> load_image(Kind kind, const std::string& named,
                                          const std::vector<std::filesystem::path>& directories,
                                          const std::string& trust) {
  TUTTI_ASSIGN(const std::filesystem::path file, find(kind, named, directories));
  return Image::load(kind, reference_of(kind, named).plugin, file, trust);
}

/// The names that a configuration may use, and the places of its names.
class Names {
 public:
  explicit Names(const config::Config& config)
      : config_(config), directories_(search_path(config.list("plugins.path"))) {}

  Status check_lists() const;
  Status check_choices() const;
  Status check_networks() const;
  Status check_rules() const;
  Status check_settings() const;
  Status check_name(Kind kind, const std::string& name, std::string_view place, std::string_view key,
                    const std::vector<std::string>& further) const;

  /// A plugin as the configuration names it.
  struct Named {
    std::string text;
    std::string place;  ///< empty: only on the search path
  };
  /// The plugins of a kind that the configuration names, then the remaining plugins on the search path.
  std::vector<Named> all(Kind kind) const;
  const std::vector<std::filesystem::path>& directories() const { return directories_; }
  /// The position of a setting of this plugin in the configuration; empty: it has none.
  std::string place_of_setting(Kind kind, const std::string& name) const;

 private:
  /// The use of a name: a plugin that runs must be loaded, a plugin that is forbidden must only exist.
  enum class Use { kRun, kForbid };
  static Use use_of(const config::Rule& rule) { return rule.forbids ? Use::kForbid : Use::kRun; }

  std::vector<std::string> named(Kind kind) const;
  std::vector<std::string> known(Kind kind) const;
  Result<std::vector<std::string>> variants(const std::string& algorithm) const;
  std::vector<std::string> algorithms_and_variants() const;
  Status unknown(std::string_view place, std::string_view key, Kind kind, const std::string& name,
                 std::vector<std::string> allowed) const;
  Status file_for_name(std::string_view place, std::string_view key, Kind kind, const std::string& text) const;
  Status check_loaded(std::string_view place, std::string_view key, Kind kind, const std::string& name,
                      Use use = Use::kRun) const;
  Status check_algorithm(std::string_view place, std::string_view key, const std::string& text,
                         Use use = Use::kRun) const;
  Status check_owner(const config::Entry& entry) const;

  const config::Config& config_;
  std::vector<std::filesystem::path> directories_;
};

std::vector<Names::Named> Names::all(Kind kind) const {
  std::vector<Named> out;
  const auto& list = config_.list(list_key(kind));
  for (size_t i = 0; i < list.size(); ++i) out.push_back({list[i], config_.item_place(list_key(kind), i)});
  const auto is_new = [&](const std::string& text) {
    return std::none_of(out.begin(), out.end(),
                        [&](const Named& other) { return name_of(kind, other.text) == name_of(kind, text); });
  };
  const std::vector<std::string> networks =
      kind == Kind::kNetwork ? fixed_networks(config_) : std::vector<std::string>();
  for (size_t i = 0; i < networks.size(); ++i) {
    if (!is_new(networks[i]) || !find(kind, networks[i], directories_).ok()) continue;
    out.push_back({networks[i], config_.item_place("network", i)});
  }
  for (const std::string& name : names_on(directories_, kind)) {
    if (is_new(name)) out.push_back({name, ""});
  }
  return out;
}

/// The names in plugins.<kind>, and in the setting `network`.
std::vector<std::string> Names::named(Kind kind) const {
  std::vector<std::string> names;
  for (const std::string& text : config_.list(list_key(kind))) names.push_back(name_of(kind, text));
  if (kind != Kind::kNetwork) return names;
  for (const std::string& text : fixed_networks(config_)) {
    if (std::string name = name_of(kind, text); !has(names, name)) names.push_back(std::move(name));
  }
  return names;
}

/// The names in plugins.<kind> and on the search path.
std::vector<std::string> Names::known(Kind kind) const {
  std::vector<std::string> names = named(kind);
  for (std::string& name : names_on(directories_, kind)) {
    if (!has(names, name)) names.push_back(std::move(name));
  }
  return names;
}

/// "direct/one-shot", "direct/two-shot", ...; empty for an algorithm with one variant. Opens the plugin.
Result<std::vector<std::string>> Names::variants(const std::string& algorithm) const {
  std::string text = algorithm;
  for (const std::string& listed : config_.list(list_key(Kind::kAlgorithm))) {
    if (name_of(Kind::kAlgorithm, listed) == algorithm) text = listed;
  }
  TUTTI_ASSIGN(std::shared_ptr<Image> image,
               load_image(Kind::kAlgorithm, text, directories_, config_.text("plugins.trust")));
  config::Config config = config_;
  TUTTI_ASSIGN(const std::shared_ptr<Plugin> plugin, Plugin::open(std::move(image), config));
  const auto* ops = plugin->ops<tutti_algorithm_ops>();
  std::vector<std::string> names;
  tutti_str name{};
  uint64_t collectives = 0;
  for (uint32_t v = 0; ops->variant(plugin->self(), v, &name, &collectives) == TUTTI_OK; ++v) {
    names.push_back(fmt::format("{}/{}", algorithm, std::string_view(name.data, name.size)));
  }
  if (names.size() == 1) names.clear();
  return names;
}

/// The values that `algorithm` may have, besides auto. An algorithm that cannot be opened has no variants here;
/// Registry::load says why.
std::vector<std::string> Names::algorithms_and_variants() const {
  std::vector<std::string> out;
  for (const std::string& algorithm : named(Kind::kAlgorithm)) {
    out.push_back(algorithm);
    if (const auto found = variants(algorithm); found.ok()) out.insert(out.end(), found->begin(), found->end());
  }
  return out;
}

Status Names::unknown(std::string_view place, std::string_view key, Kind kind, const std::string& name,
                      std::vector<std::string> allowed) const {
  if (key == to_string(kind)) allowed.insert(allowed.begin(), "auto");  // no rule and no setting may say so
  std::vector<std::string> searched;
  for (const auto& directory : directories_) searched.push_back(directory.string());
  return config::wrong(
      place, fmt::format("{}: there is no {} plugin '{}'{}; allowed: {}; searched for {} in {}{}", key, to_string(kind),
                         name, config::did_you_mean(name, allowed), joined(allowed), file_name(kind, name),
                         joined(searched), misnamed_file(kind, name, directories_)));
}

/// Whether a setting has the file of a plugin where only a name may stand. A variant may follow the file.
bool names_file(std::string_view text) {
  return text.starts_with('/') || text.ends_with(".so") || text.find(".so/") != std::string_view::npos;
}

/// Whether a value is neither the file of a plugin nor a name, but a file or a folder that is there.
bool may_be_plans(const std::string& text) {
  std::error_code ignored;
  return text.find(".so") == std::string::npos && std::filesystem::exists(text, ignored);
}

/// Lists of plugins take files; settings and rules then take the names of these plugins.
Status Names::file_for_name(std::string_view place, std::string_view key, Kind kind, const std::string& text) const {
  const size_t suffix = text.rfind(".so");
  const size_t end = suffix == std::string::npos ? text.size() : suffix + 3;
  const std::string name = name_of(kind, std::filesystem::absolute(text.substr(0, end)).string()) + text.substr(end);
  return config::wrong(place, fmt::format("{}: '{}' is a file, and only the name of a plugin may stand here; add the "
                                          "absolute path to {}, which is [{}] ({}), and write '{}' here",
                                          key, text, list_key(kind), joined(config_.list(list_key(kind))),
                                          config_.origin(list_key(kind)), name));
}

/// A protocol or an algorithm.
Status Names::check_loaded(std::string_view place, std::string_view key, Kind kind, const std::string& name,
                           Use use) const {
  const std::vector<std::string> loaded = named(kind);
  if (has(loaded, name)) return {};
  if (kind == Kind::kAlgorithm && may_be_plans(name)) {
    return config::wrong(place, fmt::format("{}: '{}' is no plan file by its name; a plan file ends in .yaml, .yml or "
                                            ".json, and a folder of plan files in '/'",
                                            key, name));
  }
  if (names_file(name)) return file_for_name(place, key, kind, name);
  if (has(known(kind), name)) {
    if (use == Use::kForbid) return {};
    return config::wrong(place, fmt::format("{}: the {} plugin '{}' is not loaded: {} is [{}] ({}); add '{}' there",
                                            key, to_string(kind), name, list_key(kind), joined(loaded),
                                            config_.origin(list_key(kind)), name));
  }
  return unknown(place, key, kind, name, kind == Kind::kAlgorithm ? algorithms_and_variants() : loaded);
}

/// A plan file or a folder of plan files. A communicator reads the files.
Status check_plan_path(std::string_view place, std::string_view key, const std::string& path) {
  std::error_code error;
  const bool is_folder = path.ends_with('/');
  const bool is_there = is_folder ? std::filesystem::is_directory(path, error) : std::filesystem::exists(path, error);
  if (is_there) return {};
  return config::wrong(place, fmt::format("{}: there is no {} '{}'; a path that does not begin with '/' starts at the "
                                          "working directory of the rank",
                                          key, is_folder ? "folder" : "plan file", path));
}

/// "ring", "direct/one-shot" or "plans/mine.yaml".
Status Names::check_algorithm(std::string_view place, std::string_view key, const std::string& text, Use use) const {
  if (config::names_plan_files(text)) return check_plan_path(place, key, text);
  if (names_file(text)) return file_for_name(place, key, Kind::kAlgorithm, text);
  const std::string name = text.substr(0, text.find('/'));
  const Status loaded = check_loaded(place, key, Kind::kAlgorithm, name, use);
  if (!loaded.ok() || name == text) return loaded;
  auto allowed = variants(name);
  if (!allowed.ok()) return config::wrong(place, fmt::format("{}: {}", key, allowed.status().text()));
  if (has(*allowed, text)) return {};
  allowed->insert(allowed->begin(), name);
  return config::wrong(
      place, fmt::format("{}: algorithm '{}' has no variant '{}'{}; allowed: {}", key, name,
                         text.substr(name.size() + 1), config::did_you_mean(text, *allowed), joined(*allowed)));
}

Status Names::check_lists() const {
  for (const Kind kind : kKinds) {
    std::vector<std::string> names;
    for (const std::string& text : config_.list(list_key(kind))) names.push_back(label_of(kind, text));
    for (auto name = names.begin(); name != names.end(); ++name) {
      if (std::find(names.begin(), name, *name) == name) continue;
      const auto index = static_cast<size_t>(name - names.begin());
      return config::wrong(config_.item_place(list_key(kind), index),
                           fmt::format("{} names '{}' twice; name it once", list_key(kind), *name));
    }
  }
  return {};
}

Status Names::check_choices() const {
  const auto given = [&](std::string_view key) { return config_.text(key) != "auto"; };
  if (given("algorithm")) {
    TUTTI_TRY(check_algorithm(config_.place("algorithm"), "algorithm", config_.text("algorithm")));
  }
  if (given("protocol")) {
    TUTTI_TRY(check_loaded(config_.place("protocol"), "protocol", Kind::kProtocol, config_.text("protocol")));
  }
  return check_networks();
}

/// The setting `network`.
Status Names::check_networks() const {
  const std::vector<std::string>& networks = config_.list("network");
  for (size_t i = 0; i < networks.size(); ++i) {
    const std::string& network = networks[i];
    const std::string& place = config_.item_place("network", i);
    if (network == "auto") {
      if (networks.size() == 1) return {};
      return config::wrong(place, "network: 'auto' stands alone; leave it out, or name no network");
    }
    const auto is_it = [&](const std::string& other) {
      return label_of(Kind::kNetwork, other) == label_of(Kind::kNetwork, network);
    };
    const auto before = networks.begin() + static_cast<std::ptrdiff_t>(i);
    if (std::any_of(networks.begin(), before, is_it)) {
      return config::wrong(place, fmt::format("network names '{}' twice; name it once", network));
    }
    if (find(Kind::kNetwork, network, directories_).ok()) continue;
    return unknown(place, "network", Kind::kNetwork, name_of(Kind::kNetwork, network),
                   names_on(directories_, Kind::kNetwork));
  }
  return {};
}

/// A rule may forbid a plugin that is not loaded. A network in a rule may be any that exists: the hosts decide which
/// network a communicator uses.
Status Names::check_rules() const {
  const auto key = [](const config::Rule& rule, Kind kind) {
    return fmt::format("rules.{}.{}", rule.forbids ? "forbid" : "choose", to_string(kind));
  };
  for (const config::Rule& rule : config_.rules()) {
    if (!rule.algorithm.empty()) {
      TUTTI_TRY(check_algorithm(rule.algorithm_place, key(rule, Kind::kAlgorithm), rule.algorithm, use_of(rule)));
    }
    if (!rule.protocol.empty()) {
      TUTTI_TRY(
          check_loaded(rule.protocol_place, key(rule, Kind::kProtocol), Kind::kProtocol, rule.protocol, use_of(rule)));
    }
    if (rule.network.empty()) continue;
    const std::vector<std::string> networks = known(Kind::kNetwork);
    if (!has(networks, name_of(Kind::kNetwork, rule.network))) {
      return unknown(rule.network_place, key(rule, Kind::kNetwork), Kind::kNetwork, rule.network, networks);
    }
  }
  return {};
}

/// The plugin that a setting belongs to, by the beginning of the setting's key or of its variable.
bool is_of(const config::Entry& entry, Kind kind, const std::string& name) {
  const std::string prefix = fmt::format("{}{}.{}.", kSettings, short_name(kind), name);
  return entry.key.starts_with(prefix) || entry.key.starts_with(config::variable_of(prefix));
}

std::string Names::place_of_setting(Kind kind, const std::string& name) const {
  for (const config::Entry& entry : config_.plugin_settings()) {
    if (is_of(entry, kind, name)) return entry.place;
  }
  return {};
}

Status Names::check_owner(const config::Entry& entry) const {
  const bool is_variable = entry.key.starts_with(kSettingsVariable);
  const char separator = is_variable ? '_' : '.';
  const std::string_view rest =
      std::string_view(entry.key).substr(is_variable ? kSettingsVariable.size() : kSettings.size());
  const std::string_view kind_text = rest.substr(0, rest.find(separator));
  std::vector<std::string> kinds;
  for (const Kind kind : kKinds) {
    kinds.push_back(is_variable ? config::variable_of(short_name(kind)).substr(kVariable.size())
                                : std::string(short_name(kind)));
    if (kinds.back() != kind_text) continue;
    const std::vector<std::string> names = known(kind);
    if (std::any_of(names.begin(), names.end(), [&](const auto& name) { return is_of(entry, kind, name); })) return {};
    const std::string_view tail = rest.substr(std::min(rest.size(), kind_text.size() + 1));
    std::string name(tail.substr(0, tail.find(separator)));
    if (is_variable)
      std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
    return unknown(entry.place, entry.key, kind, name, names);
  }
  return config::wrong(entry.place, fmt::format("'{}': '{}' is no kind of plugin{}; there are: {}", entry.key,
                                                kind_text, config::did_you_mean(kind_text, kinds), joined(kinds)));
}

Status Names::check_name(Kind kind, const std::string& name, std::string_view place, std::string_view key,
                         const std::vector<std::string>& further) const {
  std::vector<std::string> allowed = known(kind);
  for (const std::string& each : further) {
    if (!has(allowed, each)) allowed.push_back(each);
  }
  return has(allowed, name) ? Status() : unknown(place, key, kind, name, std::move(allowed));
}

Status Names::check_settings() const {
  for (const config::Entry& entry : config_.plugin_settings()) TUTTI_TRY(check_owner(entry));
  return {};
}

}  // namespace

Status check_names(const config::Config& config) {
  const Names names(config);
  TUTTI_TRY(names.check_lists());
  TUTTI_TRY(names.check_settings());
  TUTTI_TRY(names.check_choices());
  return names.check_rules();
}

Status check_name(const config::Config& config, Kind kind, const std::string& name, std::string_view place,
                  std::string_view key, const std::vector<std::string>& further) {
  return Names(config).check_name(kind, name, place, key, further);
}

std::vector<Undeclared> declare_settings(config::Config& config) {
  const Names names(config);
  const bool may_miss = config.text("plugins.on_missing") == "next";
  std::vector<Undeclared> out;
  for (const Kind kind : kKinds) {
    for (const Names::Named& named : names.all(kind)) {
      const std::string name = name_of(kind, named.text);
      auto image = load_image(kind, named.text, names.directories(), config.text("plugins.trust"));
      if (!image.ok()) {
        const bool is_named = !named.place.empty();
        out.push_back({kind, name, is_named ? named.place : names.place_of_setting(kind, name), is_named && may_miss,
                       image.status()});
        continue;
      }
      const Status added = config.add(short_name(kind), name, (*image)->settings());
      if (!added.ok()) out.push_back({kind, name, "", false, added});
    }
  }
  return out;
}

Status check_plugins(const config::Config& config) {
  config::Config scratch = config;
  for (const Undeclared& plugin : declare_settings(scratch)) {
    if (!plugin.place.empty() && !plugin.tolerated) return config::wrong(plugin.place, plugin.why.text());
    if (plugin.why.code() == Code::kConfig) return plugin.why;
  }
  return check_names(config);
}

}  // namespace tutti::plugin
