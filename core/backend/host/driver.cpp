// SPDX-License-Identifier: Apache-2.0
#include "backend/host/driver.h"

#include <sched.h>

#include <cstring>

#include "progress/bell.h"

namespace tutti::backend {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint32_t kSharedSpins = 4;  // polls per work when several works, or an engine, share the thread
constexpr uint32_t kFullRound = 8;    // one in so many rounds of a wait looks for data of all peers
constexpr std::chrono::microseconds kLongYield{4};
constexpr std::chrono::milliseconds kMoveInterval{10};
constexpr std::chrono::milliseconds kSleepLimit{100};  // how late an expired deadline may be noticed

/// The state of a wait since its last movement.
struct Idleness {
  uint32_t rounds = 0;
  bool slept = false;
  Clock::time_point since = {};
  /// The time since which no message of the jobs has moved; zero: one moved in the last round. Help for the engine does
  /// not count: it may dial for ever.
  Clock::time_point no_message_since = {};

  /// Of a round without movement.
  void begin() {
    if (rounds == 0) since = Clock::now();
    if (no_message_since == Clock::time_point{}) no_message_since = since;
  }
  void helped() {
    rounds = 0;
    slept = false;
  }
};

/// Moves the calling thread to one of the processors `to`. It may use all of `allowed` afterwards.
void move_to(const cpu_set_t& to, const cpu_set_t& allowed) {
  if (sched_setaffinity(0, sizeof to, &to) == 0) sched_setaffinity(0, sizeof allowed, &allowed);
}

/// Moves the calling thread to a different processor that it may use, if there is one.
void change_processor() {
  cpu_set_t allowed;
  const int here = sched_getcpu();
  if (here < 0 || sched_getaffinity(0, sizeof allowed, &allowed) != 0 || CPU_COUNT(&allowed) < 2) return;
  cpu_set_t others = allowed;
  CPU_CLR(static_cast<size_t>(here), &others);
  move_to(others, allowed);
}

/// The processor of a number among those of a set, which is not empty. Numbers count on from the first processor again.
int processor_of(uint32_t number, const cpu_set_t& set) {
  uint32_t left = number % static_cast<uint32_t>(CPU_COUNT(&set));
  int processor = 0;
  while (!CPU_ISSET(static_cast<size_t>(processor), &set) || left-- > 0) ++processor;
  return processor;
}

}  // namespace

Driver::Outcome Driver::run(std::span<Job> jobs) {
  if (jobs.size() == 1 && engine_ == nullptr) {
    Job& job = jobs.front();
    job.work->spins = options_.spins;
    const int32_t code = job.ops->run(job.plugin, job.work);
    if (code != TUTTI_AGAIN) [[likely]]
      return {code, &job};
  }
  return wait_for(jobs);
}

Driver::Round Driver::round(std::span<Job> jobs, uint32_t spins) {
  Round round;
  for (Job& job : jobs) {
    if (job.done || (job.after != nullptr && !job.after->done)) continue;
    const tutti_cursor before = job.work->cursor;
    job.work->spins = spins;
    const int32_t code = job.ops->run(job.plugin, job.work);
    if (code == TUTTI_AGAIN) {
      round.moved = round.moved || std::memcmp(&before, &job.work->cursor, sizeof before) != 0;
      if (!round.pending) round.waiting = &job;
      round.pending = true;
      continue;
    }
    if (code != TUTTI_OK) {
      round.failure = {code, &job};
      return round;
    }
    job.done = round.moved = true;
  }
  for (const Job& job : jobs) round.pending = round.pending || !job.done;
  return round;
}

Driver::Outcome Driver::wait_for(std::span<Job> jobs) {
  const Outcome outcome = wait_longer(jobs);
  tell({}, nullptr);
  return outcome;
}

/// Null: nothing waits any more.
void Driver::tell(Clock::time_point since, const Job* waits) {
  if (waiting_ == nullptr || (waits == told_ && (waits == nullptr || waits->work->fault.peer == told_peer_))) return;
  told_ = waits;
  if (waits == nullptr) return waiting_->end();
  told_peer_ = waits->work->fault.peer;
  waiting_->begin(since, waits->turn, told_peer_);
}

