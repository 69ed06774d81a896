// SPDX-License-Identifier: Apache-2.0
// Checks the names in a configuration against the plugins on the search path, and declares the settings of plugins
// that are not opened. Every failure is kConfig and begins with the place of the name.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "config/config.h"
#include "plugin/kind.h"
#include "tutti/status.h"

namespace tutti::plugin {

/// Checks `algorithm`, `protocol`, `network`, the rules, and the plugins under `settings`. A name in plugins.* is
/// checked only for being there twice: Registry::load reports a plugin that is missing. The check reads file names. It
/// opens an algorithm only where a variant is named.
Status check_names(const config::Config& config);

/// Checks the name of a plugin that a file other than the configuration has at `place`. The configuration may name the
/// plugin, or the search path or `further` may have it. `key`: the name of the section, for the text.
Status check_name(const config::Config& config, Kind kind, const std::string& name, std::string_view place,
                  std::string_view key, const std::vector<std::string>& further);

/// A plugin whose settings are unknown, because its file is missing or cannot be loaded, or whose settings are wrong.
struct Undeclared {
  Kind kind = Kind::kAlgorithm;
  std::string name;
  /// Position of the plugin's name, or of a setting of the plugin, in the configuration; empty: none.
  std::string place;
  bool tolerated = false;  ///< plugins.on_missing lets a communicator go on without it
  Status why;
};

/// Declares in `config` the settings of all plugins that it names or that are on the search path. Opens none.
std::vector<Undeclared> declare_settings(config::Config& config);

/// Checks all names and all settings of plugins, for `tutti config check`.
Status check_plugins(const config::Config& config);

}  // namespace tutti::plugin
