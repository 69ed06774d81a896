// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/client.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "log/log.h"

namespace tutti::bootstrap {
namespace {

/// The hub knows the deadlines and names the ranks that missed them; its answer may come later by this time.
constexpr base::Milliseconds kGrace(5000);
/// For a process that was frozen: it first reads the answers that came in the meantime.
constexpr base::Milliseconds kThaw(2000);
constexpr base::Milliseconds kGoodbyeLimit(2000);
/// When a stopped hub counts as silent: its own answer to a missed deadline would have come by then.
constexpr base::Milliseconds kHubPatience(3000);
/// How long a rank whose hubs have closed waits for the parent to pass on the last result.
constexpr base::Milliseconds kParentPatience(5000);
/// How much later than its deadline the answers to a question may come.
constexpr base::Milliseconds kQuestionGrace(1000);

base::Time later(base::Time deadline, base::Milliseconds pause) {
  return deadline > base::kNever - pause ? base::kNever : deadline + pause;
}

}  // namespace

Result<Bytes> Bootstrap::Client::exchange(Header header, Bytes payload, base::Time deadline) {
  std::unique_lock lock(mutex_);
  if (Status status = usable(header.kind == Kind::kQuery); !status.ok()) return status;
  header.id = open_exchange();
  header.timeout_ms = static_cast<uint32_t>(base::left_until(deadline).count());
  if (header.kind == Kind::kCall) call_ = {header.id, call_.number + 1};
  send(header, std::move(payload));
  auto answer = wait_for_answer(lock, header, deadline);
  if (answer.ok() && header.kind == Kind::kCall && !warning_.empty()) {
    const std::string warning = std::exchange(warning_, {});
    lock.unlock();
    log::warn("{}", warning);
  }
  return answer;
}

void Bootstrap::Client::set_callbacks(Callbacks callbacks) {
  poller_->run([&] {
    callbacks_ = std::move(callbacks);
    questions_.drop();
    poller_->cancel(tick_);
    if (callbacks_.on_tick && callbacks_.tick.count() > 0) schedule_tick();
    report_failure();
    report_departures();
  });
}

void Bootstrap::Client::ask(Bytes question, base::Time deadline, Answered done) {
  post([this, question = std::move(question), deadline, done = std::move(done)]() mutable {
    Header header{.kind = Kind::kQuery};
    {
      const std::lock_guard lock(mutex_);
      if (Status status = usable(true); !status.ok()) return done(status);
      header.id = ++exchanges_;
    }
    if (due_end_) return done(Status(Code::kRemote, *due_end_));  // no hub serves any more
    header.timeout_ms = static_cast<uint32_t>(base::left_until(deadline).count());
    questions_.open(header.id, deadline + kQuestionGrace, std::move(done));
    send_now(header, std::make_shared<const Bytes>(std::move(question)));
  });
}

std::optional<FailureReport> Bootstrap::Client::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

bool Bootstrap::Client::all_know_failure() const {
  const std::lock_guard lock(mutex_);
  return failure_ || calls_failed_;
}

bool Bootstrap::Client::hears() const {
  const std::lock_guard lock(mutex_);
  return over_.ok();
}

std::optional<FailureReport> Bootstrap::Client::wait_for_failure(base::Time deadline) const {
  std::unique_lock lock(mutex_);
  changed_.wait_until(lock, deadline, [this] { return failure_ || !over_.ok(); });
  return failure_;
}

void Bootstrap::Client::post_abort(std::string_view text) {
  fail({FailureKind::kAborted, rank(), std::string(text)});
  const std::lock_guard lock(mutex_);
  if (over_.ok()) send({.kind = Kind::kAbort}, to_bytes(text.substr(0, kMaxPayloadBytes)));
}

void Bootstrap::Client::announce(const Ending& ending) {
  const std::lock_guard lock(mutex_);
  if (joined_ && over_.ok()) send({.kind = Kind::kEnding}, encode(ending));
}

void Bootstrap::Client::leave() {
  {
    std::unique_lock lock(mutex_);
    if (std::exchange(left_, true)) return;
    if (joined_ && poller_->running()) {
      const bool has_hub = over_.ok();
      if (has_hub) {
        over_ = Status(Code::kFailedPrecondition, "this rank has left the bootstrap");
        changed_.notify_all();
        send({.kind = Kind::kLeave}, {});
      }
      post([this] { finish_passing_on(); });
      changed_.wait_until(lock, base::time_in(kGoodbyeLimit),
                          [&] { return passed_on_ && (!has_hub || connections_ == 0); });
    }
  }
  set_callbacks({});
  poller_->run([&] {
    poller_->cancel(patience_);
    branch_.reset();
    for (HubEnd& hub : hubs_)
      if (hub.link) hub.link->close();
  });
}

void Bootstrap::Client::post(Poller::Task task) {
  poller_->post([alive = alive_, task = std::move(task)] {
    if (*alive) task();
  });
}

void Bootstrap::Client::tell_primary(const Header& header, Bytes bytes) {
  post([this, header, bytes = std::make_shared<const Bytes>(std::move(bytes))] {
    if (const HubEnd& hub = hubs_[kPrimary]; hub.serves()) hub.link->send(header, bytes);
  });
}

void Bootstrap::Client::detached(const std::string& why) {
  // The id is read when the frame is sent: a call may open in between.
  post([this, why] {
    end_if_due();
    if (const HubEnd& hub = hubs_[kPrimary]; hub.serves())
      hub.link->send({.kind = Kind::kDetach, .id = open_call().id}, to_bytes(why));
  });
}

Bootstrap::Client::Call Bootstrap::Client::open_call() const {
  const std::lock_guard lock(mutex_);
  const auto waiting = answers_.find(call_.id);
  return waiting != answers_.end() && !waiting->second ? call_ : Call();
}

uint32_t Bootstrap::Client::number_of_call(uint32_t id) const {
  const std::lock_guard lock(mutex_);
  return id == call_.id ? call_.number : 0;
}

void Bootstrap::Client::pass_on(const Frame& frame) const {
  if (branch_) branch_->pass_on(number_of_call(frame.header.id), frame.payload);
}

void Bootstrap::Client::finish_passing_on() {
  const auto note = [this] {
    const std::lock_guard lock(mutex_);
    passed_on_ = true;
    changed_.notify_all();
  };
  if (branch_) return branch_->when_passed_on(note);
  note();
}

void Bootstrap::Client::take_result(Frame frame) {
  const Call call = open_call();
  if (frame.header.id != call.number) return;  // the primary was faster, or the call has reached its deadline
  branch_->pass_on(call.number, frame.payload);
  deliver(call.id, std::move(frame));
  end_if_due();
}

uint32_t Bootstrap::Client::open_exchange() {
  answers_[++exchanges_];
  return exchanges_;
}

Result<Bytes> Bootstrap::Client::wait_for_answer(std::unique_lock<std::mutex>& lock, const Header& header,
                                                 base::Time deadline) {
  const bool ignores_failure = header.kind == Kind::kQuery;
  const std::optional<Frame>& answer = answers_[header.id];
  const auto done = [&] { return answer || !usable(ignores_failure).ok(); };
  if (header.kind == Kind::kParent) {
    changed_.wait_until(lock, deadline, done);
  } else if (!changed_.wait_until(lock, later(deadline, kHubPatience), done)) {
    post([this] { rely(hubs_[kStandby], Rely::kNoAnswer, {}); });
    changed_.wait_until(lock, std::max(later(deadline, kGrace), base::time_in(kThaw)), done);
  }
  std::optional<Frame> received = std::move(answers_.extract(header.id).mapped());
  if (received) {
    if (const auto code = static_cast<Code>(received->header.code); code != Code::kOk) {
      calls_failed_ = calls_failed_ || header.kind == Kind::kCall;
      return Status(code, to_text(received->payload));
    }
    return std::move(received->payload);
  }
  post([this] { end_if_due(); });
  if (Status status = usable(ignores_failure); !status.ok()) return status;
  return Status(Code::kTimeout, "the hub does not answer: its process is stopped, or cannot be reached");
}

void Bootstrap::Client::send(const Header& header, Bytes payload) {
  post([this, header, shared = std::make_shared<const Bytes>(std::move(payload))] { send_now(header, shared); });
}

void Bootstrap::Client::send_now(const Header& header, const std::shared_ptr<const Bytes>& payload) const {
  for (const HubEnd& hub : hubs_)
    if (hub.serves()) hub.link->send(header, payload);
}

Status Bootstrap::Client::usable(bool ignores_failure) const {
  if (!poller_->running()) return {Code::kFailedPrecondition, "a forked child cannot use its parent's bootstrap"};
  if (failure_ && !ignores_failure) return failure_->status();
  return over_;
}

void Bootstrap::Client::fail(FailureReport report) {
  {
    const std::lock_guard lock(mutex_);
    if (failure_) return;
    failure_ = std::move(report);
    changed_.notify_all();
  }
  post([this] { report_failure(); });
}

void Bootstrap::Client::receive(HubEnd& hub, Frame frame) {
  const Header header = frame.header;
  if (header.kind == Kind::kReply) {
    if (questions_.take(frame)) return;
    if (&hub == &hubs_[kPrimary] && header.code == static_cast<uint16_t>(Code::kOk)) pass_on(frame);
    deliver(header.id, std::move(frame));
  } else if (header.kind == Kind::kFailure) {
    // A standby that some rank could not reach takes this rank for lost; the primary knows better.
    if (hub.in_use) take_failure(hub, frame);
  } else if (header.kind == Kind::kAsk) {
    Bytes answer = callbacks_.answer ? callbacks_.answer(frame.payload) : Bytes();
    answer.resize(std::min(answer.size(), kMaxAnswerBytes));
    hub.link->send({.kind = Kind::kAnswer, .id = header.id}, std::make_shared<const Bytes>(std::move(answer)));
  } else if (header.kind == Kind::kDeparture) {
    take_departure(hub, frame);
  } else if (header.kind == Kind::kOverdue) {
    if (branch_ && open_call().id == header.id) branch_->detach("it did not pass a result on in time");
  } else if (header.kind == Kind::kClosing) {
    hub.closing = true;
    if (!hub.in_use) return;
    if (HubEnd& other = other_than(hub); other.serves()) return rely(other, Rely::kClosed, {});
    end(fmt::format("the hub at {} has closed: the process of {} has ended", hub.address, to_text(hub.process)));
  }
}

void Bootstrap::Client::take_failure(HubEnd& hub, const Frame& frame) {
  const Header& header = frame.header;
  if (HubEnd& other = other_than(hub); other.serves() && !failure())
    other.link->send({.kind = Kind::kReport, .code = header.code, .rank = header.rank}, frame.payload);
  fail({static_cast<FailureKind>(header.code), header.rank, to_text(frame.payload)});
}

void Bootstrap::Client::deliver(uint32_t id, Frame frame) {
  const std::lock_guard lock(mutex_);
  if (const auto waiting = answers_.find(id); waiting != answers_.end() && !waiting->second)
    waiting->second = std::move(frame);
  changed_.notify_all();
}

void Bootstrap::Client::schedule_tick() {
  tick_ = poller_->at(base::time_in(callbacks_.tick), [this] {
    schedule_tick();
    callbacks_.on_tick();
  });
}

void Bootstrap::Client::rely(HubEnd& hub, Rely why, std::string_view text) {
  if (hub.serves()) hub.link->send({.kind = Kind::kRely, .code = static_cast<uint16_t>(why)}, to_bytes(text));
}

void Bootstrap::Client::lose(HubEnd& hub, const Loss& loss) {
  {
    const std::lock_guard lock(mutex_);
    --connections_;
    changed_.notify_all();
    if (left_) return;
  }
  if (!hub.in_use) return;
  if (HubEnd& other = other_than(hub); other.serves()) {
    const bool ended = loss.kind == Loss::Kind::kEnded;
    if (!hub.closing) rely(other, ended ? Rely::kEnded : Rely::kBroke, text_of_break(hub, loss));
    return;
  }
  lose_last(hub, loss);
}

std::string Bootstrap::Client::text_of_break(const HubEnd& hub, const Loss& loss) const {
  return fmt::format("its connection from {} to {} broke: {}", hub.link->here(), hub.link->there(), loss.text);
}

void Bootstrap::Client::lose_last(HubEnd& hub, const Loss& loss) {
  bool joined = false;
  {
    const std::lock_guard lock(mutex_);
    joined = joined_;
  }
  questions_.fail(Status(Code::kRemote, fmt::format("the hub at {} is gone: {}", hub.address, loss.text)));
  std::vector<int>& ranks = hub.process.ranks;
  const bool had_ranks = !ranks.empty();
  std::erase_if(ranks, [this](int rank) { return departed_.contains(rank); });
  const bool in_order = hub.closing || (had_ranks && ranks.empty());
  if (joined && !in_order) {
    const bool named = loss.kind == Loss::Kind::kEnded && had_ranks;
    const std::string what =
        named ? fmt::format("{} {} lost: {}", to_text(hub.process), ranks.size() > 1 ? "are" : "is", loss.text)
              : fmt::format("rank {} has lost the hub in the process of {}: {}", rank(), to_text(hub.process),
                            text_of_break(hub, loss));
    fail({named ? FailureKind::kPeerLost : FailureKind::kHubLost, named ? ranks.front() : -1, what});
  }
  end(fmt::format("the hub at {} closed the connection: {}", hub.address, loss.text));
}

void Bootstrap::Client::end(std::string text) {
  if (due_end_) return;  // the first reason counts
  const bool waits = branch_ && branch_->attached() && open_call().id != 0;
  if (!waits) return end_exchanges(std::move(text));
  due_end_ = std::move(text);
  patience_ = poller_->at(base::time_in(kParentPatience), [this] { branch_->detach({}); });
}

void Bootstrap::Client::end_if_due() {
  if (!due_end_) return;
  poller_->cancel(patience_);
  end_exchanges(*std::exchange(due_end_, std::nullopt));
}

void Bootstrap::Client::end_exchanges(std::string text) {
  const std::lock_guard lock(mutex_);
  if (over_.ok()) over_ = Status(Code::kRemote, std::move(text));
  changed_.notify_all();
}

void Bootstrap::Client::take_departure(HubEnd& hub, const Frame& frame) {
  auto departure = decode_departure(frame.header.rank, frame.payload);
  if (!departure.ok()) {
    hub.link->close();
    return lose(hub, {Loss::Kind::kNonsense, "it sent what no hub sends"});
  }
  if (!departed_.insert(departure->rank).second) return;
  unreported_.push_back(*std::move(departure));
  report_departures();
}

void Bootstrap::Client::report_departures() {
  report_failure();
  if (!callbacks_.on_departure) return;
  for (const Departure& departure : std::exchange(unreported_, {})) callbacks_.on_departure(departure);
}

void Bootstrap::Client::report_failure() {
  if (reported_ || !callbacks_.on_failure) return;
  if (const auto report = failure()) {
    reported_ = true;
    callbacks_.on_failure(*report);
  }
}

}  // namespace tutti::bootstrap
