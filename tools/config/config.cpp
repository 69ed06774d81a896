// SPDX-License-Identifier: Apache-2.0
// `tutti config`: which settings hold, and why.
#include "config/config.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "tools/commands.h"
#include "tools/session.h"

namespace tutti::tools {
namespace {

constexpr const char* kFooter = R"(
Where a value comes from, the last one wins:
  built-in < site file (/etc/tutti/tutti.yaml, or TUTTI_SITE_CONFIG) < job file (--config, or TUTTI_CONFIG)
  < environment (TUTTI_SHM_SLOTS for shm.slots; TUTTI_SET="key=value;key=value") < --set

Settings of plugins (settings.<kind>.<plugin>.<name>) are read when the plugin is loaded; `tutti plugin list` shows
which there are.)";

struct Work {
  std::string file;
  std::vector<std::string> settings;
  bool json = false;
  bool help = false;
};

Result<config::Config> load(const Work& work) {
  config::LoadOptions options;
  options.job_file = work.file;
  options.environment = config::process_environment();
  options.settings = split_settings(work.settings);
  return config::Config::load(options);
}

/// The application of the core's layers is, here, this command line.
std::string origin_of(const config::Config::Item& item) {
  return item.origin == "application" ? "--set" : item.origin;
}

void print_json(const config::Config& config) {
  auto document =
      nlohmann::ordered_json{{"settings", nlohmann::ordered_json::array()}, {"rules", nlohmann::ordered_json::array()}};
  for (const auto& item : config.items()) {
    document["settings"].push_back(
        {{"key", item.key}, {"value", item.value}, {"origin", origin_of(item)}, {"help", item.help}});
  }
  for (const config::Rule& rule : config.rules()) document["rules"].push_back({{"origin", rule.place}});
  fmt::print("{}\n", document.dump(2));
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
    fmt::print("{:{}}  {:{}}  {}\n", item.key, key_width, item.value, value_width, origin_of(item));
  }
  for (const config::Rule& rule : config.rules()) {
    fmt::print("{:{}}  {:{}}  {}\n", "rules", key_width, rule.forbids ? "forbid" : "choose", value_width, rule.place);
  }
}

Status show(const Work& work) {
  TUTTI_ASSIGN(const config::Config config, load(work));
  if (work.json) {
    print_json(config);
  } else {
    print_table(config, work.help);
  }
  return {};
}

/// Reads this file and nothing else, so that the answer does not depend on where it is asked.
Status check(const Work& work) {
  config::LoadOptions options;
  options.site_file.clear();
  options.job_file = work.file;
  TUTTI_TRY(config::Config::load(options).status());
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
  checked->callback(run(check));
}

}  // namespace tutti::tools
