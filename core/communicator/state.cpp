// SPDX-License-Identifier: Apache-2.0
#include "communicator/state.h"

#include <fmt/format.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <map>
#include <utility>

#include "bootstrap/exchange.h"
#include "communicator/registrations.h"
#include "log/log.h"
#include "progress/bell.h"

namespace tutti {

using communicator::Call;
using communicator::Driver;
using communicator::Execution;
using communicator::Job;
using communicator::Turn;

namespace {

constexpr std::chrono::seconds kVerdictLimit{2};
constexpr std::chrono::seconds kReportLimit{2};

}  // namespace

Communicator::State::~State() {
  // The callbacks stay until both waits are over: a failure of the group ends them.
  announce_end();
  if (gpu_ != nullptr) static_cast<void>(gpu_->finish());
  flush_network();
  if (bootstrap_ != nullptr) bootstrap_->set_callbacks({});
  gpu_.reset();     // waits for the other ranks, by the bootstrap
  fabric_.reset();  // its engine reports failures to the bootstrap
  bootstrap_.reset();
}

void Communicator::State::announce_end(std::string_view why) {
  if (bootstrap_ == nullptr || std::exchange(announced_, true)) return;
  std::string did = describe_current().append(why);
  if (std::uncaught_exceptions() > 0) did += " and leaves because of an exception";
  bootstrap_->announce(attendance_.ending(std::move(did)));
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

Status Communicator::State::run(const Call& call) {
  if (std::atomic_ref<uint32_t>(abort_word_).load(std::memory_order_relaxed) != 0) [[unlikely]]
    return failure();
  TUTTI_TRY(communicator::check(call, rank_, size_));
  if (call.count == 0) return {};
  if (gpu_ != nullptr) return enqueue_calls({&call, 1}, [&] { return gpu_->run(call); });
  TUTTI_ASSIGN(Execution* const execution, executions_->prepare(call));
  const Turn turn = attendance_.count(Turn::Kind::kCollective);
  execution->bind(call, ++calls_, turn);
  return run_jobs(execution->jobs, call);
}

/// What a kernel found out since is told now. What fails on this rank alone breaks the communicator: others wait for
/// it.
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
Status Communicator::State::enqueue_calls(std::span<const Call> calls, Action&& action) {
  count_calls(calls, [&](Turn::Kind kind, uint32_t peer) { attendance_.count(kind, peer); });
  enter(Phase::kEnqueued, communicator::signature_of(calls.front()));
  TUTTI_TRY(check_present());
  const Status done = enqueue(action);
  if (!done.ok() && failure().ok())
    count_calls(calls, [&](Turn::Kind kind, uint32_t peer) { attendance_.uncount(kind, peer); });
  return done;
}

template <class Count>
void Communicator::State::count_calls(std::span<const Call> calls, Count&& count) const {
  for (const Call& call : calls) {
    if (call.collective != Collective::kSendRecv) {
      count(Turn::Kind::kCollective, 0);
    } else if (call.count > 0 && call.root != rank_) {
      count(call.receives ? Turn::Kind::kReceive : Turn::Kind::kSend, static_cast<uint32_t>(call.root));
    }
  }
}

Status Communicator::State::check_present(std::span<const Job> jobs, const Call& call) {
  for (const Job& job : jobs) {
    const auto absence = job.done ? std::nullopt : attendance_.missing_in(job.turn);
    if (!absence) continue;
    const auto own = static_cast<uint32_t>(rank_);
    const Status missing(Code::kRemote, communicator::describe(*absence, own, communicator::describe(call)));
    if (break_with(missing)) log_absence(missing, absence->turn);
    enter(Phase::kFailed);
    uncount(jobs);
    announce_end(fmt::format(" because rank {} left", absence->departure.rank));
    return failure();
  }
  return {};
}

/// The call of these jobs is not made: no rank can count on it.
void Communicator::State::uncount(std::span<const Job> jobs) {
  for (const Job& job : jobs) {
    const bool collective = job.turn.kind == Turn::Kind::kCollective;  // which has a job for each channel
    if (collective && &job != jobs.data()) continue;
    if (collective || !job.done) attendance_.uncount(job.turn.kind, job.turn.peer);
  }
}

Status Communicator::State::check_present() {
  const auto absence = attendance_.missing_in_any();
  if (!absence) return {};
  const std::string text = communicator::describe(*absence, static_cast<uint32_t>(rank_), "");
  const Status missing(Code::kRemote, fmt::format("{}; rank {} {}", text, rank_, describe_current()));
  if (tell_everywhere(missing)) log_absence(missing, absence->turn);
  return failure();
}

/// All ranks are told that a rank left, and all of them miss it in the same collective call: the lowest rank logs the
/// error. A message misses it on one rank alone.
void Communicator::State::log_absence(const Status& missing, const Turn& turn) const {
  const bool lowest = static_cast<int>(attendance_.first_present()) == rank_;
  if (lowest || turn.kind != Turn::Kind::kCollective) {
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
  const Call call{Collective::kAllReduce, &own, &all, 1, DataType::kUint8, ReduceOp::kMax};
  if (gpu_ != nullptr) return enqueue_calls({&call, 1}, [&] { return gpu_->barrier(stream); });
  return run(call);
}

Result<std::vector<std::vector<std::byte>>> Communicator::State::exchange(std::span<const std::byte> mine) {
  return bootstrap_->all_gather(mine, base::time_in(config_.duration("timeouts.bootstrap")));
}

Result<std::optional<uint64_t>> Communicator::State::register_buffer(void* buffer, size_t bytes) {
  const communicator::Claim mine{bytes, buffer == nullptr ? 1u : 0u};
  std::optional<uint64_t> number;
  const auto meet = [&]() -> Status {
    const base::Time deadline = base::time_in(config_.duration("timeouts.bootstrap"));
    TUTTI_ASSIGN(const auto claims, bootstrap::exchange(*bootstrap_, mine, deadline));
    TUTTI_TRY(communicator::check_claims(claims));
    if (gpu_ == nullptr) return {};
    TUTTI_ASSIGN(number, gpu_->register_buffer(buffer, bytes, deadline));
    return {};
  };
  TUTTI_TRY(enqueue(meet));
  return number;
}

void Communicator::State::end_registration(uint64_t number) {
  if (gpu_ != nullptr) gpu_->end_registration(number);
}

Status Communicator::State::run_jobs(std::span<Job> jobs, const Call& call) {
  enter(Phase::kIn, jobs.front().work->signature);
  if (attendance_.any_left() && call.collective != Collective::kSendRecv) [[unlikely]]
    TUTTI_TRY(check_present(jobs, call));
  const Driver::Outcome outcome = driver_->run(jobs);
  if (outcome.code == TUTTI_OK) [[likely]] {
    enter(Phase::kDone);
    return {};
  }
  const Status failure = outcome.absence ? check_present(jobs, call) : explain_outcome(outcome, call);
  enter(Phase::kFailed);
  return failure;
}

void Communicator::State::enter(Phase phase, const tutti_signature& signature) {
  const uint64_t index = ~latest_call_.load(std::memory_order_relaxed) >> 3 & 1;
  signatures_[index].store(uint64_t{signature.words[1]} << 32 | signature.words[0], std::memory_order_relaxed);
  latest_call_.store(attendance_.collectives() << 4 | index << 3 | static_cast<uint64_t>(phase),
                     std::memory_order_release);
}

void Communicator::State::enter(Phase phase) {
  const uint64_t call = latest_call_.load(std::memory_order_relaxed);
  latest_call_.store((call & ~uint64_t{7}) | static_cast<uint64_t>(phase), std::memory_order_release);
}

Status Communicator::State::run_messages(std::span<const Call> calls) {
  if (std::atomic_ref<uint32_t>(abort_word_).load(std::memory_order_relaxed) != 0) return failure();
  for (const Call& call : calls) TUTTI_TRY(communicator::check(call, rank_, size_));
  if (gpu_ != nullptr) return enqueue_calls(calls, [&] { return gpu_->run_messages(calls); });
  TUTTI_TRY(copy_to_self(calls));
  Execution all;
  std::vector<Execution> messages;
  for (const Call& call : calls) {
    if (call.count == 0 || call.root == rank_) continue;
    TUTTI_TRY(executions_->append_message(messages.emplace_back(), call));
  }
  ++calls_;
  // Messages on one connection keep their order.
  std::map<const tutti_connection*, size_t> latest;
  for (Execution& message : messages) {
    tutti_work& work = message.works.front();
    work.call = calls_;
    const bool sends = work.senders[0] != nullptr;
    const uint32_t peer = work.plan->peers[0].rank;
    all.jobs.push_back({&work, message.jobs.front().ops, message.jobs.front().plugin, nullptr, false,
                        attendance_.count(sends ? Turn::Kind::kSend : Turn::Kind::kReceive, peer)});
  }
  for (size_t i = 0; i < all.jobs.size(); ++i) {
    const tutti_work& work = *all.jobs[i].work;
    const tutti_connection* connection = work.senders[0] != nullptr ? work.senders[0] : work.receivers[0];
    if (const auto before = latest.find(connection); before != latest.end())
      all.jobs[i].after = &all.jobs[before->second];
    latest[connection] = i;
  }
  return all.jobs.empty() ? Status() : run_jobs(all.jobs, calls.front());
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
Status Communicator::State::copy_to_self(std::span<const Call> calls) {
  TUTTI_ASSIGN(const communicator::OwnMessages own, communicator::own_messages(calls, rank_));
  for (size_t i = 0; i < own.sends.size(); ++i) {
    const size_t bytes = own.sends[i]->count * size_of(own.sends[i]->type);
    if (bytes > 0) std::memmove(own.receives[i]->output, own.sends[i]->input, bytes);
  }
  return {};
}

Status Communicator::State::explain_outcome(const Driver::Outcome& outcome, const Call& call) {
  const uint32_t peer = outcome.job->work->fault.peer;
  switch (outcome.code) {
    case TUTTI_ABORTED:
      return failure();
    case TUTTI_TIMEOUT:
      return timeout_verdict(call, peer);
    case TUTTI_MISMATCH:
      return fail_everywhere(
          Status(Code::kMismatch, fmt::format("ranks {} and {} made different calls: rank {} made {}; rank {} "
                                              "made {}",
                                              rank_, peer, rank_, communicator::describe(outcome.job->work->signature),
                                              peer, communicator::describe(outcome.job->work->fault.theirs))));
    case TUTTI_REMOTE:
      if (report_arrives()) return failure();
      return fail_everywhere(
          Status(Code::kRemote, fmt::format("{}: cannot read the memory of rank {}; did it end, or free its "
                                            "buffer? shm.single_copy off avoids reading it",
                                            communicator::describe(call), peer)));
    default:
      return fail_everywhere(
          Status(static_cast<Code>(outcome.code),
                 fmt::format("{} failed in the protocol, with rank {}", communicator::describe(call), peer)));
  }
}

/// A peer whose memory is gone has most likely died: gives the hub a moment to say so, since it knows more.
bool Communicator::State::report_arrives() const {
  const auto deadline = std::chrono::steady_clock::now() + kReportLimit;
  while (std::chrono::steady_clock::now() < deadline) {
    progress::Sleeper announced(fabric_->shm().bell());
    if (!failure().ok()) return true;
    announced.sleep(kReportLimit);
  }
  return !failure().ok();
}

Status Communicator::State::timeout_verdict(const Call& call, uint32_t peer) {
  const auto limit = config_.duration("timeouts.operation");
  std::string text =
      fmt::format("{}: no progress for {} s (timeouts.operation); rank {} waits for rank {}",
                  communicator::describe(call), std::chrono::duration<double>(limit).count(), rank_, peer);
  auto reports = bootstrap_->query(std::chrono::steady_clock::now() + kVerdictLimit);
  if (reports.ok()) {
    for (size_t r = 0; r < reports->size(); ++r) text += fmt::format("; rank {} {}", r, (*reports)[r]);
  }
  return fail_everywhere(Status(Code::kTimeout, text));
}

std::string Communicator::State::describe_current() const {
  static constexpr std::array<const char*, 5> kPhases = {"", "is in", "has done", "failed in", "has enqueued"};
  uint64_t call = latest_call_.load(std::memory_order_acquire);
  if (call == 0) return "has made no call";
  uint64_t words = 0;
  for (bool stable = false; !stable;) {
    words = signatures_[call >> 3 & 1].load(std::memory_order_acquire);
    stable = call == latest_call_.load(std::memory_order_acquire);
    if (!stable) call = latest_call_.load(std::memory_order_acquire);
  }
  const tutti_signature signature{{static_cast<uint32_t>(words), static_cast<uint32_t>(words >> 32)}};
  const char* const does = kPhases[call & 7];
  const std::string what = communicator::describe(signature);
  const uint64_t number = call >> 4;
  const bool message = static_cast<Collective>(signature.words[0] & 0xff) == Collective::kSendRecv;
  return message ? fmt::format("{} {} after call {}", does, what, number)
                 : fmt::format("{} call {}, {}", does, number, what);
}

void Communicator::State::on_departure(const bootstrap::Departure& departure) {
  attendance_.add(departure);
  bool on_gpu = false;
  {
    const std::lock_guard lock(failure_mutex_);  // setup may be about to add the fabric or the GPU
    on_gpu = gpu_ != nullptr;
    if (fabric_ != nullptr) progress::ring(fabric_->shm().bell());
  }
  if (on_gpu) static_cast<void>(check_present());
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
  return {attendance_.has_left(rank), !bootstrap_->hears(), driver_ != nullptr && driver_->awaits(rank)};
}

bool Communicator::State::break_with(const Status& failure) {
  const std::lock_guard lock(failure_mutex_);  // setup may be about to add the fabric or the GPU
  const bool first = failure_.ok();
  if (first) failure_ = failure;
  std::atomic_ref<uint32_t>(abort_word_).store(1, std::memory_order_seq_cst);
  if (gpu_ != nullptr) gpu_->stop();
  if (fabric_ != nullptr) progress::ring(fabric_->shm().bell());
  return first;
}

Status Communicator::State::fail_everywhere(const Status& failure) {
  if (tell_everywhere(failure)) log::failure("rank {}: {}", rank_, failure.to_string());
  return this->failure();
}

bool Communicator::State::tell_everywhere(const Status& failure) {
  const bool first = break_with(failure);
  if (first) bootstrap_->post_abort(fmt::format("{}|{}", static_cast<int>(failure.code()), failure.text()));
  return first;
}

Status Communicator::State::failure() const {
  const std::lock_guard lock(failure_mutex_);
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
