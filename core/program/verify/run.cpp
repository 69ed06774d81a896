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
      traffic_(connections.size()) {}

Status Run::finish() {
  for (size_t rank = plans_.size(); rank-- > 0;) ready_.push_back(static_cast<uint32_t>(rank));
  do {
    while (!ready_.empty()) {
      const uint32_t rank = ready_.back();
      ready_.pop_back();
      TUTTI_TRY(advance(rank));
    }
  } while (complete_together());
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
    if (receives) take_messages(rank, step);
    if (sends) begin_messages(rank, step);
    const bool exchanges = !receives && step.recv_count > 0;
    if (!exchanges && !state.all_sent) complete_messages(rank, step);
    state.waited = 0;
    state.all_sent = !exchanges && !receives;
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
    if (traffic_[state.waits_for].complete == 0) return false;
  }
  for (; state.waited < recv_count + send_count; ++state.waited) {
    const uint32_t peer = step.send_begin + state.waited - recv_count;
    state.waits_for = connections_.outgoing(rank, peer);
    state.waits_on = plans_[rank].peers[peer].rank;
    state.for_slot = true;
    if (traffic_[state.waits_for].begun >= slots_) return false;
  }
  state.waits_for = kNothing;
  return true;
}

void Run::take_messages(uint32_t rank, const tutti_plan_step& step) {
  for (uint32_t i = step.recv_begin; i < step.recv_begin + uint32_t{step.recv_count}; ++i) {
    const uint32_t connection = connections_.incoming(rank, i);
    --traffic_[connection].complete;
    --traffic_[connection].begun;
    wake(plans_[rank].peers[i].rank, connection);
  }
}

void Run::begin_messages(uint32_t rank, const tutti_plan_step& step) {
  for (uint32_t i = step.send_begin; i < step.send_begin + uint32_t{step.send_count}; ++i) {
    Traffic& traffic = traffic_[connections_.outgoing(rank, i)];
    ++traffic.begun;
    traffic.in_parts = true;
  }
}

void Run::complete_messages(uint32_t rank, const tutti_plan_step& step) {
  for (uint32_t i = step.send_begin; i < step.send_begin + uint32_t{step.send_count}; ++i) {
    const uint32_t connection = connections_.outgoing(rank, i);
    ++traffic_[connection].complete;
    traffic_[connection].in_parts = false;
    wake(plans_[rank].peers[i].rank, connection);
  }
}

/// No rank can advance. Completes the messages of the exchanges that wait for each other. False: there are none.
bool Run::complete_together() {
  std::vector<uint8_t> joined(ranks_.size());
  std::vector<uint32_t> members;
  for (uint32_t rank = 0; rank < ranks_.size(); ++rank) {
    if (!ranks_[rank].gathering) continue;
    joined[rank] = 1;
    members.push_back(rank);
  }
  if (members.empty()) return false;
  const size_t exchanges = members.size();
  add_folds(joined, members);
  drop_blocked(joined, members);
  for (const uint32_t rank : std::span(members).subspan(exchanges)) set_in_parts(rank, false);
  bool any = false;
  for (const uint32_t rank : std::span(members).first(exchanges)) {
    Rank& state = ranks_[rank];
    if (!joined[rank] || state.all_sent) continue;
    complete_messages(rank, step_of(rank));
    state.all_sent = true;
    if (connections_.rotates()) ready_.push_back(rank);
    any = true;
  }
  return any;
}

/// Adds the folds that pass on parts of the members' messages. Their messages are in parts, too.
void Run::add_folds(std::vector<uint8_t>& joined, std::vector<uint32_t>& members) {
  for (size_t m = 0; m < members.size(); ++m) {
    const uint32_t rank = members[m];
    for (const tutti_plan_peer& peer : plans_[rank].send(step_of(rank))) {
      const uint32_t receiver = state_of(peer.rank);
      if (joined[receiver] || !passes_parts(receiver)) continue;
      joined[receiver] = 1;
      members.push_back(receiver);
      set_in_parts(receiver, true);
    }
  }
}

void Run::set_in_parts(uint32_t rank, bool in_parts) {
  const tutti_plan_step& step = step_of(rank);
  for (uint32_t i = 0; i < step.send_count; ++i) {
    traffic_[connections_.outgoing(rank, step.send_begin + i)].in_parts = in_parts;
  }
}

/// Whether a rank waits at a fold, and each message and slot that it waits for is there, if only in part.
bool Run::passes_parts(uint32_t rank) const {
  if (ended(ranks_[rank]) || !folds(step_of(rank))) return false;
  const tutti_plan_step& step = step_of(rank);
  for (uint32_t i = step.recv_begin; i < step.recv_begin + uint32_t{step.recv_count}; ++i) {
    const Traffic& traffic = traffic_[connections_.incoming(rank, i)];
    if (traffic.complete == 0 && !traffic.in_parts) return false;
  }
  for (uint32_t i = step.send_begin; i < step.send_begin + uint32_t{step.send_count}; ++i) {
    if (traffic_[connections_.outgoing(rank, i)].begun >= slots_) return false;
  }
  return true;
}

/// Drops the members that wait for a message of a rank that is no member.
void Run::drop_blocked(std::vector<uint8_t>& joined, std::vector<uint32_t> members) const {
  while (!members.empty()) {
    const uint32_t rank = members.back();
    members.pop_back();
    if (!joined[rank] || receives_from(rank, joined)) continue;
    joined[rank] = 0;
    for (const tutti_plan_peer& peer : plans_[rank].send(step_of(rank))) members.push_back(state_of(peer.rank));
  }
}

/// Whether each message that the rank's step receives is complete, or is sent in parts by one of the ranks `joined`.
bool Run::receives_from(uint32_t rank, std::span<const uint8_t> joined) const {
  const tutti_plan_step& step = step_of(rank);
  for (uint32_t i = step.recv_begin; i < step.recv_begin + uint32_t{step.recv_count}; ++i) {
    const Traffic& traffic = traffic_[connections_.incoming(rank, i)];
    if (traffic.complete > 0) continue;
    if (!traffic.in_parts || !joined[state_of(plans_[rank].peers[i].rank)]) return false;
  }
  return true;
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
  const std::string_view what = state.for_slot                       ? "a slot to"
                                : traffic_[state.waits_for].in_parts ? "the rest of a message from"
                                                                     : "a message from";
  return fmt::format("rank {} waits at step {}{} for {} rank {}", rank, number(rank, state.step), loop, what,
                     state.waits_on);
}

Status Run::check_left_over() const {
  const auto is_filled = [](const Traffic& traffic) { return traffic.complete > 0; };
  if (std::ranges::none_of(traffic_, is_filled)) return {};
  // All ranks have ended, so no rank received less than it should.
  const CounterExample first = unmatched(plans_, connections_, numbers_).front();
  failed_at_ = first.place;
  return {Code::kFailedPrecondition, first.text};
}

}  // namespace tutti::program
