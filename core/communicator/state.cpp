// SPDX-License-Identifier: Apache-2.0
#include "communicator/state.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <exception>
#include <utility>

#include "backend/registrations.h"
#include "bootstrap/exchange.h"
#include "log/log.h"
#include "transport/failover.h"

namespace tutti {

namespace {

/// Of its latest calls, which a rank tells when it leaves.
constexpr uint64_t kLastCalls = 8;
constexpr base::Milliseconds kReportLimit{2000};

}  // namespace

Communicator::State::~State() {
  // The callbacks stay until both waits are over: a failure of the group ends them.
  announce_end();
  flush();
  std::unique_ptr<backend::Backend> backend;
  {
    const std::lock_guard lock(failure_mutex_);  // callbacks use it
    backend = std::move(backend_);
  }
  backend.reset();  // may wait for the other ranks, and reports failures to the bootstrap
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
  for (const bootstrap::Departure& departure : ledger_.attendance.departures()) {
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
  bootstrap::Ending ending = ledger_.attendance.ending(std::move(did));
  const uint64_t last = ending.collectives;
  const uint64_t first = last > kLastCalls ? last - kLastCalls + 1 : 1;
  ending.calls = communicator::encode(communicator::Series::of(ledger_.history.calls(), first, last));
  bootstrap_->announce(ending);
}

/// Data that was sent must leave this process before its connections close.
void Communicator::State::flush() {
  if (backend_ == nullptr) return;
  const auto limit = config_.duration("timeouts.operation");
  if (backend_->flush(limit, [this] { return bootstrap_->failure().has_value(); })) return;
  const std::string unsent = backend_->connections({});
  [[maybe_unused]] const Status held = fail_everywhere(
      Status(Code::kTimeout, fmt::format("rank {} left, but its data did not go out within {} s (timeouts.operation): "
                                         "a rank has not received what it was sent; rank {} {}{}{}",
                                         rank_, std::chrono::duration<double>(limit).count(), rank_, describe_current(),
                                         unsent.empty() ? "" : "; ", unsent)));
}

Status Communicator::State::run(const backend::Call& call) {
  if (is_broken()) [[unlikely]]
    return failure();
  TUTTI_TRY(backend::check(call, rank_, size_));
  return traced(call, [&] { return run_now(call); });
}

Status Communicator::State::run_now(const backend::Call& call) {
  if (call.count == 0) [[unlikely]]
    return run_empty(call);
  return backend_->run(call);
}

Status Communicator::State::run_messages(std::span<const backend::Call> calls) {
  if (is_broken()) return failure();
  for (const backend::Call& call : calls) TUTTI_TRY(backend::check(call, rank_, size_));
  return traced(calls.front(), [&] { return backend_->run_messages(calls); });
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
  const std::string number = message
                                 ? fmt::format("messages after call {}, the first", ledger_.attendance.collectives())
                                 : fmt::format("call {}", ledger_.attendance.collectives());
  const std::string peer = message ? fmt::format(" {} rank {}", call.receives ? "from" : "to", call.root) : "";
  log::trace("{}: {}{}{}: {} after {:.1f} us", number, backend::describe(call), peer, way,
             !status.ok()                                                  ? status.to_string()
             : backend_->end_phase() == backend::History::Phase::kEnqueued ? "enqueued"
                                                                           : "done",
             took.count());
}

/// A call that moves nothing is counted and compared like every other.
Status Communicator::State::run_empty(const backend::Call& call) {
  ledger_.count({&call, 1});
  ledger_.record({&call, 1});
  ledger_.history.enter_end(backend_->end_phase());
  return {};
}

Status Communicator::State::settle(const Status& done) {
  switch (done.code()) {
    case Code::kAborted:
    case Code::kDevice:
    case Code::kInternal:
    case Code::kRemote:
    case Code::kSystem:
    case Code::kTimeout:
      return fail_everywhere(done);
    default:
      return done;
  }
}

Status Communicator::State::miss(const backend::Absence& absence, const backend::Call& call) {
  const auto own = static_cast<uint32_t>(rank_);
  const Status missing(Code::kRemote, backend::describe(absence, own, backend::describe(call)));
  if (break_with(missing)) log_absence(missing, absence.turn);
  announce_end(fmt::format(" because rank {} left", absence.departure.rank));
  return failure();
}

Status Communicator::State::miss(const backend::Absence& absence) {
  const std::string text = backend::describe(absence, static_cast<uint32_t>(rank_), "");
  const Status missing(Code::kRemote, fmt::format("{}; rank {} {}", text, rank_, describe_current()));
  if (tell_everywhere(missing)) log_absence(missing, absence.turn);
  return failure();
}

/// All ranks are told that a rank left, and all of them miss it in the same collective call: the lowest rank logs the
/// error. A message misses it on one rank alone.
void Communicator::State::log_absence(const Status& missing, const backend::Turn& turn) const {
  const bool lowest = static_cast<int>(ledger_.attendance.first_present()) == rank_;
  if (lowest || turn.kind != backend::Turn::Kind::kCollective) {
    log::failure("rank {}: {}", rank_, missing.to_string());
  } else {
    log::info("rank {}: {}", rank_, missing.to_string());
  }
}

Status Communicator::State::check_device() {
  const Status fault = backend_->fault();
  return fault.ok() ? failure() : fail_everywhere(fault);
}

Status Communicator::State::barrier(Stream stream) {
  // Everybody needs a contribution of everybody.
  static constexpr uint8_t own = 0;
  static thread_local uint8_t all;
  backend::Call call{Collective::kAllReduce, &own, &all, 1, DataType::kUint8, ReduceOp::kMax};
  call.stream = stream;
  if (is_broken()) return check_device();
  return traced(call, [&] { return backend_->barrier(call); });
}

Result<std::vector<std::vector<std::byte>>> Communicator::State::exchange(std::span<const std::byte> mine) {
  const auto all = bootstrap_->all_gather(mine, base::time_in(config_.duration("timeouts.bootstrap")));
  if (all.ok()) {
    std::vector<std::vector<std::byte>> copies;
    copies.reserve(all->size());
    for (const std::span<const std::byte> part : *all) copies.emplace_back(part.begin(), part.end());
    return copies;
  }
  // A failure of the group may reach this call before the callback: async_error() must know it when this call returns.
  if (const auto report = bootstrap_->failure()) on_failure(*report);
  return reason_of(all.status());
}

Result<std::optional<uint64_t>> Communicator::State::register_buffer(void* buffer, size_t bytes) {
  const backend::Claim mine{bytes, buffer == nullptr ? 1u : 0u};
  const base::Time deadline = base::time_in(config_.duration("timeouts.bootstrap"));
  const auto meet = [&]() -> Result<std::optional<uint64_t>> {
    TUTTI_ASSIGN(const auto claims, bootstrap::exchange(*bootstrap_, mine, deadline));
    TUTTI_TRY(backend::check_claims(claims));
    return backend_->register_buffer(buffer, bytes, deadline);
  };
  TUTTI_TRY(check_device());
  auto number = meet();
  if (number.ok()) return number;
  return reason_of(settle(number.status()));
}

/// Gives the hub a moment to tell of a peer that has most likely died.
Status Communicator::State::told_failure() {
  const auto report = bootstrap_->wait_for_failure(base::time_in(kReportLimit));
  if (report) on_failure(*report);
  return failure();
}

void Communicator::State::on_departure(const bootstrap::Departure& departure) {
  ledger_.attendance.add(departure);
  // The calls that this rank has made are compared with this departure only: with earlier departures, the work would
  // grow with the square of the ranks. Later calls are compared when they are made, and when this rank leaves.
  if (const auto difference = watch_.different_from(departure))
    fail_in_background(Status(Code::kMismatch, *difference));
  std::optional<backend::Absence> absence;
  {
    const std::lock_guard lock(failure_mutex_);  // setup may be about to add the back end
    if (backend_ != nullptr) absence = backend_->on_departure();
  }
  if (absence) static_cast<void>(miss(*absence));
}

void Communicator::State::on_tick() {
  {
    const std::lock_guard lock(failure_mutex_);  // setup may be about to add the back end
    if (backend_ != nullptr) backend_->observe();
  }
  watch_.tick();
}

std::string Communicator::State::connections_with(uint32_t peer) {
  const std::lock_guard lock(failure_mutex_);  // setup may be about to add the back end
  return backend_ == nullptr ? std::string() : backend_->connections(peer);
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
  const auto wait = ledger_.waiting.now();
  return {ledger_.attendance.has_left(rank), !bootstrap_->hears(), wait && wait->peer == rank};
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
  const std::lock_guard lock(failure_mutex_);  // setup may be about to add the back end
  std::atomic_ref<uint32_t>(abort_word_).store(1, std::memory_order_seq_cst);
  if (backend_ != nullptr) backend_->stop();
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

Result<std::string> Communicator::State::explain(const tuner::Question& question) const {
  TUTTI_ASSIGN(std::string text, selector_->explain(question));
  if (failover_ != nullptr) text += failover_->describe();
  return text;
}

Counters Communicator::State::counters() const {
  if (failover_ == nullptr) return {};
  const transport::Failover::Counts counts = failover_->counts();
  return {counts.failovers, counts.resent_messages};
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
    choice.transport += (choice.transport.empty() ? "net-" : "+net-") + choices.networks[decision.network].name;
    const uint32_t inside = choices.network_inside_racks.value_or(decision.network);
    if (inside != decision.network) choice.transport += "+net-" + choices.networks[inside].name;
  }
  choice.channels = decision.channels;
  choice.predicted_us = decision.predicted_us;
  return choice;
}

}  // namespace tutti
