// SPDX-License-Identifier: Apache-2.0
// A run of all ranks over their connections, as tutti/plugin/plan.h says steps wait.
#pragma once

#include <optional>
#include <string>

#include "program/connections.h"
#include "program/plan.h"
#include "program/verify/unmatched.h"
#include "program/verify/verify.h"

namespace tutti::program {

/// Takes all ranks through their plans. A step that folds waits for all its receives and sends at once; a gather or
/// scatter step for its sends first, then for its receives. This is the strictest reading of the waiting rule: an
/// executor that does a part of it earlier can only wait less.
///
/// Derived classes do the work of a step when its waits are over. The outcome does not depend on the order in which
/// ranks advance: each rank only waits, and never chooses. The plans have neither repeats nor strands. One thread at a
/// time.
class Run {
 public:
  static constexpr uint64_t kUnlimited = ~uint64_t{0};

  /// `connections` belong to `plans`; both outlive the run.
  /// If the connections are those of a rotation, `plans` is rank 0's plan alone. All ranks then advance in step: the
  /// ranks wait for each other alike, and no rank's step can make another rank wait.
  Run(std::span<const Plan> plans, const Connections& connections, uint64_t slots, uint32_t loops);
  /// `numbers` outlive the run.
  void number_by(StepNumbers numbers) { numbers_ = numbers; }
  virtual ~Run() = default;

  /// Runs to the end, or to the first failure of a step, or to a deadlock.
  Status finish();
  /// After a failure: the step that the failure is about; nothing if it is about no single step.
  std::optional<StepPlace> failed_at() const { return failed_at_; }
  /// After finish(): whether all ranks did all their steps. Messages may be left over.
  bool all_ended() const;

 protected:
  /// The step's waits are over: it sends (and, if it folds, has received) now.
  virtual Status on_send(uint32_t rank, uint32_t step) = 0;
  /// A gather step's receives.
  virtual Status on_gather(uint32_t rank, uint32_t step) = 0;

  uint32_t number(uint32_t rank, uint32_t step) const { return numbers_.empty() ? step : numbers_[rank][step]; }

  std::span<const Plan> plans_;
  const Connections& connections_;
  mutable std::optional<StepPlace> failed_at_;

 private:
  struct Rank {
    uint32_t loop = 0;
    uint32_t step = 0;
    bool gathering = false;         ///< in the second half of a gather or scatter step
    uint32_t waited = 0;            ///< waits of this half that are over
    uint32_t waits_for = kNothing;  ///< a connection
    uint32_t waits_on = 0;          ///< the rank at its other end
    bool for_slot = false;          ///< waits for a free slot, not for a message
  };
  static constexpr uint32_t kNothing = ~0u;

  Status advance(uint32_t rank);
  bool wait(Rank& state, uint32_t rank, const tutti_plan_step& step, bool sends, bool receives);
  void exchange(uint32_t rank, const tutti_plan_step& step, bool sends, bool receives);
  void wake(uint32_t rank, uint32_t connection);
  bool ended(const Rank& state) const { return state.loop == loops_; }
  Status check_ended() const;
  std::string why_waiting(uint32_t rank) const;
  Status check_left_over() const;

  StepNumbers numbers_;
  uint64_t slots_;
  uint32_t loops_;
  std::vector<Rank> ranks_;
  std::vector<uint64_t> filled_;  ///< by connection: messages sent and not yet received
  std::vector<uint32_t> ready_;
};

}  // namespace tutti::program
