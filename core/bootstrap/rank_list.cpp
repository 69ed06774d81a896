// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/rank_list.h"

#include <fmt/format.h>

namespace tutti::bootstrap {

std::string rank_list(std::span<const int> ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t first = 0; first < ranks.size();) {
    size_t last = first;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    if (first > 0) text += ',';
    text += fmt::to_string(ranks[first]);
    if (last > first) text += fmt::format("{}{}", last == first + 1 ? ',' : '-', ranks[last]);
    first = last + 1;
  }
  return text;
}

}  // namespace tutti::bootstrap
