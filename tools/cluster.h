// SPDX-License-Identifier: Apache-2.0
// Options that every command shares which makes a dry run: the machines, and the settings.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "communicator/dry.h"

namespace CLI {
class App;
}

namespace tutti::tools {

struct Cluster {
  std::string topology;
  uint32_t nodes = 1;
  uint32_t ranks_here = 0;  ///< per machine; 0: one per GPU
  std::vector<std::string> gpus;
  std::optional<double> mbps;
  std::optional<int> sm;
  std::string config_file;
  std::vector<std::string> settings;

  /// Declares --topology, --nodes, --ranks, the options for files of places, --config and --set.
  void add_options(CLI::App& command);
  /// A file of places is completed as if devices had been found there, with a line on stderr.
  Result<std::unique_ptr<communicator::DryCommunicator>> create() const;
};

}  // namespace tutti::tools
