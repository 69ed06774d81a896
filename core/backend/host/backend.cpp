// SPDX-License-Identifier: Apache-2.0
#include "backend/host/backend.h"

#include <cstring>
#include <map>

namespace tutti::backend {
namespace {

Driver::Options with_bell(Driver::Options waits, Fabric& fabric) {
  waits.bell = &fabric.shm().bell();
  return waits;
}

Turn::Kind kind_of(const Call& message) {
  return message.receives ? Turn::Kind::kReceive : Turn::Kind::kSend;
}

/// Messages on one connection keep their order.
void put_in_order(std::span<Job> jobs) {
  std::map<const tutti_connection*, size_t> latest;
  for (size_t i = 0; i < jobs.size(); ++i) {
    const tutti_connection* const connection = jobs[i].work->connections[0];
    if (const auto before = latest.find(connection); before != latest.end()) jobs[i].after = &jobs[before->second];
    latest[connection] = i;
  }
}

}  // namespace

HostBackend::HostBackend(const Options& options, Owner& owner, Ledger& ledger, std::unique_ptr<Fabric> fabric)
    : Backend({}, Phase::kDone),
      options_(options),
      owner_(owner),
      ledger_(ledger),
      fabric_(std::move(fabric)),
      driver_(with_bell(options.waits, *fabric_)),
      verdicts_(owner, ledger.rank, options.waits.operation_timeout, *fabric_) {
  driver_.set_attendance(&ledger_.attendance);
  driver_.set_waiting(&ledger_.waiting);
  driver_.set_engine(fabric_->engine());
}

Status HostBackend::serve(const tuner::Selector& selector, const Plans& plans) {
  programs_ = std::make_unique<Programs>(options_.calls.rank, plans, selector.choices(), *fabric_);
  executions_ = std::make_unique<Executions>(options_.calls, selector, *programs_);
  return {};
}

Status HostBackend::run(const Call& call) {
  const auto prepared = executions_->prepare(call);
  if (!prepared.ok()) [[unlikely]]
    return owner_.settle(prepared.status());
  Execution* const execution = *prepared;
  const Turn turn = ledger_.attendance.count(Turn::Kind::kCollective);
  execution->bind(call, ++calls_, turn, ledger_.history.add_call(execution->shape), executions_->scratch());
  ledger_.history.enter(Phase::kIn);
  if (ledger_.attendance.any_left()) [[unlikely]] {
    TUTTI_TRY(check_present(execution->jobs, call));
    TUTTI_TRY(owner_.check_departed());
  }
  return run_jobs(execution->jobs, call);
}

Status HostBackend::run_jobs(std::span<Job> jobs, const Call& call) {
  const Driver::Outcome outcome = driver_.run(jobs);
  if (outcome.code == TUTTI_OK) [[likely]] {
    ledger_.history.enter_end(Phase::kDone);
    return {};
  }
  const Status failure = outcome.absence ? check_present(jobs, call) : verdicts_.explain(outcome, call);
  ledger_.history.enter_end(Phase::kFailed);
  return failure;
}

Status HostBackend::run_messages(std::span<const Call> calls) {
  TUTTI_TRY(copy_to_self(calls));
  auto prepared = prepare_messages(calls);
  if (!prepared.ok()) [[unlikely]]
    return owner_.settle(prepared.status());
  std::vector<Execution> messages = *std::move(prepared);
  std::vector<Job> jobs = number_messages(calls, messages);
  put_in_order(jobs);
  ledger_.history.enter_messages(Phase::kIn, CallShape::of(calls.front()));
  return run_jobs(jobs, calls.front());
}

/// Sends to this rank itself meet its receives from itself, in order.
Status HostBackend::copy_to_self(std::span<const Call> calls) const {
  TUTTI_ASSIGN(const OwnMessages own, own_messages(calls, ledger_.rank));
  for (size_t i = 0; i < own.sends.size(); ++i) {
    const size_t bytes = own.sends[i]->count * size_of(own.sends[i]->type);
    if (bytes > 0) std::memmove(own.receives[i]->output, own.sends[i]->input, bytes);
  }
  return {};
}

/// One execution for each message to or from a different rank.
Result<std::vector<Execution>> HostBackend::prepare_messages(std::span<const Call> calls) {
  std::vector<Execution> messages;
  for (const Call& call : calls) {
    if (call.count == 0 || call.root == ledger_.rank) continue;
    TUTTI_TRY(executions_->append_message(messages.emplace_back(), call));
  }
  return messages;
}

/// Each message is a call of its own to the connections, whose first message carries its digest. Messages of no
/// elements are only counted.
std::vector<Job> HostBackend::number_messages(std::span<const Call> calls, std::vector<Execution>& messages) {
  std::vector<Job> jobs;
  auto message = messages.begin();
  for (const Call& call : calls) {
    if (call.root == ledger_.rank) continue;
    const Turn turn = ledger_.attendance.count(kind_of(call), static_cast<uint32_t>(call.root));
    if (call.count == 0) {
      ledger_.history.add_message(turn.kind, turn.peer, CallShape::of(call));
      continue;
    }
    tutti_work& work = message->works.front();
    work.call = ++calls_;
    work.signature = signature_of(ledger_.history.add_message(turn.kind, turn.peer, message->shape));
    jobs.push_back({&work, message->jobs.front().ops, message->jobs.front().plugin, nullptr, false, turn});
    ++message;
  }
  return jobs;
}

/// Ends the communicator if a rank left without its part in the call that `jobs` belong to.
Status HostBackend::check_present(std::span<const Job> jobs, const Call& call) {
  for (const Job& job : jobs) {
    const auto absence = job.done ? std::nullopt : ledger_.attendance.missing_in(job.turn);
    if (!absence) continue;
    ledger_.history.enter_end(Phase::kFailed);
    uncount(jobs);
    return owner_.miss(*absence, call);
  }
  return {};
}

/// The call of these jobs is not made: no rank can rely on it.
void HostBackend::uncount(std::span<const Job> jobs) {
  for (const Job& job : jobs) {
    const bool collective = job.turn.kind == Turn::Kind::kCollective;  // which has a job for each channel
    if (collective && &job != jobs.data()) continue;
    if (collective || !job.done) ledger_.attendance.uncount(job.turn.kind, job.turn.peer);
  }
}

std::optional<Absence> HostBackend::on_departure() {
  fabric_->ring();
  return std::nullopt;
}

}  // namespace tutti::backend
