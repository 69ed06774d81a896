// SPDX-License-Identifier: Apache-2.0
// The implementation of a communicator: the objects that setup.cpp makes, and the life of a call. It knows no device:
// the back end runs the calls.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "backend/ledger.h"
#include "backend/owner.h"
#include "backend/plans.h"
#include "base/fork.h"
#include "bootstrap/bootstrap.h"
#include "bootstrap/reunion.h"
#include "bootstrap/wire.h"
#include "communicator/watch.h"
#include "config/config.h"
#include "plugin/registry.h"
#include "transport/net.h"
#include "tuner/selector.h"
#include "tutti/communicator.h"

namespace tutti {

class Communicator::State final : public backend::Owner {
 public:
  State(int rank, int size)
      : rank_(rank), size_(size), ledger_(rank, size), watch_(ledger_.history, ledger_.attendance, ledger_.waiting) {}
  /// Leaves: tells the other ranks at once, then waits until sent data is out.
  ~State();
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  /// Joins the ranks of `id`; in setup.cpp. `make` makes the back end, of split() communicators as well.
  static Result<std::shared_ptr<State>> create(const UniqueId& id, int rank, int size, config::Config config,
                                               backend::Factory make = backend::make_backend);

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
  /// See backend.h. All communicators of a group gather first.
  Result<Stream> common_stream(Stream stream) { return backend_->common_stream(stream); }
  Status gather(std::span<const Stream> streams) { return backend_->gather(streams); }
  Status release(std::span<const Stream> streams) { return backend_->release(streams); }
  /// The configuration of a communicator that is made from this one; without options, that of this communicator.
  Result<config::Config> config_for(const std::optional<Options>& options) const;
  Result<std::shared_ptr<State>> split(int color, int key, config::Config config);
  /// In shrink.cpp.
  Result<std::shared_ptr<State>> shrink(std::span<const int> excluded, ShrinkMode mode, config::Config config);
  /// The number for end_registration(); nothing: the registration has no effect.
  Result<std::optional<uint64_t>> register_buffer(void* buffer, size_t bytes);
  void end_registration(uint64_t number) { backend_->end_registration(number); }

  /// Returns when every rank has called it.
  Status barrier(Stream stream);
  Result<std::vector<std::vector<std::byte>>> exchange(std::span<const std::byte> mine);

  void abort(std::string_view reason);
  /// Breaks the communicator on all ranks. Returns the failure that broke it first. Any thread.
  Status fail_everywhere(const Status& failure) override;
  /// The failure that a rank reported to all ranks, from the text of the bootstrap's failure.
  static Status reason_of_abort(std::string_view text);
  /// A failure of a collective call of the bootstrap: if the group was aborted, the reason.
  static Status reason_of(const Status& failure) {
    return failure.code() == Code::kAborted ? reason_of_abort(failure.text()) : failure;
  }
  Status failure() const override;
  bool has_failed() const override;
  Status check_device() override;
  /// CUDA's number of the device; -1: the host computes, and takes no streams.
  int device() const { return backend_->device().number; }
  bool takes_streams() const { return device() >= 0; }

  Result<Choice> choose(const tuner::Question& question) const;
  /// The verdicts of the selector, and the fail-overs so far.
  Result<std::string> explain(const tuner::Question& question) const;
  Counters counters() const;

 private:
  friend class Setup;

  /// The id for the members of a new communicator, who all call this. `excluded` are all other ranks.
  Result<UniqueId> meet_again(const std::vector<int>& excluded, const std::vector<int>& members);

  /// For failures that a peer or the hub reports. The text of an abort is "<code>|<text>".
  void on_failure(const bootstrap::FailureReport& report);
  void on_departure(const bootstrap::Departure& departure);
  void on_network_failure(const Status& failure);
  /// Compares calls with other ranks, and warns of long waits. On the bootstrap's thread.
  void on_tick();
  /// The state of the connections with a rank (Backend::connections). Any thread.
  std::string connections_with(uint32_t peer);
  /// This rank's knowledge of another rank, to which a connection broke. For the network's engine.
  transport::Net::Standing standing(uint32_t rank) const;
  /// The first failure breaks the communicator: true. Later failures are ignored. `tell`: the other ranks, too. Any
  /// thread.
  bool break_with(const Status& failure, bool tell = false);
  /// As fail_everywhere(), on a background thread or in the destructor, where no call returns the failure. Ok: does
  /// nothing.
  void fail_in_background(const Status& failure);
  /// The same without the log. False when there was a failure before.
  bool tell_everywhere(const Status& failure);
  void log_absence(const Status& missing, const backend::Turn& turn) const;
  /// Tells the other ranks the calls of this rank, and that no more come. `why` follows the text about its last call.
  void announce_end(std::string_view why = {});
  /// Once this rank has left: the ranks that left before must have made the same calls, and as many.
  void check_end();
  Status check_departed() override;
  Status difference_of_departed() const;
  void flush();
  Status miss(const backend::Absence& absence, const backend::Call& call) override;
  Status miss(const backend::Absence& absence) override;
  Status settle(const Status& done) override;
  Status told_failure() override;
  std::optional<std::string> difference(const backend::Turn& turn) override { return watch_.different(turn); }
  std::string states(const backend::Turn& turn) override { return watch_.states(turn); }
  bool is_broken() const { return std::atomic_ref(abort_word_).load(std::memory_order_relaxed) != 0; }
  Status run_now(const backend::Call& call);
  Status run_empty(const backend::Call& call);
  /// log.level: trace: the line of a call, or of a group of messages, that has ended. Called if that level is on.
  void trace(const backend::Call& call, std::chrono::steady_clock::time_point start, const Status& status) const;
  /// Runs `action`, and writes the line of the call if it is wanted.
  template <class Action>
  Status traced(const backend::Call& call, Action&& action);
  std::string describe_current() const { return backend::describe(ledger_.history.progress()); }

  const base::Origin origin_;
  const int rank_;
  const int size_;
  bootstrap::Secret secret_{};
  mutable uint32_t abort_word_ = 0;  // atomic_ref; read by executors in every wait
  mutable std::mutex failure_mutex_;
  Status failure_;
  mutable bool failure_returned_ = false;  ///< by a call

  backend::Ledger ledger_;
  communicator::Watch watch_;
  bool announced_ = false;

  config::Config config_;
  std::shared_ptr<transport::Failover> failover_;  ///< null: net.failover is false
  std::shared_ptr<plugin::Registry> registry_;
  std::unique_ptr<tuner::Selector> selector_;
  std::unique_ptr<backend::Plans> plans_;
  std::unique_ptr<bootstrap::Reunion> reunion_;  ///< null: one rank, or bootstrap.shrink is false
  backend::Factory make_backend_;
  std::unique_ptr<backend::Backend> backend_;
  std::unique_ptr<bootstrap::Bootstrap> bootstrap_;  // last member: its callbacks use the members above
};

}  // namespace tutti
