// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/hub.h"

#include <fmt/format.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>

#include "bootstrap/process.h"
#include "bootstrap/rank_list.h"
#include "log/log.h"

namespace tutti::bootstrap {
namespace {

/// A standby gives up a call later than the primary, so that only one of them decides.
constexpr base::Milliseconds kStandbyPatience(2000);
/// Ranks that end together need not be told of each other's ending by the standby, too.
constexpr base::Milliseconds kEndingPause(100);
/// The death of a process is known to both hubs within this time. After it a lost connection is the failure.
constexpr base::Milliseconds kVerdictPause(2000);
/// When a rank may lack a result that other ranks have: its parent is stopped, or it is busy. At most half of the
/// time-out of a call, so that a deadline names only the ranks that are stopped.
constexpr base::Milliseconds kPatienceWithParents(5000);
constexpr size_t kMostBytesAhead = size_t{8} << 20;

RankProcess this_process() {
  const std::string host = host_name();
  return {host, origin_of(host, static_cast<uint32_t>(::getpid())), process_token()};
}

}  // namespace

Result<base::SocketAddress> Hub::serve(Poller& poller, const base::SocketAddress& address, const Secret& secret) {
  return start_on(poller, address, secret, [](const auto&) {});
}

Result<base::SocketAddress> Hub::serve_standby(Poller& poller, const base::SocketAddress& address, const Secret& secret,
                                               const Lineup& lineup, int rank_count, std::weak_ptr<Hub>& made) {
  return start_on(poller, address, secret, [&](const std::shared_ptr<Hub>& hub) {
    hub->stand_by(lineup, rank_count);
    made = hub;
  });
}

Result<base::SocketAddress> Hub::serve_in_reserve(Poller& poller, const base::SocketAddress& address,
                                                  const Secret& secret, std::weak_ptr<Hub>& made) {
  return start_on(poller, address, secret, [&](const std::shared_ptr<Hub>& hub) {
    hub->in_reserve_ = true;
    made = hub;
  });
}

Result<base::SocketAddress> Hub::start_on(Poller& poller, const base::SocketAddress& address, const Secret& secret,
                                          const std::function<void(const std::shared_ptr<Hub>&)>& prepare) {
  return Acceptor::serve(poller, address, [&](std::shared_ptr<Acceptor> acceptor) -> Status {
    const auto hub = std::make_shared<Hub>(poller, std::move(acceptor), secret);
    prepare(hub);
    TUTTI_TRY(hub->open());
    poller.own(hub);
    return {};
  });
}

Hub::Hub(Poller& poller, std::shared_ptr<Acceptor> acceptor, const Secret& secret)
    : poller_(poller), acceptor_(std::move(acceptor)), secret_(secret) {
  lineup_.primary.origin = this_process().origin;
}

Status Hub::open() {
  const auto opened = acceptor_->open_for(secret_, [this](const auto& link, const Hello& hello, const Header& header) {
    return admit(link, hello, header);
  });
  if (!opened.ok()) {
    acceptor_.reset();  // the room belongs to a different hub
    return opened.status();
  }
  tag_ = *opened;
  if (in_reserve_) acceptor_->expect_few_for(tag_);
  return {};
}

void Hub::expect_ranks(base::Milliseconds limit) {
  if (acceptor_) acceptor_->expect_many_for(tag_);
  if (phase_ == Phase::kJoining) limit_wait(static_cast<uint32_t>(limit.count()));
}

void Hub::stand_by(const Lineup& lineup, int rank_count) {
  standby_ = true;
  lineup_ = lineup;
  phase_ = Phase::kRunning;
  members_.resize(static_cast<size_t>(rank_count));
  round_.emplace(rank_count);
}

Hub::~Hub() {
  if (acceptor_) acceptor_->close_for(tag_);
  for (const Poller::Timer& timer : {wait_, closing_, endings_, overdue_results_}) poller_.cancel(timer);
  for (const auto& [rank, timer] : verdicts_) poller_.cancel(timer);
  for (const auto& [id, open] : surveys_) poller_.cancel(open.limit);
  tell_all({.kind = Kind::kClosing});
}

// Joining.

Status Hub::admit(const std::shared_ptr<Link>& link, const Hello& hello, const Header& header) {
  if (phase_ == Phase::kFailed) return failure_;
  const std::string host(hello.host.data(), ::strnlen(hello.host.data(), hello.host.size()));
  const std::string origin = origin_of(host, hello.pid);
  if (Status status = check(hello, origin); !status.ok()) {
    if (phase_ == Phase::kJoining) fail_joining(status);
    return status;
  }
  if (members_.empty()) members_.resize(static_cast<size_t>(hello.rank_count));
  const int rank = hello.rank;
  member(rank) = {Member::State::kPresent, link, {host, origin, hello.process}, header.id};
  link->trust(kMaxPayloadBytes, base::Milliseconds(hello.peer_loss_ms));
  link->set_events({.received = [this, rank](Frame frame) { receive(rank, std::move(frame)); },
                    .closed = [this, rank](const Loss& loss) { lose(rank, loss); }});
  const bool complete = ranks_in(Member::State::kAbsent).empty();
  if (standby_) {
    if (complete) close_acceptor({});
    return {};
  }
  limit_wait(header.timeout_ms);
  if (complete) start();
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
                                                         hello.rank, taken.process.origin));
  return Status(Code::kInvalidArgument,
                fmt::format("rank {} joined twice: {} and {}", hello.rank, taken.process.origin, origin));
}

