// SPDX-License-Identifier: Apache-2.0
// `tutti plugin new`: writes the project of a plugin.
#pragma once

namespace CLI {
class App;
}

namespace tutti::tools {

/// Declares the verb below the command `plugin`.
void add_plugin_new(CLI::App& command, int& exit_code);

}  // namespace tutti::tools
