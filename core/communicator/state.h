// SPDX-License-Identifier: Apache-2.0
// The implementation of a communicator: the objects that setup.cpp makes, and the life of a call.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <span>

#include "backend/attendance.h"
#include "backend/call.h"
#include "backend/cuda/gpu.h"
#include "backend/host/execution.h"
#include "backend/host/fabric.h"
#include "backend/plans.h"
#include "backend/waiting.h"
#include "base/fork.h"
#include "bootstrap/bootstrap.h"
#include "bootstrap/wire.h"
#include "communicator/history.h"
#include "communicator/watch.h"
#include "config/config.h"
#include "plugin/registry.h"
#include "tuner/selector.h"
#include "tutti/communicator.h"

namespace tutti {

class Communicator::State {
 public:
  State(int rank, int size)
      : rank_(rank),
        size_(size),
        attendance_(static_cast<uint32_t>(size)),
        history_(static_cast<uint32_t>(rank), static_cast<uint32_t>(size)),
        watch_(history_, attendance_, waiting_) {}
  /// Leaves: tells the other ranks at once, then waits until sent data is out.
  ~State();
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  /// Joins the ranks of `id`; in setup.cpp.
  static Result<std::shared_ptr<State>> create(const UniqueId& id, int rank, int size, config::Config config);

  /// bootstrap.interface, as UniqueId::create() takes it.
  static std::string interfaces_of(const config::Config& config);

  /// False in a forked child of the process that made the communicator. The child may then only ask rank() and size(),
  /// and never destroys this object.
  bool is_here() const { return origin_.is_here(); }
  /// Why a forked child cannot use the communicator; ok where is_here().
  Status check_process() const { return is_here() ? Status() : origin_.refusal("the communicator"); }

  int rank() const { return rank_; }
  int size() const { return size_; }
  /// The secret that only ranks of one communicator share.
  const bootstrap::Secret& secret() const { return secret_; }

  /// Runs one collective to its end.
  Status run(const backend::Call& call);
  /// Runs sends and receives together to their end.
  Status run_messages(std::span<const backend::Call> calls);
  /// To be called before and after the calls of a group that were given to these streams of a GPU, and all go to the
  /// first. The calls run after the earlier work of the streams, and before their later work. All communicators of a
  /// group gather first.
  Status gather(std::span<const Stream> streams);
  Status release(std::span<const Stream> streams);
  Result<std::shared_ptr<State>> split(int color, int key);
  /// The number for end_registration(); nothing: the registration has no effect.
  Result<std::optional<uint64_t>> register_buffer(void* buffer, size_t bytes);
  void end_registration(uint64_t number);

  /// Returns when every rank has called it.
  Status barrier(Stream stream);
  Result<std::vector<std::vector<std::byte>>> exchange(std::span<const std::byte> mine);

  void abort(std::string_view reason);
  /// The failure that a rank reported to all ranks, from the text of the bootstrap's failure.
  static Status reason_of_abort(std::string_view text);
  /// A failure of a collective call of the bootstrap: if the group was aborted, the reason.
  static Status reason_of(const Status& failure) {
    return failure.code() == Code::kAborted ? reason_of_abort(failure.text()) : failure;
  }
  /// The failure of this communicator, for a call that returns it.
  Status failure() const;
  bool has_failed() const;
  /// The failure, after a check for failures that kernels have reported.
  Status check_device();
  bool on_gpu() const { return gpu_ != nullptr; }
  /// CUDA's number of it; -1: the host computes.
  int gpu() const { return gpu_ == nullptr ? -1 : gpu_->device(); }

  Result<Choice> choose(const tuner::Question& question) const;
  Result<std::string> explain(const tuner::Question& question) const { return selector_->explain(question); }

 private:
  friend class Setup;

