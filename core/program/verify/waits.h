// SPDX-License-Identifier: Apache-2.0
// The waits of plans, and the conditions of every proof.
#pragma once

#include "program/verify/prove.h"

namespace tutti::program {

/// The waits between ranks over several loops, without contents.
class Waits : public Run {
 public:
  /// Enough for a rank to run one loop ahead of a peer, and to find slots that the loop before has filled.
  static constexpr uint32_t kLoops = 3;

  using Run::Run;

 protected:
  Status on_send(uint32_t, uint32_t) override { return {}; }
  Status on_gather(uint32_t, uint32_t) override { return {}; }
};

/// Whether the plans are a set: valid, one per rank in order, and alike in all that ranks have in common.
Status check_set(std::span<const Plan> plans);
/// Whether the strands of each plan can run beside each other (program/verify/races.h).
Status check_races(std::span<const Plan> plans, bool in_place, std::optional<StepPlace>* place);
/// Whether there are plans, and the options allow a proof of them.
Status check_options(const VerifyOptions& options, const PlanSource& source, uint32_t rank_count);

}  // namespace tutti::program
