// SPDX-License-Identifier: Apache-2.0
// A random sequence of calls, a pure function of its seed: every rank makes the same.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/check/problem.h"

namespace tutti::sequence {

inline constexpr uint32_t kCommunicators = 2;  // over the same ranks
inline constexpr uint64_t kLifeRounds =
    100;  // after this number, both communicators are made again, with other settings

/// The limits of a random sequence.
struct Limits {
  uint64_t seed = 0;
  int rank_count = 4;
  bool gpus = false;
  size_t max_bytes = size_t{4} << 20;  ///< size of the larger buffer of a call
  uint32_t streams = 3;                ///< on GPUs
  bool graphs_only = false;            ///< every round is captured; else a third of them
  int replays = 3;                     ///< replays of a graph
};

/// One call of all ranks.
struct Call {
  check::Problem problem;
  bool in_place = false;
  uint32_t communicator = 0;
  uint32_t stream = 0;
  /// Elements between an aligned address and the buffers.
  size_t input_shift = 0;
  size_t output_shift = 0;
};

/// Calls that are made in order or, if there are several, as a group.
struct Unit {
  std::vector<Call> calls;
  bool eager = false;  ///< in a captured round: made beside the graph at every replay
};

/// Units that are all made before any is checked.
struct Round {
  uint64_t number = 0;
  std::vector<Unit> units;
  bool graph = false;  ///< captured once, then replayed with new input each time
  int plays = 1;
  /// How many calls are made and checked.
  size_t calls() const;
};

Round draw_round(const Limits& limits, uint64_t number);

/// The options of a communicator of the sequence; the first communicator has no forced choices.
Options draw_options(const Limits& limits, uint64_t life, uint32_t communicator);

}  // namespace tutti::sequence