void Hub::start() {
  end_wait();
  phase_ = Phase::kRunning;
  round_.emplace(static_cast<int>(members_.size()));
  std::vector<RankProcess> processes;
  for (const Member& joined : members_) processes.push_back(joined.process);
  RankProcess own = this_process();
  const auto neighbour = std::find_if(processes.begin(), processes.end(),
                                      [&](const RankProcess& rank) { return rank.process == own.process; });
  if (neighbour != processes.end()) own.host = neighbour->host;  // ranks may pretend a different name
  lineup_ = line_up(own, processes);
  roles_ = branch_roles(own.host, processes);
  for (size_t rank = 0; rank < members_.size(); ++rank) {
    Lineup told = lineup_;
    told.branch = roles_[rank];
    members_[rank].link->send({.kind = Kind::kReply, .id = members_[rank].hello_id}, encode(told));
  }
  acceptor_->expect_few_for(tag_);
  close_acceptor(kLingerAfterStart);
}

/// Later, because the acceptor may be the caller.
void Hub::close_acceptor(base::Milliseconds pause) {
  closing_ = poller_.at(base::time_in(pause), [this] {
    acceptor_->close_for(tag_);
    acceptor_.reset();
  });
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
    if (header.kind == Kind::kRely) return rely(rank, frame);
    if (header.kind == Kind::kReport) return take_report(rank, frame);
    if (header.kind == Kind::kBranch && !standby_) return take_branch(rank, std::move(frame));
    if (header.kind == Kind::kParent && has_parent(rank)) {
      member(rank).parent_question = header.id;
      return tell_parent(rank);
    }
    if (header.kind == Kind::kAttach && has_parent(rank)) {
      member(rank).attached = true;
      return;
    }
    if (header.kind == Kind::kDetach && has_parent(rank)) return detach(rank, frame);
  }
  if (header.kind == Kind::kLeave && phase_ != Phase::kJoining) return leave(rank);
  lose(rank, {Loss::Kind::kNonsense, "it sent what no rank sends"});
}

void Hub::call(int rank, Frame frame) {
  Member& caller = member(rank);
  if (!standby_ || (caller.ahead.empty() && !round_->has(rank))) return add_to_round(rank, std::move(frame));
  caller.ahead_bytes += sizeof(Frame) + frame.payload.size();
  if (caller.ahead_bytes > kMostBytesAhead) return lose(rank, {Loss::Kind::kNonsense, "it sent what no rank sends"});
  caller.ahead.push_back(std::move(frame));
}

