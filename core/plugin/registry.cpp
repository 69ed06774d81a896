// SPDX-License-Identifier: Apache-2.0
#include "plugin/registry.h"

#include <fmt/format.h>

#include <algorithm>
#include <ranges>

#include "log/log.h"
#include "plugin/names.h"
#include "plugin/network_names.h"
#include "plugin/search.h"

namespace tutti::plugin {
namespace {

/// "net.socket 0.1.0, ABI 0.1".
std::string identity_of(const Note& note) {
  return fmt::format("{}.{} {}, ABI {}.{}", short_name(note.kind), note.name, note.version, note.abi.major,
                     note.abi.minor);
}

/// All plugins of the kind that will be are loaded.
void warn_of_unused(Kind kind, const config::Config& config) {
  for (const std::string& setting : config.unused(short_name(kind))) {
    log::warn("{} has no effect: that plugin is not loaded", setting);
  }
}

}  // namespace

Result<std::shared_ptr<Registry>> Registry::load(config::Config& config, bool with_network) {
  TUTTI_TRY(check_names(config));
  auto registry = std::make_shared<Registry>();
  for (const Kind kind : kKinds) {
    if (kind == Kind::kNetwork && !with_network) continue;
    const std::vector<std::string> names =
        kind == Kind::kNetwork ? possible_networks(config) : config.list(fmt::format("plugins.{}", to_string(kind)));
    TUTTI_TRY(registry->load_kind(kind, config, names));
    warn_of_unused(kind, config);
  }
  return registry;
}

Status Registry::load_kind(Kind kind, config::Config& config, const std::vector<std::string>& names) {
  const bool next = config.text("plugins.on_missing") == "next";
  auto& plugins = plugins_[static_cast<uint32_t>(kind)];
  Status first_failure;
  for (const std::string& name : names) {
    auto plugin = load_one(kind, name, config);
    if (plugin.ok() && *plugin == nullptr) {
      if (first_failure.ok()) first_failure = networks_.back().why;
      continue;
    }
    if (plugin.ok()) {
      plugins.push_back(*std::move(plugin));
      log::info("plugin {}.{} {} from {}", short_name(kind), plugins.back()->name(), plugins.back()->version(),
                plugins.back()->image().file().string());
      continue;
    }
    if (!next) return plugin.status();
    log::warn("{}; going on without it (plugins.on_missing is next)", plugin.status().text());
    if (first_failure.ok()) first_failure = plugin.status();
  }
  if (!plugins.empty()) return {};
  if (!first_failure.ok()) return first_failure;
  return {Code::kConfig, fmt::format("plugins.{} is empty; name at least one plugin", to_string(kind))};
}

/// Null: a network that the configuration does not ask for by name, and that does not work on this machine.
Result<std::shared_ptr<Plugin>> Registry::load_one(Kind kind, const std::string& name, config::Config& config) {
  const Reference named = reference_of(kind, name);
  TUTTI_ASSIGN(const std::filesystem::path file, find(kind, name, search_path(config.list("plugins.path"))));
  TUTTI_ASSIGN(std::shared_ptr<Image> image, Image::load(kind, named.plugin, file, config.text("plugins.trust")));
  TUTTI_TRY(Plugin::declare(*image, config));
  auto plugin = Plugin::open(image, config, named.file);
  if (kind != Kind::kNetwork) return plugin;
  if (!plugin.ok() && !fixed_networks(config).empty()) return plugin;
  std::string identity = identity_of(image->note());
  if (!named.file.empty()) identity += ", " + std::filesystem::path(named.file).filename().string();
  networks_.push_back({label_of(kind, name), plugin.ok() ? *plugin : nullptr, plugin.status(), std::move(identity)});
  return networks_.back().plugin;
}

Registry::~Registry() {
  networks_.clear();

  for (const Kind kind : std::views::reverse(kKinds)) {
    auto& plugins = plugins_[static_cast<uint32_t>(kind)];
    while (!plugins.empty()) plugins.pop_back();
  }
}

std::vector<std::string> Registry::identity() const {
  std::vector<std::string> lines;
  for (const Kind kind : kKinds) {
    if (kind == Kind::kNetwork) continue;
    for (const auto& plugin : of(kind)) lines.push_back(identity_of(plugin->image().note()));
  }
  for (const Network& network : networks_) lines.push_back(network.identity);
  return lines;
}

}  // namespace tutti::plugin
