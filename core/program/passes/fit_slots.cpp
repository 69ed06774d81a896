// SPDX-License-Identifier: Apache-2.0
#include "program/passes/fit_slots.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "program/connections.h"
#include "program/passes/alias.h"
#include "program/passes/split_messages.h"
#include "program/verify/touches.h"

namespace tutti::program {
namespace {

/// What a step uses, and what it must not overtake.
struct Use {
  std::vector<uint32_t> reads, writes;    ///< places of memory
  std::vector<uint32_t> receives, sends;  ///< connections
};

/// All uses of the steps that a later step would overtake.
class Overtaken {
 public:
  Overtaken(uint32_t places, uint32_t connections)
      : reads_(places), writes_(places), receives_(connections), sends_(connections) {}

  void add(const Use& use) {
    for (const uint32_t place : use.reads) reads_[place] = true;
    for (const uint32_t place : use.writes) writes_[place] = true;
    for (const uint32_t connection : use.receives) receives_[connection] = true;
    for (const uint32_t connection : use.sends) sends_[connection] = true;
  }
  bool permits(const Use& use) const {
    const auto in = [](const std::vector<bool>& set) { return [&set](uint32_t item) { return bool{set[item]}; }; };
    return std::none_of(use.reads.begin(), use.reads.end(), in(writes_)) &&
           std::none_of(use.writes.begin(), use.writes.end(), in(writes_)) &&
           std::none_of(use.writes.begin(), use.writes.end(), in(reads_)) &&
           std::none_of(use.receives.begin(), use.receives.end(), in(receives_)) &&
           std::none_of(use.sends.begin(), use.sends.end(), in(sends_));
  }

 private:
  std::vector<bool> reads_, writes_, receives_, sends_;
};

class SlotRun {
 public:
  SlotRun(std::span<const Plan> plans, uint32_t slots)
      : plans_(plans), slots_(slots), connections_(plans), filled_(connections_.size()), ranks_(plans.size()) {
    for (uint32_t rank = 0; rank < plans.size(); ++rank) {
      for (uint32_t step = 0; step < plans[rank].steps.size(); ++step) {
        ranks_[rank].uses.push_back(use_of(rank, plans[rank].steps[step]));
        ranks_[rank].pending.push_back(step);
      }
    }
  }

  /// Runs all steps. Afterwards, order() has them.
  Status finish() {
    while (true) {
      for (bool more = true; more;) {
        more = false;
        for (uint32_t rank = 0; rank < ranks_.size(); ++rank) more = advance(rank) || more;
      }
      if (all_ended()) return {};
      TUTTI_TRY(overtake());
    }
  }
  const std::vector<uint32_t>& order(uint32_t rank) const { return ranks_[rank].order; }

 private:
  struct Rank {
    std::vector<Use> uses;          ///< by step
    std::vector<uint32_t> pending;  ///< steps that have not run, in order
    std::vector<uint32_t> order;    ///< steps that have run
  };

  /// In place, chunks share no less memory than otherwise. An all-to-all has no form in place.
  Use use_of(uint32_t rank, const tutti_plan_step& step) const {
    const Plan& plan = plans_[rank];
    Use use;
    for (const Touch& touch : touches(plan, step, plan.collective != Collective::kAllToAll)) {
      (touch.writes ? use.writes : use.reads).push_back(touch.place);
    }
    for (uint32_t i = 0; i < step.recv_count; ++i) {
      use.receives.push_back(connections_.incoming(rank, step.recv_begin + i));
    }
    for (uint32_t i = 0; i < step.send_count; ++i) {
      use.sends.push_back(connections_.outgoing(rank, step.send_begin + i));
    }
    return use;
  }

  bool has_messages(const Use& use) const {
    return std::all_of(use.receives.begin(), use.receives.end(), [&](uint32_t at) { return filled_[at] > 0; });
  }
  bool has_slots(const Use& use) const {
    return std::all_of(use.sends.begin(), use.sends.end(), [&](uint32_t at) { return filled_[at] < slots_; });
  }
  const Use& first_of(const Rank& rank) const { return rank.uses[rank.pending.front()]; }
  bool all_ended() const {
    return std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.pending.empty(); });
  }

