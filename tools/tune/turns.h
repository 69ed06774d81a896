// SPDX-License-Identifier: Apache-2.0
// Ranks that share processors and measure how long a turn takes.
#pragma once

#include <span>

#include "tutti/communicator.h"

namespace tutti::tune {

/// The time of a turn, in µs: from a rank that waits to the next rank of its processor. A small message passes from
/// each rank of `ranks` to the next rank of the list. If r ranks share a processor, it waits for r / 2 turns on
/// average. All ranks of the list, and no other rank, call this at the same time. `processors`: of the ranks together,
/// at most half as many as ranks: else a message mostly passes between processors. Takes some tenths of a second; with
/// hundreds of ranks, some seconds.
Result<double> measure_turn(Communicator& communicator, std::span<const int> ranks, int processors);

}  // namespace tutti::tune
