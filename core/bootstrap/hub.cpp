// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/hub.h"

#include <fmt/format.h>
#include <string.h>

#include "bootstrap/rank_list.h"

namespace tutti::bootstrap {

void Hub::serve(Poller& poller, base::Fd listener, const Secret& secret, base::Milliseconds hello_limit) {
  poller.run([&] { poller.own(std::make_shared<Hub>(poller, std::move(listener), secret, hello_limit)); });
}

Hub::Hub(Poller& poller, base::Fd listener, const Secret& secret, base::Milliseconds hello_limit)
    : poller_(poller),
      door_(poller, std::move(listener), secret, hello_limit,
            [this](const auto& link, const Hello& hello, const Header& header) { return admit(link, hello, header); }) {
}

Hub::~Hub() {
  poller_.cancel(wait_);
  for (const auto& [id, open] : surveys_) poller_.cancel(open.limit);
  tell_all({.kind = Kind::kClosing});
}

// Joining.

Status Hub::admit(const std::shared_ptr<Link>& link, const Hello& hello, const Header& header) {
  if (phase_ == Phase::kFailed) return failure_;
  const std::string origin = fmt::format(
      "{} pid {}", std::string_view(hello.host.data(), ::strnlen(hello.host.data(), hello.host.size())), hello.pid);
  if (Status status = check(hello, origin); !status.ok()) {
    if (phase_ == Phase::kJoining) fail_joining(status);
    return status;
  }
  if (members_.empty()) members_.resize(static_cast<size_t>(hello.rank_count));
  const int rank = hello.rank;
  member(rank) = {Member::State::kPresent, link, origin, header.id, {}};
  link->trust(kMaxPayloadBytes, base::Milliseconds(hello.peer_loss_ms));
  link->set_events({.received = [this, rank](Frame frame) { receive(rank, std::move(frame)); },
                    .closed = [this, rank](const std::string& why) { lose(rank, why); }});
  limit_wait(header.timeout_ms);
  if (ranks_in(Member::State::kAbsent).empty()) start();
  return {};
}

Status Hub::check(const Hello& hello, const std::string& origin) const {
  if (hello.wire_version != kWireVersion)
    return Status(Code::kVersionMismatch,
                  fmt::format("rank {} speaks bootstrap version {}, the hub version {}: install the same Tutti on all "
                              "nodes",
                              hello.rank, hello.wire_version, kWireVersion));
  const int expected = members_.empty() ? hello.rank_count : static_cast<int>(members_.size());
  if (hello.rank_count != expected)
    return Status(Code::kMismatch,
                  fmt::format("ranks disagree on their number: rank {} ({}) says {}, {} said {}", hello.rank, origin,
                              hello.rank_count, rank_list(ranks_in(Member::State::kPresent)), expected));
  if (expected < 1 || expected > kMaxRanks)
    return Status(Code::kInvalidArgument, fmt::format("{} ranks: the bootstrap takes 1 to {}", expected, kMaxRanks));
  if (hello.rank < 0 || hello.rank >= expected)
    return Status(Code::kInvalidArgument,
                  fmt::format("rank {} ({}) is outside 0..{}", hello.rank, origin, expected - 1));
  if (members_.empty()) return {};
  const Member& taken = members_[static_cast<size_t>(hello.rank)];
  if (taken.state == Member::State::kAbsent) return {};
  if (phase_ == Phase::kRunning)
    return Status(Code::kFailedPrecondition, fmt::format("rank {} has joined before ({}): a unique id serves one "
                                                         "communicator, make a new one",
                                                         hello.rank, taken.origin));
  return Status(Code::kInvalidArgument,
                fmt::format("rank {} joined twice: {} and {}", hello.rank, taken.origin, origin));
}

void Hub::start() {
  end_wait();
  phase_ = Phase::kRunning;
  round_.emplace(static_cast<int>(members_.size()));
  for (int rank = 0; rank < static_cast<int>(members_.size()); ++rank) reply(rank, member(rank).hello_id, {});
}

void Hub::fail_joining(const Status& why) {
  end_wait();
  phase_ = Phase::kFailed;
  failure_ = why;
  for (const int rank : ranks_in(Member::State::kPresent)) reply(rank, member(rank).hello_id, why);
  wait_ = poller_.at(base::time_in(kLingerAfterFailure), [this] { poller_.release(this); });
}

// Serving the members.

void Hub::receive(int rank, Frame frame) {
  const Header& header = frame.header;
  if (phase_ == Phase::kRunning) {
    if (header.kind == Kind::kCall) return call(rank, std::move(frame));
    if (header.kind == Kind::kQuery) return query(rank, std::move(frame));
    if (header.kind == Kind::kAnswer)
      return answer(header.id, rank, {Answer::State::kAnswered, std::move(frame.payload)});
    if (header.kind == Kind::kAbort)
      return announce(FailureKind::kAborted, rank, Status(Code::kAborted, to_text(frame.payload)));
    if (header.kind == Kind::kEnding && !member(rank).ending) return take_ending(rank, frame.payload);
  }
  if (header.kind == Kind::kLeave && phase_ != Phase::kJoining) return leave(rank);
  lose(rank, "it sent what no rank sends");
}

void Hub::call(int rank, Frame frame) {
  if (!failure_.ok()) return reply(rank, frame.header.id, failure_);
  const uint32_t timeout_ms = frame.header.timeout_ms;
  const Status added = round_->add(rank, std::move(frame));
  if (const Status gone = absence(); !gone.ok()) return fail_calls(gone);
  if (!added.ok()) return fail_calls(added);
  limit_wait(timeout_ms);
  check_round();
}

void Hub::check_round() {
  if (round_->empty()) return;
  if (round_->complete()) {
    end_wait();
    const auto result = std::make_shared<const Bytes>(round_->result());
    for (int rank = 0; rank < static_cast<int>(members_.size()); ++rank)
      member(rank).link->send({.kind = Kind::kReply, .id = round_->id(rank)}, result);
    return round_->clear();
  }
  if (const Status gone = absence(); !gone.ok()) fail_calls(gone);
}

Status Hub::absence() const {
  const int count = static_cast<int>(members_.size());
  bool stays = false;  // a rank that has made the open call
  for (int rank = 0; rank < count; ++rank) stays = stays || (round_->has(rank) && !member(rank).ending);
  for (int rank = 0; rank < count; ++rank) {
    const Member& gone = member(rank);
    const bool left = gone.state == Member::State::kLeft && !round_->has(rank);
    if (!left && !(stays && gone.ending)) continue;
    return {Code::kRemote, fmt::format("bootstrap {}: rank {} has left{}{}; every rank must make this call before its "
                                       "communicator ends: look for an early return or an exception on rank {}",
                                       round_->name(), rank, gone.ending ? ", which " : "",
                                       gone.ending ? gone.ending->did : "", rank)};
  }
  return {};
}

void Hub::fail_calls(const Status& why) {
  end_wait();
  if (failure_.ok()) failure_ = why;
  for (const int rank : ranks_in(Member::State::kPresent))
    if (round_->has(rank)) reply(rank, round_->id(rank), failure_);
  round_->clear();
}

void Hub::query(int rank, Frame frame) {
  const Survey::Asker asker{rank, frame.header.id};
  for (auto& [id, open] : surveys_) {
    if (open.survey.asks(frame.payload)) return open.survey.add(asker);
  }
  const uint32_t id = ++survey_count_;
  const base::Milliseconds limit(frame.header.timeout_ms);
  const auto timer = poller_.at(base::time_in(limit), [this, id] { close_survey(id); });
  const std::string question = to_text(frame.payload);
  surveys_.emplace(id, OpenSurvey{Survey(asker, std::move(frame.payload), static_cast<int>(members_.size())), timer});
  for (const int gone : ranks_in(Member::State::kLeft)) answer(id, gone, {Answer::State::kLeft, {}});
  for (const int gone : ranks_in(Member::State::kLost)) answer(id, gone, {Answer::State::kLost, {}});
  for (const int rank_here : ranks_in(Member::State::kPresent))
    if (member(rank_here).ending) answer(id, rank_here, {Answer::State::kLeft, {}});
  tell_all({.kind = Kind::kAsk, .id = id}, question);
}

void Hub::answer(uint32_t survey, int rank, Answer answer) {
  const auto open = surveys_.find(survey);
  if (open == surveys_.end()) return;  // too late
  open->second.survey.answer(rank, std::move(answer));
  if (open->second.survey.complete()) close_survey(survey);
}

/// The answer of a rank that is gone, to all open surveys.
void Hub::answer_for(int gone, Answer::State state) {
  for (auto open = surveys_.begin(); open != surveys_.end();) {
    const uint32_t id = open++->first;
    answer(id, gone, {state, {}});
  }
}

void Hub::close_survey(uint32_t survey) {
  const auto closed = surveys_.extract(survey);
  poller_.cancel(closed.mapped().limit);
  const Survey& done = closed.mapped().survey;
  const auto result = std::make_shared<const Bytes>(done.result());
  for (const auto& [rank, id] : done.askers()) member(rank).link->send({.kind = Kind::kReply, .id = id}, result);
}

/// Ranks that leave themselves need not know.
void Hub::take_ending(int rank, const Bytes& payload) {
  auto ending = decode_ending(payload);
  if (!ending.ok()) return lose(rank, "it sent what no rank sends");
  member(rank).ending = *std::move(ending);
  for (const int other : ranks_in(Member::State::kPresent)) {
    if (member(other).ending) continue;
    member(other).link->send({.kind = Kind::kDeparture, .rank = rank},
                             encode(departure_for(*member(rank).ending, rank, other)));
  }
  answer_for(rank, Answer::State::kLeft);
  check_round();
}

void Hub::leave(int rank) {
  member(rank).link->close();
  forget(rank, Member::State::kLeft);
}

void Hub::lose(int rank, const std::string& why) {
  member(rank).link->close();
  const Status lost(Code::kRemote, fmt::format("rank {} ({}) is lost: {}", rank, member(rank).origin, why));
  if (phase_ == Phase::kJoining) {
    member(rank).state = Member::State::kLost;
    fail_joining(lost);
  } else if (phase_ == Phase::kRunning) {
    announce(FailureKind::kPeerLost, rank, lost);
    forget(rank, Member::State::kLost);
  }
}

void Hub::forget(int rank, Member::State state) {
  member(rank).state = state;
  if (phase_ != Phase::kRunning) return;
  answer_for(rank, state == Member::State::kLeft ? Answer::State::kLeft : Answer::State::kLost);
  check_round();
  if (ranks_in(Member::State::kPresent).empty()) poller_.release(this);
}

// Deadlines.

void Hub::limit_wait(uint32_t timeout_ms) {
  const base::Milliseconds timeout(timeout_ms);
  const base::Time deadline = base::time_in(timeout);
  if (deadline >= wait_.first) return;
  end_wait();
  wait_limit_ = timeout;
  wait_ = poller_.at(deadline, [this] { waited_too_long(); });
}

void Hub::end_wait() {
  poller_.cancel(wait_);
  wait_ = {base::kNever, 0};
}

void Hub::waited_too_long() {
  const std::string limit = base::to_text(wait_limit_);
  if (phase_ == Phase::kJoining) {
    fail_joining(
        Status(Code::kTimeout, fmt::format("{} of {} did not join within {}",
                                           rank_list(ranks_in(Member::State::kAbsent)), members_.size(), limit)));
  } else {
    fail_calls(Status(Code::kTimeout, fmt::format("bootstrap {}: {} of {} did not call it within {}", round_->name(),
                                                  rank_list(round_->missing()), members_.size(), limit)));
  }
}

// Telling the members.

std::vector<int> Hub::ranks_in(Member::State state) const {
  std::vector<int> ranks;
  for (size_t rank = 0; rank < members_.size(); ++rank)
    if (members_[rank].state == state) ranks.push_back(static_cast<int>(rank));
  return ranks;
}

void Hub::reply(int rank, uint32_t id, const Status& why) {
  member(rank).link->send({.kind = Kind::kReply, .code = static_cast<uint16_t>(why.code()), .id = id},
                          to_bytes(why.text()));
}

void Hub::tell_all(const Header& header, std::string_view text) {
  const auto payload = std::make_shared<const Bytes>(to_bytes(text));
  for (const int rank : ranks_in(Member::State::kPresent)) member(rank).link->send(header, payload);
}

void Hub::announce(FailureKind kind, int rank, const Status& why) {
  if (announced_) return;
  announced_ = true;
  tell_all({.kind = Kind::kFailure, .code = static_cast<uint16_t>(kind), .rank = rank}, why.text());
  fail_calls(why);
}

}  // namespace tutti::bootstrap
