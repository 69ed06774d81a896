// SPDX-License-Identifier: Apache-2.0
// Proves that plans fulfil their collective, before they run.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "program/plan.h"

namespace tutti::program {

struct VerifyOptions {
  uint32_t slots = 2;     ///< messages that fit between one rank and another; what holds with S slots holds with more
  bool in_place = false;  ///< input and output share memory the way the collective allows
};

/// The values of `in_place` for which plans of a collective are proved: out of place and, if the collective allows it,
/// in place.
inline std::vector<bool> buffer_uses(Collective collective) {
  return collective == Collective::kAllToAll ? std::vector<bool>{false} : std::vector<bool>{false, true};
}

/// "in place" or "out of place", for texts.
inline const char* text_of_use(bool in_place) {
  return in_place ? "in place" : "out of place";
}

/// A step of a rank's plan.
struct StepPlace {
  uint32_t rank = 0;
  uint32_t step = 0;
};

/// A wrong place in plans.
struct CounterExample {
  std::optional<StepPlace> place;
  std::string text;
};

/// Runs all ranks' plans of one channel symbolically; `all_ranks[r]` is rank r's. Proves that
///
///   - every output chunk the collective demands ends with each contribution exactly once, finished by FINAL exactly
///     once where it reduces, and that in an all-reduce all ranks compute it by the same expression, so that all get
///     the same bits;
///   - nothing is read before it is written or after it was overwritten (in place), a buffer that only the root has is
///     touched by the root only;
///   - messages meet pairwise in order with chunks of the same size, and none is left over;
///   - no rank waits for ever when each connection has `slots` slots, over consecutive loops;
///   - strands can run beside each other in any way: no two of their steps touch a chunk without an order of waits
///     while one writes it (program/verify/races.h), and they wait for each other neither in a circle nor for ever.
///     The other properties are proved for the lists of steps that the pass order_strands makes. Its header shows why
///     this is enough.
///
/// A failure is a counter-example: "rank 2 step 5: reads output chunk 3 before it is written".
/// `place`, if not null, is set to the step that the counter-example is about: the step that fails or waits, or the
/// last step that wrote a wrong output chunk. It stays empty if there is no such step. Send/recv demands no contents;
/// the rest is proved for it too. All-to-all in place is unsupported. Steps of plans with repeats are counted with the
/// repeats written out, and steps of plans with strands in the order of the plan. `is_undecided`, if not null, is set
/// if the failure is one of memory, which says nothing about the plans. prove() (program/verify/prove.h) is for any
/// number of ranks.
Status verify(std::span<const Plan> all_ranks, const VerifyOptions& options = {},
              std::optional<StepPlace>* place = nullptr, bool* is_undecided = nullptr);

}  // namespace tutti::program