void Hub::add_to_round(int rank, Frame frame) {
  if (!failure_.ok()) return reply(rank, frame.header.id, failure_);
  const uint32_t timeout_ms = frame.header.timeout_ms;
  const Status added = round_->add(rank, std::move(frame));
  if (const Status gone = absence(); !gone.ok()) return fail_calls(gone);
  if (!added.ok()) return fail_calls(added);
  watch_parents(std::min(kPatienceWithParents, base::Milliseconds(timeout_ms / 2)));
  limit_wait(timeout_ms);
  check_round();
}

void Hub::check_round() {
  if (round_->empty()) return;
  if (round_->complete()) {
    const auto result = std::make_shared<const Bytes>(round_->result());
    for (int rank = 0; rank < static_cast<int>(members_.size()); ++rank)
      reply_to_call(rank, round_->id(rank), Code::kOk, result);
    end_round();
    return watch_parents(kPatienceWithParents);
  }
  if (const Status gone = absence(); !gone.ok()) fail_calls(gone);
}

/// Goes on with the calls that were heard too early.
void Hub::end_round() {
  end_wait();
  stop_watching_parents();
  overdue_ = false;
  round_->clear();
  for (Member& each : members_) each.called_before_ending = false;
  for (int rank = 0; rank < static_cast<int>(members_.size()); ++rank) {
    auto& ahead = member(rank).ahead;
    while (!ahead.empty() && !round_->has(rank)) {
      Frame next = std::move(ahead.front());
      ahead.pop_front();
      member(rank).ahead_bytes -= sizeof(Frame) + next.payload.size();
      add_to_round(rank, std::move(next));
    }
  }
}

Status Hub::absence() const {
  if (!decides()) return {};
  const int count = static_cast<int>(members_.size());
  bool stays = false;  // a rank that has made the open call
  for (int rank = 0; rank < count; ++rank) stays = stays || (round_->has(rank) && !member(rank).ending);
  for (int rank = 0; rank < count; ++rank) {
    const Member& gone = member(rank);
    const bool left = gone.state == Member::State::kLeft && !round_->has(rank);
    if (!left && !(stays && gone.ending && !gone.called_before_ending)) continue;
    return {Code::kRemote, fmt::format("bootstrap {}: rank {} has left{}{}; every rank must make this call before its "
                                       "communicator ends: look for an early return or an exception on rank {}",
                                       round_->name(), rank, gone.ending ? ", which " : "",
                                       gone.ending ? gone.ending->did : "", rank)};
  }
  return {};
}

void Hub::fail_calls(const Status& why) {
  if (failure_.ok()) failure_ = why;
  for (const int rank : ranks_in(Member::State::kPresent))
    if (round_->has(rank)) reply(rank, round_->id(rank), failure_);
  if (left_to_parents_) tell_of_overdue_results();
  end_round();
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
  Bytes result = done.result();
  Code code = Code::kOk;
  if (result.size() > kMaxPayloadBytes) {
    code = Code::kInvalidArgument;
    result = to_bytes(fmt::format("the answers of all ranks have {} bytes together, above the bootstrap's limit of {}",
                                  result.size(), kMaxPayloadBytes));
  }
  const auto shared = std::make_shared<const Bytes>(std::move(result));
  for (const auto& [rank, id] : done.askers())
    member(rank).link->send({.kind = Kind::kReply, .code = static_cast<uint16_t>(code), .id = id}, shared);
}

/// Ranks that leave themselves need not know.
void Hub::take_ending(int rank, const Bytes& payload) {
  auto ending = decode_ending(payload);
  if (!ending.ok()) return lose(rank, {Loss::Kind::kNonsense, "it sent what no rank sends"});
  member(rank).ending = *std::move(ending);
  member(rank).called_before_ending = standby_ && round_->has(rank);
  untold_.push_back(rank);
  if (!standby_) tell_endings();
  if (untold_.size() == 1) endings_ = poller_.at(base::time_in(kEndingPause), [this] { tell_endings(); });
  answer_for(rank, Answer::State::kLeft);
  check_round();
}

