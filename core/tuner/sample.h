// SPDX-License-Identifier: Apache-2.0
// What the selector decides on a sample of calls, for ranks to compare: where they decide differently, calls stand
// still.
#pragma once

#include <string>
#include <vector>

#include "tuner/selector.h"

namespace tutti::tuner {

/// "all_reduce of blocks of 2048 bytes=direct/two-shot × ll ×4": every collective in float32, sums, over some sizes up
/// to a GiB.
std::vector<std::string> sample_decisions(const Selector& selector);

}  // namespace tutti::tuner
