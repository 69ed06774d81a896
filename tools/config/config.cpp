// SPDX-License-Identifier: Apache-2.0
// `tutti config`: which settings hold, and why.
#include "config/config.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "communicator/setup/network.h"
#include "communicator/setup/settings.h"
#include "plugin/names.h"
#include "tools/commands.h"
#include "tools/session.h"

namespace tutti::tools {
namespace {

constexpr const char* kFooter = R"(
Where a value comes from, the last one wins:
  built-in < site file (/etc/tutti/tutti.yaml, or TUTTI_SITE_CONFIG) < job file (--config, or TUTTI_CONFIG)
  < environment (TUTTI_SHM_SLOTS for shm.slots; TUTTI_SET="key=value;key=value")
  < command line (--set)

A line "overrides" below a setting has the value of an earlier layer. Settings of plugins
(settings.<kind>.<plugin>.<name>) are shown for the plugins that the configuration names or that are on the search
path.)";

constexpr const char* kCheckFooter = R"(
The file is checked alone, over the built-in values and TUTTI_PLUGINS_TRUST: keys, values, rules, and the names of
plugins, their variants and their settings, settings that no job can follow together, networks that rules choose and
`network` does not name, and the files of topology.file and hardware.file. The command loads the plugins that it checks
and does not open them. It looks for plugins in plugins.path of the file, TUTTI_PLUGIN_PATH, beside the library and
where Tutti was installed.)";

struct Work {
  std::string file;
  std::vector<std::string> settings;
  bool json = false;
  bool help = false;
};

void print_json(const config::Config& config) {
  auto document =
      nlohmann::ordered_json{{"settings", nlohmann::ordered_json::array()}, {"rules", nlohmann::ordered_json::array()}};
  for (const auto& item : config.items()) {
    auto overrides = nlohmann::ordered_json::array();
    for (const auto& earlier : item.overrides) {
      overrides.push_back({{"value", earlier.value}, {"origin", earlier.origin}});
    }
    document["settings"].push_back({{"key", item.key},
                                    {"value", item.value},
                                    {"origin", item.origin},
                                    {"overrides", std::move(overrides)},
                                    {"help", item.help}});
  }
  for (const config::Rule& rule : config.rules()) {
    document["rules"].push_back({{"rule", config::to_string(rule)}, {"origin", rule.place}});
  }
  fmt::print("{}\n", document.dump(2));
}

/// An empty text would be invisible.
std::string_view shown(std::string_view value) {
  return value.empty() ? "\"\"" : value;
}

void print_table(const config::Config& config, bool help) {
  const auto items = config.items();
  size_t key_width = 0;
  size_t value_width = 0;
  for (const auto& item : items) {
    key_width = std::max(key_width, item.key.size());
    value_width = std::max(value_width, item.value.size());
  }
  for (const auto& item : items) {
    if (help) fmt::print("# {}\n", item.help);
    fmt::print("{:{}}  {:{}}  {}\n", item.key, key_width, item.value, value_width, item.origin);
    for (const auto& earlier : item.overrides)
      fmt::print("  overrides {} ({})\n", shown(earlier.value), earlier.origin);
  }
  for (const config::Rule& rule : config.rules()) {
    fmt::print("{:{}}  {:{}}  {}\n", "rules", key_width, config::to_string(rule), value_width, rule.place);
  }
}

/// Says which plugins the command could not look into.
void warn(const std::vector<plugin::Undeclared>& undeclared, std::string_view consequence) {
  std::fflush(stdout);  // main() reports a failure of this
  for (const plugin::Undeclared& each : undeclared) {
    fmt::print(stderr, "tutti: warning: {}{}; {}\n", each.place.empty() ? "" : each.place + ": ", each.why.text(),
               consequence);
  }
}

Status show(const Work& work) {
  TUTTI_ASSIGN(const config::Config config, load_config(work.file, split_settings(work.settings)));
  config::Config with_plugins = config;
  const auto undeclared = plugin::declare_settings(with_plugins);
  if (work.json) {
    print_json(with_plugins);
  } else {
    print_table(with_plugins, work.help);
  }
  TUTTI_TRY(plugin::check_plugins(config));
  TUTTI_TRY(communicator::check_settings(config));
  warn(undeclared, "its settings are not shown");
  return {};
}

/// Reads this file, and no other layer. Plugins are the plugins on the search path. TUTTI_PLUGINS_TRUST decides whether
/// the file may be read, since a file cannot vouch for itself.
Status check(const Work& work) {
  config::LoadOptions options;
  options.site_file.clear();
  options.job_file = work.file;
  options.environment = config::process_environment();
  std::erase_if(options.environment, [](const auto& variable) { return variable.first != "TUTTI_PLUGINS_TRUST"; });
  TUTTI_ASSIGN(config::Config config, config::Config::load(options));
  TUTTI_TRY(plugin::check_plugins(config));
  auto undeclared = plugin::declare_settings(config);
  std::erase_if(undeclared, [](const plugin::Undeclared& each) { return !each.tolerated; });
  TUTTI_TRY(communicator::check_settings(config));
  TUTTI_TRY(communicator::check_named_networks(config));
  TUTTI_TRY(config::check_hidden_rules(config.rules()));
  warn(undeclared, "ranks go on without it, since plugins.on_missing is next");
  fmt::print("{}: right\n", work.file);
  return {};
}

}  // namespace

void add_config(CLI::App& tutti, int& exit_code) {
  CLI::App* command = tutti.add_subcommand("config", "Show and check settings");
  command->require_subcommand(1);
  command->footer(kFooter);
  const auto work = std::make_shared<Work>();
  const auto run = [work, &exit_code](Status (*action)(const Work&)) {
    return [work, action, &exit_code] {
      const Status status = action(*work);
      exit_code = status.ok() ? kSuccess : fail(status);
    };
  };
  CLI::App* shown = command->add_subcommand("show", "Print every setting, its value and where that comes from");
  add_settings(*shown, work->file, work->settings);
  shown->add_flag("--json", work->json, "Print JSON");
  shown->add_flag("--explain", work->help, "Also print what each setting means");
  shown->footer(kFooter);
  shown->callback(run(show));

  CLI::App* checked = command->add_subcommand("check", "Check a configuration file");
  checked->add_option("file", work->file, "The file")->required()->option_text("FILE");
  checked->footer(kCheckFooter);
  checked->callback(run(check));
}

}  // namespace tutti::tools