void Hub::tell_endings() {
  for (const int rank : std::exchange(untold_, {})) {
    for (const int other : ranks_in(Member::State::kPresent)) {
      if (member(other).ending) continue;
      member(other).link->send({.kind = Kind::kDeparture, .rank = rank},
                               encode(departure_for(*member(rank).ending, rank, other)));
    }
  }
}

void Hub::leave(int rank) {
  member(rank).link->close();
  forget(rank, Member::State::kLeft);
}

void Hub::lose(int rank, const Loss& loss) {
  member(rank).link->close();
  const Status lost(Code::kRemote, text_of_loss(rank, loss));
  if (phase_ == Phase::kJoining) {
    member(rank).state = Member::State::kLost;
    fail_joining(lost);
  } else if (phase_ == Phase::kRunning) {
    announce(FailureKind::kPeerLost, rank, lost);
    forget(rank, Member::State::kLost);
  }
}

std::string Hub::text_of_loss(int rank, const Loss& loss) const {
  const Member& lost = member(rank);
  std::string text = fmt::format("rank {} ({}) is lost: ", rank, lost.process.origin);
  if (loss.kind != Loss::Kind::kBroke) return text + loss.text;
  return text + fmt::format("its connection from {} to the hub at {} in the process of {} broke: {}",
                            lost.link->there(), lost.link->here(), to_text(own_process()), loss.text);
}

/// A rank takes its children, or says why it does not.
void Hub::take_branch(int rank, Frame frame) {
  const std::vector<int>& children = roles_[static_cast<size_t>(rank)].children;
  if (children.empty()) return lose(rank, {Loss::Kind::kNonsense, "it sent what no rank sends"});
  member(rank).branch = std::make_shared<const Bytes>(std::move(frame.payload));
  for (const int child : children) tell_parent(child);
}

/// Answers the rank's question once its parent has said where it takes children.
void Hub::tell_parent(int rank) {
  const auto& branch = member(roles_[static_cast<size_t>(rank)].parent).branch;
  if (member(rank).parent_question == 0 || !branch || member(rank).state != Member::State::kPresent) return;
  member(rank).link->send({.kind = Kind::kReply, .id = std::exchange(member(rank).parent_question, 0)}, branch);
}

/// The rank gets no results from its parent. Without a text, the parent has left or is lost.
void Hub::detach(int rank, const Frame& frame) {
  Member& child = member(rank);
  child.attached = false;
  if (child.held.header.id == frame.header.id) send_held(rank);
  child.held = {};  // the rank has every earlier result
  if (frame.payload.empty() || announced_ || std::exchange(warned_of_branch_, true)) return;
  const int parent = roles_[static_cast<size_t>(rank)].parent;
  log::warn(
      "bootstrap: rank {} ({}) gets no results from rank {} ({}): {}. The hub sends them itself, which takes longer in "
      "large jobs; check that ranks reach each other (bootstrap.interface, firewalls)",
      rank, child.process.origin, parent, member(parent).process.origin, to_text(frame.payload));
}

/// Asks the ranks with parents after this time whether the last result has come.
void Hub::watch_parents(base::Milliseconds patience) {
  const base::Time time = base::time_in(patience);
  if (!left_to_parents_ || time >= overdue_results_.first) return;
  stop_watching_parents();
  overdue_results_ = poller_.at(time, [this] { tell_of_overdue_results(); });
}

void Hub::stop_watching_parents() {
  poller_.cancel(overdue_results_);
  overdue_results_ = {base::kNever, 0};
}

/// A rank that has not made the next call may still wait for the last result, because its parent is stopped.
void Hub::tell_of_overdue_results() {
  stop_watching_parents();
  left_to_parents_ = false;
  for (const int rank : ranks_in(Member::State::kPresent)) {
    const Member& child = member(rank);
    if (child.attached && child.held.payload && !round_->has(rank))
      child.link->send({.kind = Kind::kOverdue, .id = child.held.header.id});
  }
}

