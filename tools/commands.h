// SPDX-License-Identifier: Apache-2.0
// The commands of `tutti`. Each function declares one command. If the user asked for the command, it runs and sets the
// exit code.
#pragma once

#include "tutti/status.h"

namespace CLI {
class App;
}

namespace tutti::tools {

/// The exit codes.
inline constexpr int kSuccess = 0;
/// A line on stderr gave the problem and the reason, or a table counts wrong results.
inline constexpr int kFailure = 1;
inline constexpr int kUsage = 2;  ///< the command line asked for something that does not exist

void add_bench(CLI::App& tutti, int& exit_code);
void add_explain(CLI::App& tutti, int& exit_code);
void add_plan(CLI::App& tutti, int& exit_code);
void add_search(CLI::App& tutti, int& exit_code);
void add_simulate(CLI::App& tutti, int& exit_code);
void add_config(CLI::App& tutti, int& exit_code);
void add_plugin(CLI::App& tutti, int& exit_code);
void add_topo(CLI::App& tutti, int& exit_code);
void add_tune(CLI::App& tutti, int& exit_code);
void add_id(CLI::App& tutti, int& exit_code);

/// Prints "tutti: <text>" on stderr, in one line, behind all that was printed on stdout. Returns kFailure.
int fail(const Status& status);

/// Whether all that was printed has reached standard output; if not, says why on stderr.
bool output_is_out();

}  // namespace tutti::tools