Driver::Outcome Driver::wait_longer(std::span<Job> jobs) {
  for (Job& job : jobs) job.done = false;
  const uint32_t spins = jobs.size() == 1 && engine_ == nullptr ? options_.spins : kSharedSpins;
  progress::Engine::Drive drive(engine_);
  Idleness idle;
  for (;;) {
    const Round now = round(jobs, idle.rounds == 0 ? spins : kSharedSpins);
    if (now.failure.code != TUTTI_OK) return now.failure;
    if (!now.pending) return {};
    const bool helped = engine_ != nullptr && engine_->assist(awaited_peer(jobs, idle.rounds));
    if (now.moved) {
      idle = {};
      tell({}, nullptr);
      continue;
    }
    idle.begin();
    if (helped) {
      if (Clock::now() - idle.no_message_since > options_.operation_timeout) return {TUTTI_TIMEOUT, now.waiting};
      idle.helped();
      continue;
    }
    if (!idle.slept && polls_on(++idle.rounds, idle.since)) continue;
    progress::Sleeper announced(*options_.bell);
    // Asked before the last look: a failure that was told earlier then ends it.
    const bool any_left = attendance_ != nullptr && attendance_->any_left();
    const Round last = round(jobs, 0);
    if (last.failure.code != TUTTI_OK) return last.failure;
    if (!last.pending) return {};
    if (last.moved) {
      idle = {};
      tell({}, nullptr);
      continue;
    }
    tell(idle.no_message_since, last.waiting);
    if (any_left) {
      if (const Outcome absence = find_absence(jobs); absence.absence) return absence;
    }
    if (Clock::now() - idle.no_message_since > options_.operation_timeout) return {TUTTI_TIMEOUT, last.waiting};
    drive.pause();
    announced.sleep(kSleepLimit);
    drive.resume();
    idle.slept = true;
  }
}

/// The peer that the round of a wait looks for; none: all peers. Each look at a network connection takes a system call.
std::optional<uint32_t> Driver::awaited_peer(std::span<const Job> jobs, uint32_t idle) {
  if (jobs.size() != 1 || idle % kFullRound == kFullRound - 1) return {};
  return jobs.front().work->fault.peer;
}

/// Whether a wait that nothing moved in `idle` rounds polls again, perhaps after a yield. False: it sleeps.
bool Driver::polls_on(uint32_t idle, Clock::time_point idle_since) {
  bool yields = true;
  if (engine_ != nullptr) {
    const auto waited = Clock::now() - idle_since;
    if (waited > options_.drives_yielding) return false;
    yields = waited > options_.drives;
  } else if (idle > options_.yields) {
    return false;
  }
  if (yields) yield();
  return true;
}

/// Two long yields in a row show that a second thread polls on this processor. If each rank could have a processor, the
/// second thread may be the awaited rank: the scheduler leaves both there for a long time.
void Driver::yield() {
  if (engine_ == nullptr || options_.drives.count() == 0) {
    if (options_.seat) take_seat();
    sched_yield();
    return;
  }
  const auto before = Clock::now();
  sched_yield();
  const auto after = Clock::now();
  if (after - before < kLongYield || after - moved_ < kMoveInterval) return;
  sched_yield();
  if (Clock::now() - after < kLongYield) return;
  change_processor();
  moved_ = Clock::now();
}

/// Spreads ranks that share processors evenly. The scheduler does not: a thread that yields ran a moment ago, and the
/// scheduler leaves such threads where they are, even if one processor has three of four.
void Driver::take_seat() {
  const int here = sched_getcpu();
  if (here < 0 || here == seat_) return;
  const auto now = Clock::now();
  if (now - moved_ < kMoveInterval) return;
  moved_ = now;
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
  seat_ = processor_of(*options_.seat, allowed);
  if (here == seat_) return;
  cpu_set_t own;
  CPU_ZERO(&own);
  CPU_SET(static_cast<size_t>(seat_), &own);
  move_to(own, allowed);
}

Driver::Outcome Driver::find_absence(std::span<Job> jobs) const {
  for (Job& job : jobs) {
    if (!job.done && attendance_->missing_in(job.turn)) return {TUTTI_REMOTE, &job, true};
  }
  return {};
}

}  // namespace tutti::backend
