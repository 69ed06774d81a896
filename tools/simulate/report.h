// SPDX-License-Identifier: Apache-2.0
// The output of `tutti simulate`.
#pragma once

#include <string>
#include <vector>

#include "communicator/dry.h"
#include "tools/check/problem.h"

namespace tutti::tools {

/// A call, and the verdicts on its candidates, the chosen one first.
struct Prediction {
  check::Problem problem;
  std::vector<tuner::Verdict> verdicts;
};

/// A line for each call. `all`: and a line for each candidate.
void print_predictions(const communicator::DryCommunicator& cluster, const std::vector<Prediction>& predictions,
                       bool all);
/// kSystem: the file cannot be written.
Status write_predictions(const communicator::DryCommunicator& cluster, const std::vector<Prediction>& predictions,
                         const std::string& file);

}  // namespace tutti::tools
