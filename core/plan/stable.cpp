// SPDX-License-Identifier: Apache-2.0
#include "plan/stable.h"

#include <vector>

namespace tutti::plan {
namespace {

/// Numbers places in memory: chunks of the output first, then chunks of the input that are no chunk of the output.
class Places {
 public:
  Places(const Plan& plan, bool in_place) : plan_(plan), in_place_(in_place) {}

  uint32_t count() const { return plan_.output_chunks() + plan_.input_chunks(); }
  uint32_t of_output(uint32_t chunk) const { return chunk; }
  uint32_t of_input(uint32_t chunk) const {
    const uint32_t own = plan_.rank * plan_.chunks;  // first chunk of this rank's block
    const uint32_t apart = plan_.output_chunks() + chunk;
    if (!in_place_) return apart;
    if (plan_.input_blocks == plan_.output_blocks) return chunk;
    if (plan_.input_blocks == 1) return own + chunk;                          // all-gather, gather
    return chunk >= own && chunk < own + plan_.chunks ? chunk - own : apart;  // reduce-scatter, scatter
  }
  uint32_t of_source(const tutti_plan_step& step, uint32_t chunk) const {
    return step.source == TUTTI_BUFFER_INPUT ? of_input(chunk) : of_output(chunk);
  }

 private:
  const Plan& plan_;
  bool in_place_;
};

}  // namespace

void mark_stable(Plan& plan, bool in_place) {
  const Places places(plan, in_place);
  std::vector<bool> overwritten(places.count(), false);
  for (size_t s = plan.steps.size(); s-- > 0;) {
    tutti_plan_step& step = plan.steps[s];
    const bool scatter = (step.flags & TUTTI_STEP_SCATTER) != 0;
    const bool gather = (step.flags & TUTTI_STEP_GATHER) != 0;
    bool stable = true;
    // In gather steps receives follow the sends, within the same step.
    if (gather) {
      for (const tutti_plan_peer& peer : plan.recv(step)) overwritten[places.of_output(peer.chunk)] = true;
    }
    if (scatter) {
      for (const tutti_plan_peer& peer : plan.send(step)) {
        stable = stable && !overwritten[places.of_source(step, peer.chunk)];
      }
    } else if (!gather && step.destination != TUTTI_BUFFER_NONE) {
      stable = !overwritten[places.of_output(step.destination_chunk)];
    } else if (step.source != TUTTI_BUFFER_NONE) {
      stable = !overwritten[places.of_source(step, step.source_chunk)];
    } else {
      stable = false;  // passed on only: kept nowhere
    }
    if (stable) step.flags |= TUTTI_STEP_STABLE;
    if (step.destination != TUTTI_BUFFER_NONE) overwritten[places.of_output(step.destination_chunk)] = true;
  }
}

}  // namespace tutti::plan
