// SPDX-License-Identifier: Apache-2.0
// Options that every command shares which makes communicators: how many ranks, on which hosts, with which settings.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "config/config.h"
#include "launcher/rank_assignment.h"
#include "tutti/communicator.h"

namespace CLI {
class App;
}

namespace tutti::tools {

/// "key=value" of the command line, split at the first '='.
std::vector<std::pair<std::string, std::string>> split_settings(const std::vector<std::string>& settings);

/// Declares --config FILE and --set key=value.
void add_settings(CLI::App& command, std::string& config_file, std::vector<std::string>& settings);

/// The configuration of a command: all layers, with `settings` of the command line as the last layer.
Result<config::Config> load_config(const std::string& file,
                                   const std::vector<std::pair<std::string, std::string>>& settings);

struct Session {
  int rank_count = 2;
  bool has_rank_count = false;                         ///< the command line or TUTTI_RANKS gave it
  std::optional<launcher::RankAssignment> assignment;  ///< of this process, if a launcher started several
  std::vector<std::string> hosts;  ///< pretended hosts; ranks are dealt to them in blocks. Empty: the real one
  std::string config_file;
  std::vector<std::string> settings;

  /// Declares --ranks, --hosts, --config and --set.
  void add_options(CLI::App& command);
  /// Sets assignment and rank_count if a launcher started this process among several. kInvalidArgument: the variables
  /// of the launcher contradict each other, or the given number of ranks.
  Status ask_launcher();
  /// Checks the configuration and its names once, before ranks are started that would each fail.
  Status check() const;
  /// Makes the id of the ranks on an interface of bootstrap.interface. Ranks report an error in the configuration.
  Result<UniqueId> make_id() const;
  /// The options of a rank's communicator.
  Options options(int rank) const;
  /// The options of a communicator on the host through which ranks exchange facts. They lack the settings that are
  /// meant for the measured communicator.
  Options control_options(int rank) const;
  /// Whether --device, or without it the setting `device`, asks for GPUs. `option`: the text of --device, may be empty.
  bool wants_cuda(std::string_view option) const;
  /// kUnsupported: GPUs are wanted, and this build has no CUDA.
  static Status check_cuda(bool wanted);
  /// The host that a rank claims to be on; empty: the real host.
  std::string host(int rank) const;
};

}  // namespace tutti::tools
