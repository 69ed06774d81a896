// SPDX-License-Identifier: Apache-2.0
#include "rails.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace tutti::net_socket {

Rails::Rails(std::vector<RailStream> streams, bool sends, const Shared& shared)
    : shared_(shared), rail_limit_(silence_limit(shared.grace / std::max<size_t>(1, streams.size()))) {
  for (RailStream& stream : streams)
    rails_.push_back(std::make_unique<Rail>(stream.index, std::move(stream.socket), sends, shared));
  uint64_t moves = 0;
  for (const auto& rail : rails_) note(*rail, rail->write(moves));  // the names of the interfaces
}

Rails::~Rails() {
  for (const auto& rail : rails_) {
    if (rail->is_live()) rail->say_farewell();
  }
}

size_t Rails::live_count() const {
  return static_cast<size_t>(std::count_if(rails_.begin(), rails_.end(), [](const auto& r) { return r->is_live(); }));
}

Rail& Rails::first_live() {
  return **std::find_if(rails_.begin(), rails_.end(), [](const auto& rail) { return rail->is_live(); });
}

Rail& Rails::least_busy() {
  Rail* best = &first_live();
  for (const auto& rail : rails_) {
    if (rail->is_live() && rail->bytes_under_way() < best->bytes_under_way()) best = rail.get();
  }
  return *best;
}

uint64_t Rails::progress(User& user) {
  if (!failure_.ok()) return 0;
  uint64_t moves = 0;
  for (const auto& rail : rails_) {
    if (rail->is_live()) note(*rail, rail->advance(user, moves));
  }
  if (Clock::now() >= next_judgement_) judge();
  if (!failure_.ok()) return moves;
  if (live_count() == 0) {
    failure_ = ended();
  } else if (replace_lost(user)) {
    moves += write(user);
  }
  return moves;
}

uint64_t Rails::write(User& user) {
  uint64_t moves = 0;
  do {
    for (const auto& rail : rails_) {
      if (rail->is_live() && rail->has_output()) note(*rail, rail->write(moves));
    }
    if (failure_.ok() && live_count() == 0) failure_ = ended();
  } while (failure_.ok() && replace_lost(user));
  return moves;
}

/// Takes the outcome of a rail's progress.
void Rails::note(Rail& rail, const Status& status) {
  if (status.ok() || !rail.is_live()) return;
  rail.lose(status);
  if (status.code() != Code::kRemote && failure_.ok()) failure_ = status;
}

/// True: a rail was lost.
bool Rails::replace_lost(User& user) {
  bool replaced = false;
  for (const auto& rail : rails_) {
    if (rail->state() != Rail::State::kLost || std::exchange(rail->replaced, true)) continue;
    report(*rail);
    user.replace(*rail);
    replaced = true;
  }
  if (replaced) tell_lost();
  return replaced;
}

/// Tells of all lost rails, since a former message may have been lost with its rail.
void Rails::tell_lost() {
  for (const auto& rail : rails_) {
    if (!rail->is_live()) continue;
    for (const auto& lost : rails_) {
      if (lost->state() != Rail::State::kLost) continue;
      Frame frame;
      frame.kind = Frame::kGivenUp;
      frame.number = lost->index();
      rail->post(frame);
    }
  }
}

Status Rails::take(Rail& carrier, const Frame& frame) {
  if (frame.kind == Frame::kFarewell) {
    carrier.set_closed();
    return {};
  }
  const auto found =
      std::find_if(rails_.begin(), rails_.end(), [&](const auto& rail) { return rail->index() == frame.number; });
  if (found == rails_.end() || found->get() == &carrier)
    return {Code::kMismatch, fmt::format("{}: a message about rail {}", carrier.ends(), frame.number)};
  if ((*found)->is_live()) (*found)->lose({Code::kRemote, "the other end has given it up; see the log of that rank"});
  return {};
}

void Rails::judge() {
  const Time now = Clock::now();
  next_judgement_ = now + kJudgeInterval;
  for (const auto& rail : rails_) {
    if (rail->is_live()) judge(*rail, now);
  }
}

void Rails::judge(Rail& rail, Time now) {
  if (live_count() == 1) {
    if (rail.silence() > shared_.limit()) rail.lose({Code::kRemote, reason_of(ETIMEDOUT, shared_.limit())});
    return;
  }
  const std::string why = rail.suspicion(rail_limit_);
  if (why.empty()) return rail.suspect_since.reset();
  if (!rail.suspect_since) rail.suspect_since = now;
  if (confirms(rail, *rail.suspect_since) || rail.silence() > shared_.limit()) rail.lose({Code::kRemote, why});
}

/// Whether another rail has brought a sign of the other host since then. A rail that has not is asked for one: TCP
/// acknowledges any frame.
bool Rails::confirms(const Rail& suspect, Time since) {
  for (const auto& rail : rails_) {
    if (rail.get() == &suspect || !rail->is_live() || rail->link_is_down()) continue;
    if (rail->has_sign_since(since)) return true;
    if (!rail->has_output()) rail->post(rail->name_frame());
  }
  return false;
}

/// Each rail is reported once, however many connections use it.
void Rails::report(const Rail& rail) {
  if (std::any_of(rails_.begin(), rails_.end(), [](const auto& r) { return r->state() == Rail::State::kClosed; }))
    return;  // the other end is closing the connection
  const int32_t level = shared_.reported->is_first(rail.path()) ? TUTTI_LOG_WARN : TUTTI_LOG_DEBUG;
  shared_.host.log(level, fmt::format("the rail {} is lost: {}; its data goes on over {} of {} rails", rail.ends(),
                                      rail.why().text(), live_count(), rails_.size()));
}

Status Rails::ended() const {
  std::string text;
  for (const auto& rail : rails_) {
    if (rail->state() == Rail::State::kClosed)
      return {Code::kRemote, fmt::format("{}: {}", rail->ends(), reason_of(0, shared_.limit()))};
    text += fmt::format("{}{}: {}", text.empty() ? "" : "; ", rail->ends(), rail->why().text());
  }
  return {Code::kRemote, rails_.size() == 1 ? text : fmt::format("{}; all rails are lost", text)};
}

}  // namespace tutti::net_socket
