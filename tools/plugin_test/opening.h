// SPDX-License-Identifier: Apache-2.0
// Loads and opens the plugin in a process of its own before any rule runs: the plugin may hang or crash.
#pragma once

#include <optional>

#include "tools/plugin_test/request.h"
#include "tutti/status.h"

namespace tutti::tools::plugin_test {

/// The outcome of the process that opened the plugin.
struct Opening {
  std::optional<PluginFile> file;  ///< empty: `loaded` is a failure
  Status loaded;                   ///< why the file is no plugin that this Tutti can load
  /// Why `open` fails, or the step in which the plugin hung or ended the process, with a remedy.
  Status opened;
};

/// Starts the process and waits for its end. Each step of the plugin has 10 s. Fails if the process cannot be started.
Result<Opening> try_opening(const Request& request);

/// The work of this process. Returns the exit code.
Result<int> run_opening(const Request& request);

}  // namespace tutti::tools::plugin_test
