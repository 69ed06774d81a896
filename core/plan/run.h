// SPDX-License-Identifier: Apache-2.0
// The connections a set of plans uses, and a run of all ranks over them as tutti/plugin/plan.h says steps wait.
#pragma once

#include <string>
#include <unordered_map>

#include "plan/plan.h"

namespace tutti::plan {

/// Numbers the directed pairs of ranks.
class Connections {
 public:
  explicit Connections(uint32_t rank_count) : rank_count_(rank_count) {}

  /// The number of the connection from one rank to another, given on first use.
  uint32_t of(uint32_t from, uint32_t to) {
    const auto [entry, added] = numbers_.try_emplace(uint64_t{from} * rank_count_ + to, size());
    if (added) ends_.push_back({from, to});
    return entry->second;
  }
  uint32_t size() const { return static_cast<uint32_t>(ends_.size()); }
  uint32_t from(uint32_t connection) const { return ends_[connection].first; }
  uint32_t to(uint32_t connection) const { return ends_[connection].second; }

 private:
  /// Regular patterns of pairs would otherwise share buckets.
  struct Hash {
    size_t operator()(uint64_t pair) const { return pair * 0x9e3779b97f4a7c15u >> 20; }
  };

  uint32_t rank_count_;
  std::unordered_map<uint64_t, uint32_t, Hash> numbers_;
  std::vector<std::pair<uint32_t, uint32_t>> ends_;
};

/// Takes all ranks through their plans. A step that folds waits for all its receives and sends at once; a gather or
/// scatter step for its sends first, then for its receives. That is the strictest reading of the waiting rule: an
/// executor that does some of it earlier can only wait less.
///
/// Derived classes do the work of a step when its waits are over. The outcome does not depend on the order in which
/// ranks advance: each waits only for others, never chooses.
class Run {
 public:
  static constexpr uint64_t kUnlimited = ~uint64_t{0};

  Run(std::span<const Plan> plans, uint64_t slots, uint32_t loops);
  virtual ~Run() = default;

  /// Runs to the end, or to the first failure of a step, or to a deadlock.
  Status finish();

 protected:
  /// The step's waits are over: it sends (and, if it folds, has received) now.
  virtual Status on_send(uint32_t rank, uint32_t step) = 0;
  /// A gather step's receives.
  virtual Status on_gather(uint32_t rank, uint32_t step) = 0;

  std::span<const Plan> plans_;
  Connections connections_;

 private:
  struct Rank {
    uint32_t loop = 0;
    uint32_t step = 0;
    bool gathering = false;  ///< in the second half of a gather or scatter step
    uint32_t waited = 0;     ///< waits of this half that are over
    uint32_t waits_for = kNothing;
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

  uint64_t slots_;
  uint32_t loops_;
  std::vector<Rank> ranks_;
  std::vector<uint64_t> filled_;  ///< by connection: messages sent and not yet received
  std::vector<uint32_t> ready_;
};

}  // namespace tutti::plan
