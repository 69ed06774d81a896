// SPDX-License-Identifier: Apache-2.0
// Runs the rules of algorithms, protocols and tuners, each in a process of its own, and watches them.
#pragma once

#include <vector>

#include "tools/plugin_test/runner.h"

namespace tutti::tools::plugin_test {

/// Runs all rules of a kind that `request` selects. kSystem: a process cannot be started.
Result<std::vector<RuleResult>> run_trials(const Request& request, plugin::Kind kind, const Progress& progress);

}  // namespace tutti::tools::plugin_test
