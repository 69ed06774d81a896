// SPDX-License-Identifier: Apache-2.0
#include "program/verify/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace tutti::program {
namespace {

bool folds(const tutti_plan_step& step) {
  return (step.flags & (TUTTI_STEP_GATHER | TUTTI_STEP_SCATTER)) == 0;
}

}  // namespace

Run::Run(std::span<const Plan> plans, const Connections& connections, uint64_t slots, uint32_t loops)
    : plans_(plans),
      connections_(connections),
      slots_(slots),
      loops_(loops),
      ranks_(plans.size()),
      filled_(connections.size()) {}

Status Run::finish() {
  for (size_t rank = plans_.size(); rank-- > 0;) ready_.push_back(static_cast<uint32_t>(rank));
  while (!ready_.empty()) {
    const uint32_t rank = ready_.back();
    ready_.pop_back();
    TUTTI_TRY(advance(rank));
  }
  TUTTI_TRY(check_ended());
  return check_left_over();
}

Status Run::advance(uint32_t rank) {
  Rank& state = ranks_[rank];
  const Plan& plan = plans_[rank];
  if (plan.steps.empty()) state.loop = loops_;
  while (!ended(state)) {
    const tutti_plan_step& step = plan.steps[state.step];
    const bool sends = folds(step) || !state.gathering;
    const bool receives = folds(step) || state.gathering;
    if (!wait(state, rank, step, sends, receives)) return {};
    const Status done = state.gathering ? on_gather(rank, state.step) : on_send(rank, state.step);
    if (!done.ok()) failed_at_ = {rank, number(rank, state.step)};
    TUTTI_TRY(done);
    exchange(rank, step, sends, receives);
    state.waited = 0;
    state.gathering = sends && !receives;
    if (state.gathering) continue;
    if (++state.step == plan.steps.size()) {
      state.step = 0;
      ++state.loop;
    }
  }
  return {};
}

/// True when all waits of this half are over; else notes the first open wait. A wait that is over stays over, as only
/// this rank fills its senders' slots and empties its receivers' slots.
bool Run::wait(Rank& state, uint32_t rank, const tutti_plan_step& step, bool sends, bool receives) {
  const uint32_t recv_count = receives ? step.recv_count : 0;
  const uint32_t send_count = sends ? step.send_count : 0;
  for (; state.waited < recv_count; ++state.waited) {
    const uint32_t peer = step.recv_begin + state.waited;
    state.waits_for = connections_.incoming(rank, peer);
    state.waits_on = plans_[rank].peers[peer].rank;
    state.for_slot = false;
    if (filled_[state.waits_for] == 0) return false;
  }
  for (; state.waited < recv_count + send_count; ++state.waited) {
    const uint32_t peer = step.send_begin + state.waited - recv_count;
    state.waits_for = connections_.outgoing(rank, peer);
    state.waits_on = plans_[rank].peers[peer].rank;
    state.for_slot = true;
    if (filled_[state.waits_for] >= slots_) return false;
  }
  state.waits_for = kNothing;
  return true;
}

void Run::exchange(uint32_t rank, const tutti_plan_step& step, bool sends, bool receives) {
  const Plan& plan = plans_[rank];
  for (uint32_t i = 0; receives && i < step.recv_count; ++i) {
    const uint32_t connection = connections_.incoming(rank, step.recv_begin + i);
    --filled_[connection];
    wake(plan.peers[step.recv_begin + i].rank, connection);
  }
  for (uint32_t i = 0; sends && i < step.send_count; ++i) {
    const uint32_t connection = connections_.outgoing(rank, step.send_begin + i);
    ++filled_[connection];
    wake(plan.peers[step.send_begin + i].rank, connection);
  }
}

void Run::wake(uint32_t rank, uint32_t connection) {
  if (connections_.rotates()) return;  // the only plan is the one that runs
  if (ranks_[rank].waits_for != connection) return;
  ranks_[rank].waits_for = kNothing;
  ready_.push_back(rank);
}

bool Run::all_ended() const {
  return std::ranges::all_of(ranks_, [this](const Rank& rank) { return ended(rank); });
}

Status Run::check_ended() const {
  for (uint32_t first = 0; first < ranks_.size(); ++first) {
    if (ended(ranks_[first])) continue;
    failed_at_ = {first, number(first, ranks_[first].step)};
    constexpr size_t kMostRanksNamed = 8;
    std::string chain = why_waiting(first);
    if (connections_.rotates()) return {Code::kFailedPrecondition, fmt::format("deadlock: {}; so do all ranks", chain)};
    std::set<uint32_t> named = {first};
    for (uint32_t at = first; named.size() < kMostRanksNamed;) {
      at = ranks_[at].waits_on;
      if (ended(ranks_[at])) {
        chain += fmt::format("; rank {} has ended", at);
        break;
      }
      if (!named.insert(at).second) break;
      chain += "; " + why_waiting(at);
    }
    return {Code::kFailedPrecondition, "deadlock: " + chain};
  }
  return {};
}

std::string Run::why_waiting(uint32_t rank) const {
  const Rank& state = ranks_[rank];
  const std::string loop = state.loop > 0 ? fmt::format(" of loop {}", state.loop) : "";
  return fmt::format("rank {} waits at step {}{} for a {} rank {}", rank, number(rank, state.step), loop,
                     state.for_slot ? "slot to" : "message from", state.waits_on);
}

Status Run::check_left_over() const {
  const auto is_filled = [](uint64_t messages) { return messages > 0; };
  if (std::ranges::none_of(filled_, is_filled)) return {};
  // All ranks have ended, so no rank received less than it should.
  const CounterExample first = unmatched(plans_, connections_, numbers_).front();
  failed_at_ = first.place;
  return {Code::kFailedPrecondition, first.text};
}

}  // namespace tutti::program
