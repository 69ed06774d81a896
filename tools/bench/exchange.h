// SPDX-License-Identifier: Apache-2.0
// Small facts that ranks tell each other, through the communicator itself.
#pragma once

#include <type_traits>
#include <vector>

#include "tutti/communicator.h"

namespace tutti::bench {

/// The `fact` of every rank, by rank.
template <class Fact>
Result<std::vector<Fact>> exchange(Communicator& communicator, const Fact& fact) {
  static_assert(std::is_trivially_copyable_v<Fact>);
  std::vector<Fact> facts(static_cast<size_t>(communicator.size()));
  TUTTI_TRY(communicator.all_gather(&fact, facts.data(), sizeof(Fact), DataType::kUint8));
  return facts;
}

/// Returns on rank 0 when every rank has called it.
inline Status report_to_first(Communicator& communicator) {
  const uint8_t done = 1;
  std::vector<uint8_t> all(static_cast<size_t>(communicator.size()));
  return communicator.gather(&done, all.data(), 1, DataType::kUint8, 0);
}

}  // namespace tutti::bench
