// SPDX-License-Identifier: Apache-2.0
// Small facts that ranks exchange, through the communicator itself. They use sends and receives, which run with all
// settings that force collectives.
#pragma once

#include <algorithm>
#include <type_traits>
#include <vector>

#include "tutti/communicator.h"

namespace tutti::bench {

/// The `fact` of every rank, by rank. Returns when every rank has called it.
template <class Fact>
Result<std::vector<Fact>> exchange(Communicator& communicator, const Fact& fact) {
  static_assert(std::is_trivially_copyable_v<Fact>);
  const auto own = static_cast<size_t>(communicator.rank());
  std::vector<Fact> facts(static_cast<size_t>(communicator.size()), fact);
  TUTTI_TRY(group_start());
  Status status;
  for (size_t peer = 0; peer < facts.size() && status.ok(); ++peer) {
    if (peer == own) continue;
    status = communicator.send(&fact, sizeof(Fact), DataType::kUint8, static_cast<int>(peer));
    if (status.ok()) {
      status = communicator.recv(&facts[peer], sizeof(Fact), DataType::kUint8, static_cast<int>(peer));
    }
  }
  const Status done = group_end();
  TUTTI_TRY(status);
  TUTTI_TRY(done);
  return facts;
}

/// A barrier: returns when every rank has called it. In round k, each rank sends to the rank 2^k after it, and receives
/// from the rank 2^k before it. Source: Hensgen, Finkel and Manber, Two Algorithms for Barrier Synchronization, 1988.
inline Status meet(Communicator& communicator) {
  const int ranks = communicator.size();
  uint8_t received = 0;
  for (int distance = 1; distance < ranks; distance *= 2) {
    const int next = (communicator.rank() + distance) % ranks;
    const int previous = (communicator.rank() + ranks - distance) % ranks;
    TUTTI_TRY(group_start());
    const uint8_t sent = 1;
    Status status = communicator.send(&sent, sizeof sent, DataType::kUint8, next);
    if (status.ok()) status = communicator.recv(&received, sizeof received, DataType::kUint8, previous);
    const Status done = group_end();
    TUTTI_TRY(status);
    TUTTI_TRY(done);
  }
  return {};
}

/// The largest value of all ranks.
template <class Value>
Result<Value> largest(Communicator& communicator, const Value& value) {
  TUTTI_ASSIGN(const auto values, exchange(communicator, value));
  return *std::max_element(values.begin(), values.end());
}

/// Returns on rank 0 when every rank has called it: the `fact` of every rank, by rank. Elsewhere, returns when the fact
/// is sent; facts of other ranks are then the own fact.
template <class Fact>
Result<std::vector<Fact>> tell_first(Communicator& communicator, const Fact& fact) {
  static_assert(std::is_trivially_copyable_v<Fact>);
  std::vector<Fact> facts(static_cast<size_t>(communicator.size()), fact);
  if (communicator.rank() != 0) {
    TUTTI_TRY(communicator.send(&fact, sizeof(Fact), DataType::kUint8, 0));
    return facts;
  }
  for (size_t rank = 1; rank < facts.size(); ++rank) {
    TUTTI_TRY(communicator.recv(&facts[rank], sizeof(Fact), DataType::kUint8, static_cast<int>(rank)));
  }
  return facts;
}

/// Returns on rank 0 when every rank has called it, elsewhere when rank 0 is told.
inline Status report_to_first(Communicator& communicator) {
  return tell_first(communicator, uint8_t{1}).status();
}

}  // namespace tutti::bench
