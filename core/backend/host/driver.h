// SPDX-License-Identifier: Apache-2.0
// Runs works to their end in the calling thread: executes works that can progress, helps the progress engine, and
// sleeps when no work can progress.
#pragma once

#include <chrono>
#include <optional>
#include <span>

#include "backend/attendance.h"
#include "backend/waiting.h"
#include "progress/engine.h"
#include "tutti/plugin/protocol.h"

namespace tutti::backend {

/// A work, its executor, and the job that must be done before it: works on one connection keep their order.
struct Job {
  tutti_work* work = nullptr;
  const tutti_protocol_ops* ops = nullptr;
  void* plugin = nullptr;
  const Job* after = nullptr;
  bool done = false;
  Turn turn;
};

class Driver {
 public:
  struct Options {
    uint32_t spins = 2000;  ///< polls before a wait yields the processor
    uint32_t yields = 20;   ///< yields before it sleeps
    /// The time for which a wait drives the progress engine, if there is one, before its first yield, and before it
    /// sleeps.
    std::chrono::nanoseconds drives{20'000};
    std::chrono::nanoseconds drives_yielding{2'000'000};
    std::chrono::nanoseconds operation_timeout{};  ///< without any progress
    tutti_bell* bell = nullptr;                    ///< rung by peers and by the engine
    /// The number of this rank among the ranks that share the processors of a machine; none: each has a processor. A
    /// wait then moves its thread to the processor of this number, at most every few ms.
    std::optional<uint32_t> seat = {};
  };
  explicit Driver(const Options& options) : options_(options) {}

  /// The engine of the network slots for which these works may wait; the driver helps it while it waits.
  void set_engine(progress::Engine* engine) { engine_ = engine; }
  /// Asked before a wait sleeps: whether the ranks that a work waits for still take part.
  void set_attendance(const Attendance* attendance) { attendance_ = attendance; }
  /// Sets the object that records waits which sleep.
  void set_waiting(Waiting* waiting) { waiting_ = waiting; }

  struct Outcome {
    int32_t code = TUTTI_OK;
    Job* job = nullptr;    ///< the failed job, or the first waiting job when the time is up
    bool absence = false;  ///< a rank left without its part in the job
  };
  /// TUTTI_OK when all are done; TUTTI_TIMEOUT; or the failure of a job. One thread at a time.
  Outcome run(std::span<Job> jobs);

 private:
  struct Round {
    bool moved = false;
    bool pending = false;
    Outcome failure;
    Job* waiting = nullptr;
  };
  Round round(std::span<Job> jobs, uint32_t spins);
  Outcome wait_for(std::span<Job> jobs);
  Outcome wait_longer(std::span<Job> jobs);
  static std::optional<uint32_t> awaited_peer(std::span<const Job> jobs, uint32_t idle);
  bool polls_on(uint32_t idle, std::chrono::steady_clock::time_point idle_since);
  void yield();
  void take_seat();
  void tell(std::chrono::steady_clock::time_point since, const Job* waits);
  Outcome find_absence(std::span<Job> jobs) const;

  Options options_;
  progress::Engine* engine_ = nullptr;
  const Attendance* attendance_ = nullptr;
  Waiting* waiting_ = nullptr;
  const Job* told_ = nullptr;  ///< the job that waiting_ shows, and the peer it waits for
  uint32_t told_peer_ = 0;
  std::chrono::steady_clock::time_point moved_;  ///< when a wait last moved its thread to a different processor
  int seat_ = -1;                                ///< the processor of options_.seat; -1: not known yet
};

}  // namespace tutti::backend
