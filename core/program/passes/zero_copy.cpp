// SPDX-License-Identifier: Apache-2.0
#include "program/passes/zero_copy.h"

#include <vector>

#include "program/passes/alias.h"

namespace tutti::program {
namespace {

/// The chunks of a plan's buffers that a later step overwrites.
class Overwritten {
 public:
  Overwritten(const Plan& plan, bool in_place) : plan_(plan), in_place_(in_place), places_(place_count(plan)) {}

  /// Whether a later step overwrites the chunk. The next loop overwrites all scratch chunks.
  bool holds(uint32_t buffer, uint32_t chunk) const {
    return buffer == TUTTI_BUFFER_SCRATCH || places_[place_of(plan_, in_place_, buffer, chunk)];
  }
  void add(uint32_t buffer, uint32_t first, const tutti_plan_range& range) {
    for (uint32_t i = 0; i < range.count; ++i) {
      const uint32_t chunk = plan_.chunk_at(buffer, first, range.destination_stride, i);
      places_[place_of(plan_, in_place_, buffer, chunk)] = true;
    }
  }

 private:
  const Plan& plan_;
  bool in_place_;
  std::vector<bool> places_;
};

}  // namespace

/// Steps with several chunks are left out: their messages lie in slots.
void mark_stable(Plan& plan, bool in_place) {
  Overwritten overwritten(plan, in_place);
  for (size_t s = plan.steps.size(); s-- > 0;) {
    tutti_plan_step& step = plan.steps[s];
    const tutti_plan_range range = plan.range(step);
    const bool scatter = (step.flags & TUTTI_STEP_SCATTER) != 0;
    const bool gather = (step.flags & TUTTI_STEP_GATHER) != 0;
    bool stable = range.count == 1;
    // In gather steps receives follow the sends, within the same step.
    if (gather) {
      for (const tutti_plan_peer& peer : plan.recv(step)) overwritten.add(gather_buffer_of(step), peer.chunk, range);
    }
    if (scatter) {
      for (const tutti_plan_peer& peer : plan.send(step)) {
        stable = stable && !overwritten.holds(step.source, peer.chunk);
      }
    } else if (!gather && step.destination != TUTTI_BUFFER_NONE) {
      stable = stable && !overwritten.holds(step.destination, step.destination_chunk);
    } else if (step.source != TUTTI_BUFFER_NONE) {
      stable = stable && !overwritten.holds(step.source, step.source_chunk);
    } else {
      stable = false;  // passed on only: kept nowhere
    }
    if (stable) step.flags |= TUTTI_STEP_STABLE;
    if (step.destination != TUTTI_BUFFER_NONE) overwritten.add(step.destination, step.destination_chunk, range);
  }
}

}  // namespace tutti::program