  /// For failures that a peer or the hub reports. The text of an abort is "<code>|<text>".
  void on_failure(const bootstrap::FailureReport& report);
  void on_departure(const bootstrap::Departure& departure);
  void on_network_failure(const Status& failure);
  /// Compares calls with other ranks, and warns of long waits, of kernels as well. On the bootstrap's thread.
  void on_tick();
  /// Shows the other ranks the long wait of a kernel of this rank.
  void observe_kernels();
  /// This rank's knowledge of another rank, to which a connection broke. For the network's engine.
  transport::Net::Standing standing(uint32_t rank) const;
  /// The first failure breaks the communicator: true. Later failures are ignored. `tell`: the other ranks, too. Any
  /// thread.
  bool break_with(const Status& failure, bool tell = false);
  /// Breaks this communicator, tells the other ranks why, and logs it: this rank detected it. Returns the failure that
  /// holds.
  Status fail_everywhere(const Status& failure);
  /// The same on a background thread or in the destructor, where no call returns the failure. Ok: does nothing.
  void fail_in_background(const Status& failure);
  /// The same without the log. False when there was a failure before.
  bool tell_everywhere(const Status& failure);
  void log_absence(const Status& missing, const backend::Turn& turn) const;
  /// Tells the other ranks the calls of this rank, and that no more come. `why` follows the text about its last call.
  void announce_end(std::string_view why = {});
  /// Once this rank has left: the ranks that left before must have made the same calls, and as many.
  void check_end();
  /// Breaks this communicator when a rank that left had made other calls than this rank, as far as both have come.
  Status check_departed();
  Status difference_of_departed() const;
  void flush_network();
  /// Breaks this communicator when a rank left without its part in the call that `jobs` belong to. The remaining ranks
  /// find the same by themselves, once they have ended their earlier calls.
  Status check_present(std::span<const backend::Job> jobs, const backend::Call& call);
  void uncount(std::span<const backend::Job> jobs);
  /// The same for all calls on GPUs. Fails everywhere, since kernels of earlier calls are ended as well.
  Status check_present();
  Status explain_outcome(const backend::Driver::Outcome& outcome, const backend::Call& call);
  /// The failure of the group, which may be about to be told. Ok if none comes soon.
  Status told_failure();
  Status mismatch_verdict(const backend::Driver::Outcome& outcome, const backend::Call& call);
  Status timeout_verdict(const backend::Driver::Outcome& outcome, const backend::Call& call);
  template <class Action>
  Status enqueue(Action&& action);
  /// The same for calls, which are counted.
  template <class Action>
  Status enqueue_calls(std::span<const backend::Call> calls, Action&& action);
  template <class Count>
  void count_calls(std::span<const backend::Call> calls, Count&& count) const;
  /// The same of calls whose arguments are right.
  Status run_now(const backend::Call& call);
  Status run_messages_now(std::span<const backend::Call> calls);
  Status run_empty(const backend::Call& call);
  Status run_jobs(std::span<backend::Job> jobs, const backend::Call& call);
  /// log.level: trace: the line of a call, or of a group of messages, that has ended. Called if that level is on.
  void trace(const backend::Call& call, std::chrono::steady_clock::time_point start, const Status& status) const;
  /// Runs `action`, and writes the line of the call if it is wanted.
  template <class Action>
  Status traced(const backend::Call& call, Action&& action);
  Status copy_to_self(std::span<const backend::Call> calls);
  /// Enters the phase of this call, which is added to the history. For messages, the first call gives the kind.
  using Phase = communicator::Progress::Phase;
  void record(std::span<const backend::Call> calls);
  void take_back(std::span<const backend::Call> calls);
  std::string describe_current() const { return communicator::describe(history_.progress()); }

  const base::Origin origin_;
  const int rank_;
  const int size_;
  bootstrap::Secret secret_{};
  uint32_t abort_word_ = 0;  // atomic_ref; read by executors in every wait
  mutable std::mutex failure_mutex_;
  Status failure_;
  mutable bool failure_returned_ = false;  ///< by a call

  uint64_t calls_ = 0;  // groups of messages included, of which other ranks make other numbers
  backend::Attendance attendance_;
  communicator::History history_;
  backend::Waiting waiting_;
  backend::KernelWaits kernel_waits_;  ///< of the bootstrap's thread
  communicator::Watch watch_;
  bool announced_ = false;

  config::Config config_;
  std::shared_ptr<plugin::Registry> registry_;
  std::unique_ptr<tuner::Selector> selector_;
  std::unique_ptr<backend::Fabric> fabric_;
  std::unique_ptr<backend::Gpu> gpu_;  // null: the host computes
  std::unique_ptr<backend::Plans> plans_;
  std::unique_ptr<backend::Programs> programs_;
  std::unique_ptr<backend::Executions> executions_;
  std::unique_ptr<backend::Driver> driver_;
  std::unique_ptr<bootstrap::Bootstrap> bootstrap_;  // last member: its callbacks use the members above
};

}  // namespace tutti