  /// Runs the steps of a rank up to the first that waits. Returns whether there was one.
  bool advance(uint32_t rank) {
    Rank& state = ranks_[rank];
    size_t ran = 0;
    for (; ran < state.pending.size(); ++ran) {
      const Use& use = state.uses[state.pending[ran]];
      if (!has_messages(use) || !has_slots(use)) break;
      run(state, state.pending[ran]);
    }
    state.pending.erase(state.pending.begin(), state.pending.begin() + static_cast<ptrdiff_t>(ran));
    return ran > 0;
  }

  void run(Rank& state, uint32_t step) {
    for (const uint32_t connection : state.uses[step].receives) --filled_[connection];
    for (const uint32_t connection : state.uses[step].sends) ++filled_[connection];
    state.order.push_back(step);
  }

  /// No rank can go on. The ranks choose by the same state: a step takes only messages and slots of its own rank.
  Status overtake() {
    std::vector<std::optional<size_t>> chosen;
    for (uint32_t rank = 0; rank < ranks_.size(); ++rank) chosen.push_back(choose(rank));
    if (std::none_of(chosen.begin(), chosen.end(), [](const auto& step) { return step.has_value(); })) return failure();
    for (uint32_t rank = 0; rank < ranks_.size(); ++rank) {
      if (!chosen[rank]) continue;
      Rank& state = ranks_[rank];
      run(state, state.pending[*chosen[rank]]);
      state.pending.erase(state.pending.begin() + static_cast<ptrdiff_t>(*chosen[rank]));
    }
    return {};
  }

  bool waits_for_slot(const Rank& state) const { return !state.pending.empty() && has_messages(first_of(state)); }

  /// The place in `pending` of the next step that may run before those that wait.
  std::optional<size_t> choose(uint32_t rank) const {
    const Rank& state = ranks_[rank];
    if (!waits_for_slot(state)) return std::nullopt;
    Overtaken overtaken(place_count(plans_[rank]), connections_.size());
    for (size_t i = 0; i < state.pending.size(); ++i) {
      const Use& use = state.uses[state.pending[i]];
      if (i > 0 && overtaken.permits(use) && has_messages(use) && has_slots(use)) return i;
      overtaken.add(use);
    }
    return std::nullopt;
  }

  Status failure() const {
    const auto waits = [&](const Rank& state) { return waits_for_slot(state); };
    const auto first = std::find_if(ranks_.begin(), ranks_.end(), waits);
    if (first == ranks_.end()) return {Code::kFailedPrecondition, "the ranks wait for each other for ever"};
    const std::vector<uint32_t>& sends = first_of(*first).sends;
    const auto full = std::find_if(sends.begin(), sends.end(), [&](uint32_t at) { return filled_[at] >= slots_; });
    return {Code::kUnsupported,
            fmt::format("needs more than {} messages of one chunk under way from rank {} to rank {}", slots_,
                        connections_.from(*full), connections_.to(*full))};
  }

  std::span<const Plan> plans_;
  uint32_t slots_;
  Connections connections_;
  std::vector<uint32_t> filled_;  ///< by connection: messages sent and not yet received
  std::vector<Rank> ranks_;
};

}  // namespace

Result<std::vector<Plan>> fit_slots(std::vector<Plan> plans, uint32_t slots) {
  SlotRun run(plans, slots);
  TUTTI_TRY(run.finish());
  for (uint32_t rank = 0; rank < plans.size(); ++rank) {
    const std::vector<tutti_plan_step> steps = std::move(plans[rank].steps);
    plans[rank].steps.clear();
    for (const uint32_t step : run.order(rank)) plans[rank].steps.push_back(steps[step]);
  }
  return plans;
}

Result<std::vector<Plan>> split_and_fit(std::vector<Plan> plans, uint32_t slots) {
  for (Plan& plan : plans) {
    TUTTI_ASSIGN(plan, split_messages(plan));
  }
  return fit_slots(std::move(plans), slots);
}

}  // namespace tutti::program
