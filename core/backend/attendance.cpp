// SPDX-License-Identifier: Apache-2.0
#include "backend/attendance.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace tutti::backend {
namespace {

/// How many of this rank's calls of a kind the rank that left takes part in.
uint64_t matched(const bootstrap::Departure& departure, Turn::Kind kind) {
  switch (kind) {
    case Turn::Kind::kCollective:
      return departure.collectives;
    case Turn::Kind::kSend:
      return departure.received;
    case Turn::Kind::kReceive:
      return departure.sent;
  }
  return 0;
}

bool misses(const bootstrap::Departure& departure, const Turn& turn) {
  const bool concerned = turn.kind == Turn::Kind::kCollective || static_cast<int>(turn.peer) == departure.rank;
  return concerned && turn.number > matched(departure, turn.kind);
}

std::string describe(const Turn& turn, uint32_t own_rank) {
  switch (turn.kind) {
    case Turn::Kind::kCollective:
      return fmt::format("call {}", turn.number);
    case Turn::Kind::kSend:
      return fmt::format("it received message {} of rank {}", turn.number, own_rank);
    case Turn::Kind::kReceive:
      return fmt::format("it sent message {} to rank {}", turn.number, own_rank);
  }
  return {};
}

}  // namespace

std::string describe(const Absence& absence, uint32_t own_rank, const std::string& call) {
  const int gone = absence.departure.rank;
  return fmt::format(
      "rank {} left before {}{}; rank {} {}; every rank must make the same calls before its communicator "
      "ends: look for an early return or an exception on rank {}",
      gone, describe(absence.turn, own_rank), call.empty() ? "" : fmt::format(" ({})", call), gone,
      absence.departure.did, gone);
}

std::atomic<uint64_t>& Attendance::counter(Turn::Kind kind, uint32_t peer) {
  if (kind == Turn::Kind::kCollective) return collectives_;
  return kind == Turn::Kind::kSend ? traffic_[peer].sent : traffic_[peer].received;
}

Turn Attendance::count(Turn::Kind kind, uint32_t peer) {
  std::atomic<uint64_t>& made = counter(kind, peer);
  const uint64_t number = made.load(std::memory_order_relaxed) + 1;
  made.store(number, std::memory_order_relaxed);
  return {kind, peer, number};
}

void Attendance::uncount(Turn::Kind kind, uint32_t peer) {
  std::atomic<uint64_t>& made = counter(kind, peer);
  made.store(made.load(std::memory_order_relaxed) - 1, std::memory_order_relaxed);
}

uint64_t Attendance::count_of(Turn::Kind kind, uint32_t peer) const {
  if (kind == Turn::Kind::kCollective) return collectives();
  const Traffic& traffic = traffic_[peer];
  return (kind == Turn::Kind::kSend ? traffic.sent : traffic.received).load(std::memory_order_relaxed);
}

void Attendance::add(const bootstrap::Departure& departure) {
  const std::lock_guard lock(mutex_);
  departures_.push_back(departure);
  left_.fetch_add(1, std::memory_order_acq_rel);
}

bool Attendance::has_left(uint32_t rank) const {
  if (!any_left()) return false;
  const std::lock_guard lock(mutex_);
  return std::any_of(departures_.begin(), departures_.end(),
                     [&](const bootstrap::Departure& departure) { return departure.rank == static_cast<int>(rank); });
}

std::vector<bootstrap::Departure> Attendance::departures() const {
  if (!any_left()) return {};
  const std::lock_guard lock(mutex_);
  return departures_;
}

uint32_t Attendance::first_present() const {
  uint32_t rank = 0;
  while (has_left(rank)) ++rank;
  return rank;
}

std::optional<Absence> Attendance::missing_in(const Turn& turn) const {
  const std::lock_guard lock(mutex_);
  for (const bootstrap::Departure& departure : departures_) {
    if (misses(departure, turn)) return Absence{departure, turn};
  }
  return std::nullopt;
}

std::optional<Absence> Attendance::missing_in_any() const {
  if (left_.fetch_add(0, std::memory_order_acq_rel) == 0) return std::nullopt;
  const std::lock_guard lock(mutex_);
  for (const bootstrap::Departure& departure : departures_) {
    const auto peer = static_cast<uint32_t>(departure.rank);
    const Traffic& traffic = traffic_[peer];
    for (const Turn& latest : {Turn{Turn::Kind::kCollective, 0, collectives()},
                               Turn{Turn::Kind::kSend, peer, traffic.sent.load(std::memory_order_relaxed)},
                               Turn{Turn::Kind::kReceive, peer, traffic.received.load(std::memory_order_relaxed)}}) {
      if (!misses(departure, latest)) continue;
      return Absence{departure, {latest.kind, latest.peer, matched(departure, latest.kind) + 1}};
    }
  }
  return std::nullopt;
}

bootstrap::Ending Attendance::ending(std::string did) const {
  bootstrap::Ending ending{collectives(), std::move(did), {}, {}};
  for (size_t peer = 0; peer < traffic_.size(); ++peer) {
    const uint64_t sent = traffic_[peer].sent.load(std::memory_order_relaxed);
    const uint64_t received = traffic_[peer].received.load(std::memory_order_relaxed);
    if (sent + received > 0) ending.traffic.push_back({static_cast<int32_t>(peer), 0, sent, received});
  }
  return ending;
}

}  // namespace tutti::backend
