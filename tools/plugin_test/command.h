// SPDX-License-Identifier: Apache-2.0
// `tutti plugin test`: the conformance kit for plugins.
#pragma once

namespace CLI {
class App;
}

namespace tutti::tools::plugin_test {

/// Declares the verb below the command `plugin`.
void add_verb(CLI::App& command, int& exit_code);

}  // namespace tutti::tools::plugin_test
