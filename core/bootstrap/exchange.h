// SPDX-License-Identifier: Apache-2.0
// Values that every rank gives to all ranks.
#pragma once

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <vector>

#include "bootstrap/bootstrap.h"

namespace tutti::bootstrap {

/// The values of all ranks, by rank. Collective, as Bootstrap::all_gather().
template <class T>
Result<std::vector<T>> exchange(Bootstrap& bootstrap, const T& own, base::Time deadline) {
  static_assert(std::is_trivially_copyable_v<T>);
  TUTTI_ASSIGN(const auto all, bootstrap.all_gather(std::as_bytes(std::span(&own, 1)), deadline));
  std::vector<T> values(all.size());
  for (size_t i = 0; i < all.size(); ++i) {
    std::memcpy(&values[i], all[i].data(), std::min(all[i].size(), sizeof(T)));
  }
  return values;
}

}  // namespace tutti::bootstrap
