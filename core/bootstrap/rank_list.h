// SPDX-License-Identifier: Apache-2.0
// Ranks in messages.
#pragma once

#include <span>
#include <string>

namespace tutti::bootstrap {

/// "rank 3" or "ranks 0-2,5,7-9". The ranks come in increasing order.
std::string rank_list(std::span<const int> ranks);

}  // namespace tutti::bootstrap
