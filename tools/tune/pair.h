// SPDX-License-Identifier: Apache-2.0
// Two ranks that measure messages between them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tutti/communicator.h"

namespace tutti::tune {

/// Figures of messages between two ranks.
struct PairFigures {
  double latency_us = 0;  ///< a small message one way
  double gap_us = 0;      ///< time of a rank's processor for a small message that it sends or receives
  double gbs = 0;         ///< each way, while both ranks send large messages
};

/// Measures between this rank and `peer`, which calls it at the same time. Large messages have `large_bytes`. Takes
/// some tenths of a second.
Result<PairFigures> measure_pair(Communicator& communicator, int peer, size_t large_bytes);

}  // namespace tutti::tune
