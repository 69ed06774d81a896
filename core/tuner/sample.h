// SPDX-License-Identifier: Apache-2.0
// The decisions of the selector for a sample of calls, for a comparison between ranks: if ranks decide differently,
// calls hang.
#pragma once

#include <string>
#include <vector>

#include "tuner/selector.h"

namespace tutti::tuner {

/// "all_reduce of blocks of 2048 bytes=direct/two-shot × ll ×4": every collective in float32, sums, over some sizes up
/// to a GiB.
std::vector<std::string> sample_decisions(const Selector& selector);

}  // namespace tutti::tuner
