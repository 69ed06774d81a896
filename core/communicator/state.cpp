// SPDX-License-Identifier: Apache-2.0
#include "communicator/state.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <map>
#include <utility>

#include "backend/registrations.h"
#include "bootstrap/exchange.h"
#include "log/log.h"
#include "progress/bell.h"

namespace tutti {

namespace {

/// Of its latest calls, which a rank tells when it leaves.
constexpr uint64_t kLastCalls = 8;
constexpr base::Milliseconds kReportLimit{2000};

}  // namespace

Communicator::State::~State() {
  // The callbacks stay until both waits are over: a failure of the group ends them.
  announce_end();
  if (gpu_ != nullptr) static_cast<void>(gpu_->finish());
  flush_network();
  std::unique_ptr<backend::Gpu> gpu;
  std::unique_ptr<backend::Fabric> fabric;
  {
    const std::lock_guard lock(failure_mutex_);  // callbacks use both
    gpu = std::move(gpu_);
    fabric = std::move(fabric_);
  }
  gpu.reset();     // waits for the other ranks, by the bootstrap
  fabric.reset();  // its engine reports failures to the bootstrap
  if (bootstrap_ == nullptr) return;
  bootstrap_->leave();  // and takes the departures of ranks that left before
  check_end();
  bootstrap_.reset();
}

void Communicator::State::check_end() {
  if (!has_failed()) fail_in_background(difference_of_departed());
  if (!has_failed()) {
    if (const auto difference = watch_.different_counts())
      log::error("{}", Status(Code::kMismatch, *difference).to_string());
    return;
  }
  // A program that prints each failure it gets hides the line of the failure, but no call has returned this failure.
  const bool hidden = !log::shows_failures() && !failure_returned_;
  if (const Status unseen = failure(); hidden && unseen.code() == Code::kMismatch) log::error("{}", unseen.to_string());
}

Status Communicator::State::difference_of_departed() const {
  for (const bootstrap::Departure& departure : attendance_.departures()) {
    const auto difference = watch_.different_from(departure);
    if (difference) return Status(Code::kMismatch, *difference);
  }
  return {};
}

Status Communicator::State::check_departed() {
  const Status difference = difference_of_departed();
  return difference.ok() ? difference : fail_everywhere(difference);
}

void Communicator::State::announce_end(std::string_view why) {
  if (bootstrap_ == nullptr || std::exchange(announced_, true)) return;
  std::string did = describe_current().append(why);
  if (std::uncaught_exceptions() > 0) did += " and leaves because of an exception";
  bootstrap::Ending ending = attendance_.ending(std::move(did));
  const uint64_t last = ending.collectives;
  const uint64_t first = last > kLastCalls ? last - kLastCalls + 1 : 1;
  ending.calls = communicator::encode(communicator::Series::of(history_.calls(), first, last));
  bootstrap_->announce(ending);
}

/// Data that was sent must leave this process before its connections close.
void Communicator::State::flush_network() {
  const auto failed = [this] { return bootstrap_->failure().has_value(); };
  if (fabric_ == nullptr || fabric_->net() == nullptr || failed()) return;
  const auto limit = config_.duration("timeouts.operation");
  const auto deadline = std::chrono::steady_clock::now() + limit;
  if (fabric_->net()->engine().flush(deadline, failed) || failed()) return;
  [[maybe_unused]] const Status held = fail_everywhere(Status(
      Code::kTimeout, fmt::format("rank {} left, but its data did not go out within {} s (timeouts.operation): "
                                  "a rank has not received what it was sent; rank {} {}",
                                  rank_, std::chrono::duration<double>(limit).count(), rank_, describe_current())));
}

Status Communicator::State::run(const backend::Call& call) {
  if (std::atomic_ref<uint32_t>(abort_word_).load(std::memory_order_relaxed) != 0) [[unlikely]]
    return failure();
  TUTTI_TRY(backend::check(call, rank_, size_));
  return traced(call, [&] { return run_now(call); });
}

Status Communicator::State::run_now(const backend::Call& call) {
  if (call.count == 0) [[unlikely]]
    return run_empty(call);
  if (gpu_ != nullptr) return enqueue_calls({&call, 1}, [&] { return gpu_->run(call); });
  TUTTI_ASSIGN(backend::Execution* const execution, executions_->prepare(call));
  const backend::Turn turn = attendance_.count(backend::Turn::Kind::kCollective);
  execution->bind(call, ++calls_, turn, history_.add_call(execution->shape), executions_->scratch());
  history_.enter(Phase::kIn);
  if (attendance_.any_left()) [[unlikely]] {
    TUTTI_TRY(check_present(execution->jobs, call));
    TUTTI_TRY(check_departed());
  }
  return run_jobs(execution->jobs, call);
}

template <class Action>
Status Communicator::State::traced(const backend::Call& call, Action&& action) {
  if (!log::enabled(log::Level::kTrace)) [[likely]]
    return action();
  const auto start = std::chrono::steady_clock::now();
  const Status status = action();
  trace(call, start, status);
  return status;
}

void Communicator::State::trace(const backend::Call& call, std::chrono::steady_clock::time_point start,
                                const Status& status) const {
  const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
  const auto choice = choose({call.collective, call.type, call.reduction.op, call.count});
  const std::string way = choice.ok() && call.count > 0
                              ? fmt::format(", {}/{} ×{}", choice->algorithm, choice->protocol, choice->channels)
                              : std::string();
  const bool message = call.collective == Collective::kSendRecv;
  const std::string number = message ? fmt::format("messages after call {}, the first", attendance_.collectives())
                                     : fmt::format("call {}", attendance_.collectives());
  const std::string peer = message ? fmt::format(" {} rank {}", call.receives ? "from" : "to", call.root) : "";
  log::trace("{}: {}{}{}: {} after {:.1f} us", number, backend::describe(call), peer, way,
             !status.ok()      ? status.to_string()
             : gpu_ != nullptr ? "enqueued"
                               : "done",
             took.count());
}

/// A call that moves nothing is counted and compared like every other.
Status Communicator::State::run_empty(const backend::Call& call) {
  attendance_.count(backend::Turn::Kind::kCollective);
  record({&call, 1});
  history_.enter_end(gpu_ != nullptr ? Phase::kEnqueued : Phase::kDone);
  return {};
}

/// Before a call is given to the GPU, because the first call of a shape waits for the other ranks there.
void Communicator::State::record(std::span<const backend::Call> calls) {
  const auto shape = backend::CallShape::of(calls.front());
  count_calls(calls, [&](const backend::Call& call, backend::Turn::Kind kind, uint32_t peer) {
    if (kind != backend::Turn::Kind::kCollective) {
      history_.add_message(kind, peer, backend::CallShape::of(call));
    } else {
      history_.add_call(backend::CallShape::of(call));
    }
  });
  calls.front().collective == Collective::kSendRecv ? history_.enter_messages(Phase::kIn, shape)
                                                    : history_.enter(Phase::kIn);
}

/// The calls were refused on this rank alone, or on all ranks.
void Communicator::State::take_back(std::span<const backend::Call> calls) {
  count_calls(calls, [&](const backend::Call&, backend::Turn::Kind kind, uint32_t peer) {
    attendance_.uncount(kind, peer);
    kind == backend::Turn::Kind::kCollective ? history_.take_back_call() : history_.take_back_message(kind, peer);
  });
  history_.enter(Phase::kFailed);
}

/// Reports pending kernel failures first. A failure of this rank alone breaks the communicator, because its peers wait
/// for it.
template <class Action>
Status Communicator::State::enqueue(Action&& action) {
  TUTTI_TRY(check_device());
  const Status done = action();
  switch (done.code()) {
    case Code::kAborted:
    case Code::kDevice:
    case Code::kRemote:
    case Code::kSystem:
    case Code::kTimeout:
      return fail_everywhere(done);
    default:
      return done;
  }
}

/// Counts before it enqueues: a rank that leaves meanwhile, while the call is prepared or its kernel waits, is found by
/// on_departure().
template <class Action>
Status Communicator::State::enqueue_calls(std::span<const backend::Call> calls, Action&& action) {
  count_calls(calls,
              [&](const backend::Call&, backend::Turn::Kind kind, uint32_t peer) { attendance_.count(kind, peer); });
  TUTTI_TRY(check_present());
  record(calls);
  const Status done = enqueue(action);
  if (done.ok()) {
    history_.enter_end(Phase::kEnqueued);
  } else if (!has_failed()) {
    take_back(calls);
  }
  return done;
}

template <class Count>
void Communicator::State::count_calls(std::span<const backend::Call> calls, Count&& count) const {
  for (const backend::Call& call : calls) {
    if (call.collective != Collective::kSendRecv) {
      count(call, backend::Turn::Kind::kCollective, 0);
    } else if (call.root != rank_) {
      count(call, call.receives ? backend::Turn::Kind::kReceive : backend::Turn::Kind::kSend,
            static_cast<uint32_t>(call.root));
    }
  }
}

Status Communicator::State::check_present(std::span<const backend::Job> jobs, const backend::Call& call) {
  for (const backend::Job& job : jobs) {
    const auto absence = job.done ? std::nullopt : attendance_.missing_in(job.turn);
    if (!absence) continue;
    const auto own = static_cast<uint32_t>(rank_);
    const Status missing(Code::kRemote, backend::describe(*absence, own, backend::describe(call)));
    if (break_with(missing)) log_absence(missing, absence->turn);
    history_.enter_end(Phase::kFailed);
    uncount(jobs);
    announce_end(fmt::format(" because rank {} left", absence->departure.rank));
    return failure();
  }
  return {};
}

/// The call of these jobs is not made: no rank can rely on it.
void Communicator::State::uncount(std::span<const backend::Job> jobs) {
  for (const backend::Job& job : jobs) {
    const bool collective = job.turn.kind == backend::Turn::Kind::kCollective;  // which has a job for each channel
    if (collective && &job != jobs.data()) continue;
    if (collective || !job.done) attendance_.uncount(job.turn.kind, job.turn.peer);
  }
}

Status Communicator::State::check_present() {
  const auto absence = attendance_.missing_in_any();
  if (!absence) return {};
  const std::string text = backend::describe(*absence, static_cast<uint32_t>(rank_), "");
  const Status missing(Code::kRemote, fmt::format("{}; rank {} {}", text, rank_, describe_current()));
  if (tell_everywhere(missing)) log_absence(missing, absence->turn);
  return failure();
}

/// All ranks are told that a rank left, and all of them miss it in the same collective call: the lowest rank logs the
/// error. A message misses it on one rank alone.
void Communicator::State::log_absence(const Status& missing, const backend::Turn& turn) const {
  const bool lowest = static_cast<int>(attendance_.first_present()) == rank_;
  if (lowest || turn.kind != backend::Turn::Kind::kCollective) {
    log::failure("rank {}: {}", rank_, missing.to_string());
  } else {
    log::info("rank {}: {}", rank_, missing.to_string());
  }
}

Status Communicator::State::check_device() {
  if (gpu_ == nullptr) return failure();
  const Status fault = gpu_->fault();
  return fault.ok() ? failure() : fail_everywhere(fault);
}

Status Communicator::State::barrier(Stream stream) {
  // Everybody needs a contribution of everybody.
  static constexpr uint8_t own = 0;
  static thread_local uint8_t all;
  const backend::Call call{Collective::kAllReduce, &own, &all, 1, DataType::kUint8, ReduceOp::kMax};
  if (gpu_ != nullptr) return enqueue_calls({&call, 1}, [&] { return gpu_->barrier(stream); });
  return run(call);
}

Result<std::vector<std::vector<std::byte>>> Communicator::State::exchange(std::span<const std::byte> mine) {
  auto all = bootstrap_->all_gather(mine, base::time_in(config_.duration("timeouts.bootstrap")));
  if (!all.ok()) return reason_of(all.status());
  return all;
}

Result<std::optional<uint64_t>> Communicator::State::register_buffer(void* buffer, size_t bytes) {
  const backend::Claim mine{bytes, buffer == nullptr ? 1u : 0u};
  std::optional<uint64_t> number;
  const auto meet = [&]() -> Status {
    const base::Time deadline = base::time_in(config_.duration("timeouts.bootstrap"));
    TUTTI_ASSIGN(const auto claims, bootstrap::exchange(*bootstrap_, mine, deadline));
    TUTTI_TRY(backend::check_claims(claims));
    if (gpu_ == nullptr) return {};
    TUTTI_ASSIGN(number, gpu_->register_buffer(buffer, bytes, deadline));
    return {};
  };
  const Status met = enqueue(meet);
  if (!met.ok()) return reason_of(met);
  return number;
}

void Communicator::State::end_registration(uint64_t number) {
  if (gpu_ != nullptr) gpu_->end_registration(number);
}

Status Communicator::State::run_jobs(std::span<backend::Job> jobs, const backend::Call& call) {
  const backend::Driver::Outcome outcome = driver_->run(jobs);
  if (outcome.code == TUTTI_OK) [[likely]] {
    history_.enter_end(Phase::kDone);
    return {};
  }
  const Status failure = outcome.absence ? check_present(jobs, call) : explain_outcome(outcome, call);
  history_.enter_end(Phase::kFailed);
  return failure;
}

Status Communicator::State::run_messages(std::span<const backend::Call> calls) {
  if (std::atomic_ref<uint32_t>(abort_word_).load(std::memory_order_relaxed) != 0) return failure();
  for (const backend::Call& call : calls) TUTTI_TRY(backend::check(call, rank_, size_));
  return traced(calls.front(), [&] { return run_messages_now(calls); });
}

Status Communicator::State::run_messages_now(std::span<const backend::Call> calls) {
  if (gpu_ != nullptr) return enqueue_calls(calls, [&] { return gpu_->run_messages(calls); });
  TUTTI_TRY(copy_to_self(calls));
  backend::Execution all;
  std::vector<backend::Execution> messages;
  for (const backend::Call& call : calls) {
    if (call.count == 0 || call.root == rank_) continue;
    TUTTI_TRY(executions_->append_message(messages.emplace_back(), call));
  }
  // Each message is a call of its own to the connections, whose first message carries its digest.
  auto message = messages.begin();
  for (const backend::Call& call : calls) {
    if (call.root == rank_) continue;
    const backend::Turn::Kind kind = call.receives ? backend::Turn::Kind::kReceive : backend::Turn::Kind::kSend;
    const backend::Turn turn = attendance_.count(kind, static_cast<uint32_t>(call.root));
    if (call.count == 0) {
      history_.add_message(kind, turn.peer, backend::CallShape::of(call));
      continue;
    }
    tutti_work& work = message->works.front();
    work.call = ++calls_;
    work.signature = backend::signature_of(history_.add_message(kind, turn.peer, message->shape));
    all.jobs.push_back({&work, message->jobs.front().ops, message->jobs.front().plugin, nullptr, false, turn});
    ++message;
  }
  // Messages on one connection keep their order.
  std::map<const tutti_connection*, size_t> latest;
  for (size_t i = 0; i < all.jobs.size(); ++i) {
    const tutti_work& work = *all.jobs[i].work;
    const tutti_connection* connection = work.senders[0] != nullptr ? work.senders[0] : work.receivers[0];
    if (const auto before = latest.find(connection); before != latest.end())
      all.jobs[i].after = &all.jobs[before->second];
    latest[connection] = i;
  }
  history_.enter_messages(Phase::kIn, backend::CallShape::of(calls.front()));
  return run_jobs(all.jobs, calls.front());
}

Status Communicator::State::gather(std::span<const Stream> streams) {
  if (gpu_ == nullptr) return {};
  return enqueue([&] { return gpu_->gather(streams); });
}

Status Communicator::State::release(std::span<const Stream> streams) {
  if (gpu_ == nullptr || streams.size() < 2) return {};
  return enqueue([&] { return gpu_->release(streams); });
}

/// Sends to this rank itself meet its receives from itself, in order.
Status Communicator::State::copy_to_self(std::span<const backend::Call> calls) {
  TUTTI_ASSIGN(const backend::OwnMessages own, backend::own_messages(calls, rank_));
  for (size_t i = 0; i < own.sends.size(); ++i) {
    const size_t bytes = own.sends[i]->count * size_of(own.sends[i]->type);
    if (bytes > 0) std::memmove(own.receives[i]->output, own.sends[i]->input, bytes);
  }
  return {};
}

Status Communicator::State::explain_outcome(const backend::Driver::Outcome& outcome, const backend::Call& call) {
  const uint32_t peer = outcome.job->work->fault.peer;
  switch (outcome.code) {
    case TUTTI_ABORTED:
      return failure();
    case TUTTI_TIMEOUT:
      return timeout_verdict(outcome, call);
    case TUTTI_MISMATCH:
      return mismatch_verdict(outcome, call);
    case TUTTI_REMOTE:
      if (const Status told = told_failure(); !told.ok()) return told;
      return fail_everywhere(
          Status(Code::kRemote, fmt::format("{}: cannot read the memory of rank {}; did it end, or free its "
                                            "buffer? shm.single_copy off avoids reading it",
                                            backend::describe(call), peer)));
    default:
      return fail_everywhere(
          Status(static_cast<Code>(outcome.code),
                 fmt::format("{} failed in the protocol, with rank {}", backend::describe(call), peer)));
  }
}

/// A peer whose memory is gone has most likely died: gives the hub a moment to say so, since it knows more.
Status Communicator::State::told_failure() {
  const auto report = bootstrap_->wait_for_failure(base::time_in(kReportLimit));
  if (report) on_failure(*report);
  return failure();
}

/// The digests only tell that there is a difference: the ranks' histories tell which.
Status Communicator::State::mismatch_verdict(const backend::Driver::Outcome& outcome, const backend::Call& call) {
  const uint32_t peer = outcome.job->work->fault.peer;
  const auto difference = watch_.different(outcome.job->turn);
  return fail_everywhere(Status(
      Code::kMismatch, difference.value_or(fmt::format(
                           "ranks made different calls: rank {} got a message of rank {} that does not belong to call "
                           "{} ({}), and rank {} does not tell of another call; if the calls are the same, the network "
                           "or the protocol changed the message",
                           rank_, peer, outcome.job->turn.number, backend::describe(call), peer))));
}

Status Communicator::State::timeout_verdict(const backend::Driver::Outcome& outcome, const backend::Call& call) {
  const auto limit = config_.duration("timeouts.operation");
  return fail_everywhere(
      Status(Code::kTimeout, fmt::format("{}: no progress for {} s (timeouts.operation); rank {} waits for rank {}{}",
                                         backend::describe(call), std::chrono::duration<double>(limit).count(), rank_,
                                         outcome.job->work->fault.peer, watch_.states(outcome.job->turn))));
}

void Communicator::State::on_departure(const bootstrap::Departure& departure) {
  attendance_.add(departure);
  fail_in_background(difference_of_departed());
  bool on_gpu = false;
  {
    const std::lock_guard lock(failure_mutex_);  // setup may be about to add the fabric or the GPU
    on_gpu = gpu_ != nullptr;
    if (fabric_ != nullptr) progress::ring(fabric_->shm().bell());
  }
  if (on_gpu) static_cast<void>(check_present());
}

void Communicator::State::on_tick() {
  observe_kernels();
  watch_.tick();
}

void Communicator::State::observe_kernels() {
  backend::KernelWaits::Sample sample;
  {
    const std::lock_guard lock(failure_mutex_);  // setup may be about to add the GPU
    if (gpu_ == nullptr) return;
    sample = gpu_->kernel_waits();
  }
  const auto wait = kernel_waits_.observe(sample, backend::KernelWaits::Clock::now());
  if (!wait) return waiting_.end();
  const auto shown = waiting_.now();
  if (shown && shown->since == wait->since) return;
  waiting_.begin(wait->since, {backend::Turn::Kind::kCollective, 0, attendance_.collectives()}, wait->peer);
}

void Communicator::State::on_failure(const bootstrap::FailureReport& report) {
  const bool aborted = report.kind == bootstrap::FailureKind::kAborted;
  const Status failure = aborted ? reason_of_abort(report.text) : report.status();
  if (break_with(failure)) log::info("rank {} is told of a failure: {}", rank_, failure.to_string());
}

Status Communicator::State::reason_of_abort(std::string_view text) {
  const size_t bar = text.find('|');
  if (bar == std::string_view::npos) return Status(Code::kAborted, std::string(text));
  return Status(static_cast<Code>(std::atoi(std::string(text.substr(0, bar)).c_str())),
                std::string(text.substr(bar + 1)));
}

/// A connection that broke may be the first sign of a dead peer: the hub's report, which names it, is the better text.
void Communicator::State::on_network_failure(const Status& failure) {
  const auto report = bootstrap_->failure();
  if (report) {
    on_failure(*report);
  } else {
    [[maybe_unused]] const Status held = fail_everywhere(failure);
  }
}

transport::Net::Standing Communicator::State::standing(uint32_t rank) const {
  const auto wait = waiting_.now();
  return {attendance_.has_left(rank), !bootstrap_->hears(), wait && wait->peer == rank};
}

bool Communicator::State::break_with(const Status& failure, bool tell) {
  bool first = false;
  {
    const std::lock_guard lock(failure_mutex_);
    first = failure_.ok();
    if (first) failure_ = failure;
  }
  // Reported before this rank's calls end: the rank may then leave, and its peers must learn the failure first.
  if (first && tell) bootstrap_->post_abort(fmt::format("{}|{}", static_cast<int>(failure.code()), failure.text()));
  const std::lock_guard lock(failure_mutex_);  // setup may be about to add the fabric or the GPU
  std::atomic_ref<uint32_t>(abort_word_).store(1, std::memory_order_seq_cst);
  if (gpu_ != nullptr) gpu_->stop();
  if (fabric_ != nullptr) progress::ring(fabric_->shm().bell());
  return first;
}

void Communicator::State::fail_in_background(const Status& failure) {
  if (failure.ok() || has_failed()) return;
  if (tell_everywhere(failure)) log::failure("rank {}: {}", rank_, failure.to_string());
}

Status Communicator::State::fail_everywhere(const Status& failure) {
  if (tell_everywhere(failure)) log::failure("rank {}: {}", rank_, failure.to_string());
  return this->failure();
}

bool Communicator::State::tell_everywhere(const Status& failure) {
  return break_with(failure, true);
}

bool Communicator::State::has_failed() const {
  const std::lock_guard lock(failure_mutex_);
  return !failure_.ok();
}

Status Communicator::State::failure() const {
  const std::lock_guard lock(failure_mutex_);
  if (!failure_.ok()) failure_returned_ = true;
  return failure_;
}

void Communicator::State::abort(std::string_view reason) {
  const Status wished(Code::kAborted, std::string(reason));
  if (tell_everywhere(wished)) log::info("rank {}: {}", rank_, wished.to_string());
}

Result<Choice> Communicator::State::choose(const tuner::Question& question) const {
  TUTTI_ASSIGN(const tuner::Decision decision, selector_->choose(question));
  const tuner::Choices& choices = selector_->choices();
  Choice choice;
  choice.algorithm = "p2p";
  if (decision.algorithm != tuner::kNoAlgorithm) {
    const auto& algorithm = choices.algorithms[decision.algorithm];
    choice.algorithm = algorithm.name;
    if (algorithm.variants.size() > 1) choice.variant = algorithm.variants[decision.variant].name;
  }
  choice.protocol = choices.protocols[decision.protocol].name;
  if ((choices.links & 1u << TUTTI_LINK_SHM) != 0) choice.transport = "shm";
  if ((choices.links & 1u << TUTTI_LINK_P2P) != 0) choice.transport = "p2p";
  if ((choices.links & 1u << TUTTI_LINK_NETWORK) != 0) {
    choice.transport += (choice.transport.empty() ? "net-" : "+net-") + choices.network_name;
  }
  choice.channels = decision.channels;
  choice.predicted_us = decision.predicted_us;
  return choice;
}

}  // namespace tutti
