// SPDX-License-Identifier: Apache-2.0
// Plans of the algorithm plugins, for programs that nvcc compiles.
#pragma once

#include <string>
#include <vector>

#include "plan/plan.h"

namespace tutti::bench {

/// All ranks' plans of an all-reduce over `ranks` GPUs of one machine, channel 0: "ring", "direct/one-shot", ...
Result<std::vector<plan::Plan>> all_reduce_plans(const std::string& algorithm, uint32_t ranks);

}  // namespace tutti::bench
