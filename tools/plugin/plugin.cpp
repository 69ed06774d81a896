// SPDX-License-Identifier: Apache-2.0
// `tutti plugin`: the plugins that can be loaded here.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "plugin/list.h"
#include "plugin/search.h"
#include "tools/commands.h"
#include "tools/plugin/new.h"
#include "tools/plugin_test/command.h"
#include "tools/session.h"

namespace tutti::tools {
namespace {

using plugin::Listed;

constexpr const char* kFooter = R"(
Plugins are looked for in plugins.path, TUTTI_PLUGIN_PATH, beside the library and where Tutti was installed, in this
order; the first of a name counts. Without --check nothing of a plugin runs: what is printed stands in its ELF note.)";

struct Work {
  std::string config_file;
  std::vector<std::string> settings;
  bool json = false;
  bool check = false;
};

void print_json(const std::vector<Listed>& plugins) {
  auto document = nlohmann::ordered_json{{"plugins", nlohmann::ordered_json::array()}};
  for (const Listed& listed : plugins) {
    nlohmann::ordered_json entry = {{"file", listed.file.string()}};
    if (listed.note) {
      const plugin::Note& note = *listed.note;
      entry["kind"] = short_name(note.kind);
      entry["name"] = note.name;
      entry["version"] = note.version;
      entry["abi"] = fmt::format("{}.{}", note.abi.major, note.abi.minor);
      entry["cuda"] = note.cuda_major;
      entry["architectures"] = note.architectures;
    }
    if (!listed.description.empty()) entry["description"] = listed.description;
    if (!listed.refused.empty()) entry[listed.absent ? "absent" : "refused"] = listed.refused;
    entry["settings"] = nlohmann::ordered_json::array();
    for (const config::Key& key : listed.settings) {
      entry["settings"].push_back({{"key", key.name}, {"default", key.default_text}, {"help", key.help}});
    }
    document["plugins"].push_back(std::move(entry));
  }
  fmt::print("{}\n", document.dump(2));
}

void print_table(const std::vector<Listed>& plugins) {
  size_t name_width = 0;
  for (const Listed& listed : plugins) name_width = std::max(name_width, listed.note ? listed.note->name.size() : 0);
  for (const Listed& listed : plugins) {
    if (listed.note) {
      const plugin::Note& note = *listed.note;
      fmt::print("{:9}  {:{}}  {}  ABI {}.{}  {}\n", to_string(note.kind), note.name, name_width, note.version,
                 note.abi.major, note.abi.minor, listed.file.string());
    } else {
      fmt::print("{:9}  {:{}}  {}\n", "?", "?", name_width, listed.file.string());
    }
    if (!listed.description.empty()) fmt::print("           {}\n", listed.description);
    for (const config::Key& key : listed.settings) {
      fmt::print("           {} = {}: {}\n", key.name, key.default_text, key.help);
    }
    if (!listed.refused.empty()) {
      fmt::print("           {}: {}\n", listed.absent ? "not usable here" : "refused", listed.refused);
    }
  }
}

Result<int> list(const Work& work) {
  TUTTI_ASSIGN(const config::Config config, load_config(work.config_file, split_settings(work.settings)));
  for (const std::string& folder : config.list("plugins.path")) {
    if (std::filesystem::is_directory(folder)) continue;
    fmt::print(stderr, "tutti: plugins.path ({}) names {}, which is no folder\n", config.origin("plugins.path"),
               folder);
  }
  const std::vector<Listed> plugins = plugin::list(config, work.check);
  if (work.json) {
    print_json(plugins);
  } else {
    print_table(plugins);
    if (plugins.empty()) {
      fmt::print("No plugins in\n");
      for (const auto& directory : plugin::search_path(config.list("plugins.path"))) {
        fmt::print("  {}\n", directory.string());
      }
    }
  }
  const auto refused = [](const Listed& listed) { return !listed.refused.empty() && !listed.absent; };
  return work.check && std::any_of(plugins.begin(), plugins.end(), refused) ? kFailure : kSuccess;
}

}  // namespace

void add_plugin(CLI::App& tutti, int& exit_code) {
  CLI::App* command = tutti.add_subcommand("plugin", "List, check, test and begin plugins");
  command->require_subcommand(1);
  const auto work = std::make_shared<Work>();
  CLI::App* verb = command->add_subcommand("list", "Print the plugins that are found");
  add_settings(*verb, work->config_file, work->settings);
  verb->add_flag("--json", work->json, "Print JSON");
  verb->add_flag("--check", work->check,
                 "Also load and open each; fails if one is refused, but not if this machine lacks its device");
  verb->footer(kFooter);
  verb->callback([work, &exit_code] {
    const auto code = list(*work);
    exit_code = code.ok() ? *code : fail(code.status());
  });
  plugin_test::add_verb(*command, exit_code);
  add_plugin_new(*command, exit_code);
}

}  // namespace tutti::tools
