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

}  // namespace tutti::bench
