// SPDX-License-Identifier: Apache-2.0
// The command line of `tutti plugin test`.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "config/config.h"
#include "plugin/loader.h"
#include "tutti/status.h"

namespace tutti::tools::plugin_test {

struct Rule;

struct Request {
  std::string file;  ///< the plugin's file, or the name of a plugin on the search path
  std::string config_file;
  std::vector<std::string> settings;
  std::string json, junit;
  std::vector<std::string> rules;  ///< names or numbers; empty: all
  std::vector<std::string> where;  ///< process, processes, namespaces; empty: all that work here
  uint64_t seed = 0;               ///< 0: a new seed
  uint32_t device = 0;
  bool lists = false;
  bool is_long = false;
  bool is_verbose = false;

  // Options of a process that the kit starts for a rule.
  std::string side;  ///< "0", "1", "both", kTrialSide or kOpeningSide; empty: this is the kit's own process
  uint32_t side_where = 0;

  /// Whether `rules` names the rule.
  bool wants(const Rule& rule) const;
};

/// Descriptors of a process that runs a side.
inline constexpr int kLineFd = 40;
inline constexpr int kResultsFd = 41;
inline constexpr int kSharedStateFd = 42;

/// The side of a process that runs a rule without sides.
inline constexpr std::string_view kTrialSide = "trial";

/// The side of a process that opens the plugin before any rule runs.
inline constexpr std::string_view kOpeningSide = "opening";

/// The configuration of the plugin and its rules.
Result<config::Config> configuration(const Request& request);
/// The options of a process that is to have the same configuration.
void append_configuration(const Request& request, std::vector<std::string>& words);

/// The file that the command line names, with its note.
struct PluginFile {
  std::filesystem::path path;
  plugin::Note note;
};
Result<PluginFile> find_plugin(const Request& request, const config::Config& config);

/// Gets the name of each step that runs code of the plugin, before the step.
using BeforeStep = std::function<void(std::string_view step)>;

/// Loads and opens the plugin.
Result<std::shared_ptr<plugin::Plugin>> open_plugin(const Request& request);
/// The two steps of open_plugin().
Result<std::shared_ptr<plugin::Image>> load_image(const PluginFile& file, const config::Config& config,
                                                  const BeforeStep& before = {});
Result<std::shared_ptr<plugin::Plugin>> open_image(const Request& request, std::shared_ptr<plugin::Image> image,
                                                   config::Config& config, const BeforeStep& before = {});

/// Runs one rule in this process, as the kit's child. Returns the exit code.
Result<int> run_side(const Request& request);

}  // namespace tutti::tools::plugin_test
