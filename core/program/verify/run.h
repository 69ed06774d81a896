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
/// A step exchanges if it gathers or scatters, sends and receives. A long message goes in parts, and an exchange
/// receives part k before it sends part k + 1. So its messages are complete when its receives are over. Exchanges of
/// several ranks that wait for each other's messages complete together, since each has sent the part that the next one
/// receives. A fold between two exchanges passes the parts on.
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
    bool all_sent = false;          ///< in the second half: the messages of the first half are complete
    uint32_t waited = 0;            ///< waits of this half that are over
    uint32_t waits_for = kNothing;  ///< a connection
    uint32_t waits_on = 0;          ///< the rank at its other end
    bool for_slot = false;          ///< waits for a free slot, not for a message
  };
  static constexpr uint32_t kNothing = ~0u;
  /// The messages of a connection that are not yet received.
  struct Traffic {
    uint64_t begun = 0;     ///< each takes a slot
    uint64_t complete = 0;  ///< of `begun`
    bool in_parts = false;  ///< the last one is not complete
  };

  Status advance(uint32_t rank);
  bool wait(Rank& state, uint32_t rank, const tutti_plan_step& step, bool sends, bool receives);
  void take_messages(uint32_t rank, const tutti_plan_step& step);
  void begin_messages(uint32_t rank, const tutti_plan_step& step);
  void complete_messages(uint32_t rank, const tutti_plan_step& step);
  bool complete_together();
  void add_folds(std::vector<uint8_t>& joined, std::vector<uint32_t>& members);
  void set_in_parts(uint32_t rank, bool in_parts);
  void drop_blocked(std::vector<uint8_t>& joined, std::vector<uint32_t> members) const;
  bool passes_parts(uint32_t rank) const;
  bool receives_from(uint32_t rank, std::span<const uint8_t> joined) const;
  const tutti_plan_step& step_of(uint32_t rank) const { return plans_[rank].steps[ranks_[rank].step]; }
  /// The rank whose state tells for the peer: of a rotation, rank 0.
  uint32_t state_of(uint32_t peer) const { return connections_.rotates() ? 0 : peer; }
  void wake(uint32_t rank, uint32_t connection);
  bool ended(const Rank& state) const { return state.loop == loops_; }
  Status check_ended() const;
  std::string why_waiting(uint32_t rank) const;
  Status check_left_over() const;

  StepNumbers numbers_;
  uint64_t slots_;
  uint32_t loops_;
  std::vector<Rank> ranks_;
  std::vector<Traffic> traffic_;  ///< by connection
  std::vector<uint32_t> ready_;
};

}  // namespace tutti::program
