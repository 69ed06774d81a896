// SPDX-License-Identifier: Apache-2.0
// Scenarios beside the matrix of single calls: irregular exchanges, groups, several communicators.
#pragma once

#include <vector>

#include "integration/matrix/runner.h"

namespace tutti::matrix {

struct Scenario {
  const char* name;
  /// One rank's part; `communicator` has the setting under test. A failure gives the reason.
  Status (*part)(Communicator& communicator, uint64_t seed);
  /// Further settings of the communicator: key, value.
  std::vector<std::pair<std::string, std::string>> settings = {};
};

const std::vector<Scenario>& scenarios();

/// Runs a scenario, with a communicator of its own.
Status run_scenario(const Scenario& scenario, const Setting& setting, int rank_count, uint64_t seed);

}  // namespace tutti::matrix