void Hub::send_held(int rank) {
  if (const Held held = std::exchange(member(rank).held, {}); held.payload)
    member(rank).link->send(held.header, held.payload);
}

/// A rank has lost the other hub, or waits for it without an answer.
void Hub::rely(int rank, const Frame& frame) {
  member(rank).relies = true;
  if (standby_) send_held(rank);
  relied_ = true;
  if (overdue_) {
    waited_too_long();
  } else {
    check_round();
  }
  const auto why = static_cast<Rely>(frame.header.code);
  if (why == Rely::kNoAnswer) return;
  note_end_of_other_hub(why);
  if (why == Rely::kClosed || verdicts_.contains(rank)) return;
  verdicts_[rank] = poller_.at(base::time_in(kVerdictPause),
                               [this, rank, text = to_text(frame.payload)] { judge_other_hub(rank, text); });
}

/// The other hub has told this rank of a failure, of which this hub may not know yet. The rank is about to leave
/// because of it: the other ranks must learn the failure first.
void Hub::take_report(int rank, const Frame& frame) {
  const FailureReport report{static_cast<FailureKind>(frame.header.code), frame.header.rank, to_text(frame.payload)};
  const bool told_by_hubs = report.kind == FailureKind::kPeerLost || report.kind == FailureKind::kAborted;
  if (!told_by_hubs || report.rank < 0 || report.rank >= static_cast<int>(members_.size()))
    return lose(rank, {Loss::Kind::kNonsense, "it sent what no rank sends"});
  announce(report.kind, report.rank, report.status());
}

/// A process that died has been told by now. If its ranks are still here, the connection of this rank is the failure.
void Hub::judge_other_hub(int rank, const std::string& text) {
  if (member(rank).state != Member::State::kPresent) return;
  for (const int other : other_process().ranks) {
    if (member(other).state != Member::State::kPresent || member(other).ending) continue;
    return announce(FailureKind::kPeerLost, rank,
                    Status(Code::kRemote, fmt::format("rank {} ({}) has lost the hub in the process of {}: {}", rank,
                                                      member(rank).process.origin, to_text(other_process()), text)));
  }
}

void Hub::note_end_of_other_hub(Rely why) {
  if (std::exchange(other_ended_, true) || why == Rely::kBroke) return;
  if (why == Rely::kEnded && other_process().ranks.empty())
    return log::warn(
        "bootstrap: the process that made the unique id ({}) has ended; the hub in the process of {} serves the ranks "
        "from now on",
        other_process().origin, to_text(own_process()));
  log::info("bootstrap: the hub in the process of {} has ended; the hub in the process of {} serves on",
            to_text(other_process()), to_text(own_process()));
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
  const base::Time deadline = base::time_in(standby_ ? timeout + kStandbyPatience : timeout);
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
  overdue_ = true;
  if (!decides()) return;
  const std::string limit = base::to_text(wait_limit_);
  if (phase_ == Phase::kJoining) {
    fail_joining(Status(Code::kTimeout,
                        fmt::format("{} of {} did not join within {}{}", rank_list(ranks_in(Member::State::kAbsent)),
                                    members_.size(), limit, acceptor_->text_of_refusals(tag_))));
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
  reply_to_call(rank, id, why.code(), std::make_shared<const Bytes>(to_bytes(why.text())));
}

void Hub::reply_to_call(int rank, uint32_t id, Code code, std::shared_ptr<const Bytes> payload) {
  const Header header = {.kind = Kind::kReply, .code = static_cast<uint16_t>(code), .id = id};
  Member& caller = member(rank);
  const bool passed_on = caller.attached && code == Code::kOk && payload->size() >= kLeastBytesForTree;
  caller.held = {header, std::move(payload)};
  left_to_parents_ = left_to_parents_ || passed_on;
  if (!passed_on && (!standby_ || caller.relies)) send_held(rank);
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
