// SPDX-License-Identifier: Apache-2.0
#include "plugin/registry.h"

#include <fmt/format.h>

#include <algorithm>
#include <ranges>

#include "log/log.h"
#include "plugin/search.h"

namespace tutti::plugin {
namespace {

Result<std::shared_ptr<Plugin>> load_one(Kind kind, const std::string& name,
                                         const std::vector<std::filesystem::path>& directories,
                                         config::Config& config) {
  TUTTI_ASSIGN(const std::filesystem::path file, find(kind, name, directories));
  TUTTI_ASSIGN(std::shared_ptr<Image> image, Image::load(kind, name, file));
  return Plugin::open(std::move(image), config);
}

/// All plugins of the kind that will be are loaded.
void warn_of_unused(Kind kind, const config::Config& config) {
  for (const std::string& setting : config.unused(short_name(kind))) {
    log::warn("{} has no effect: that plugin is not loaded", setting);
  }
}

}  // namespace

Result<std::shared_ptr<Registry>> Registry::load(config::Config& config, bool with_network) {
  auto registry = std::make_shared<Registry>();
  for (const Kind kind : kKinds) {
    if (kind == Kind::kNetwork && !with_network) continue;
    std::vector<std::string> names = config.list(fmt::format("plugins.{}", to_string(kind)));
    // A network named for the job is loaded even if the list of candidates does not have it.
    if (kind == Kind::kNetwork && config.text("network") != "auto") names = {config.text("network")};
    TUTTI_TRY(registry->load_kind(kind, config, names));
    warn_of_unused(kind, config);
  }
  return registry;
}

Status Registry::load_kind(Kind kind, config::Config& config, const std::vector<std::string>& names) {
  const auto directories = search_path(config.list("plugins.path"));
  const bool next = config.text("plugins.on_missing") == "next";
  auto& plugins = plugins_[static_cast<uint32_t>(kind)];
  Status first_failure;
  for (auto name = names.begin(); name != names.end(); ++name) {
    if (std::find(names.begin(), name, *name) == name) continue;
    return {Code::kConfig, fmt::format("plugins.{} names '{}' twice; name it once", to_string(kind), *name)};
  }
  for (const std::string& name : names) {
    auto plugin = load_one(kind, name, directories, config);
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

Registry::~Registry() {
  for (const Kind kind : std::views::reverse(kKinds)) {
    auto& plugins = plugins_[static_cast<uint32_t>(kind)];
    while (!plugins.empty()) plugins.pop_back();
  }
}

std::vector<std::string> Registry::identity() const {
  std::vector<std::string> lines;
  for (const Kind kind : kKinds) {
    for (const auto& plugin : of(kind)) {
      lines.push_back(fmt::format("{}.{} {}, ABI {}.{}", short_name(kind), plugin->name(), plugin->version(),
                                  plugin->image().note().abi_major, plugin->image().note().abi_minor));
    }
  }
  return lines;
}

}  // namespace tutti::plugin
