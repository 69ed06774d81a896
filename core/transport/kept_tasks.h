// SPDX-License-Identifier: Apache-2.0
// The progress engine's tasks behind a network connection that fails over (failover.h): its sender and its receiver.
//
// A receiver acknowledges late, since the messages of this rank's sender to the same peer carry acknowledgements
// (receipts.h). It sends an acknowledgement of its own in three cases: the sender soon needs slots, no message has come
// for many rounds, or the thread is about to sleep.
#pragma once

#include <atomic>
#include <chrono>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "transport/channel.h"
#include "transport/failover.h"
#include "transport/link_state.h"
#include "transport/net_tasks.h"

namespace tutti::transport {

/// A message of a receiver to its sender.
struct Acknowledgement {
  uint64_t next;  ///< number of the message that the receiver expects next
  uint64_t generation;
};
static_assert(sizeof(Acknowledgement) == 16);

/// Connections that have come, on their way from the thread that accepts them to the thread of a task.
class Arrivals {
 public:
  void add(Arrival arrival) {
    const std::lock_guard lock(mutex_);
    arrivals_.push_back(std::move(arrival));
    any_.store(true, std::memory_order_relaxed);  // a look that misses it comes again
  }
  bool empty() const { return !any_.load(std::memory_order_relaxed); }
  /// The oldest. Nothing: there is none.
  std::optional<Arrival> take() {
    if (empty()) return std::nullopt;
    const std::lock_guard lock(mutex_);
    std::optional<Arrival> oldest = std::move(arrivals_.front());
    arrivals_.pop_front();
    any_.store(!arrivals_.empty(), std::memory_order_relaxed);
    return oldest;
  }

 private:
  std::mutex mutex_;  // guards arrivals_
  std::deque<Arrival> arrivals_;
  std::atomic<bool> any_{false};
};

/// One end of a connection that fails over.
class KeptTask : public SlotTask, public Rejoiner {
 public:
  tutti_connection& connection() final { return memory_.connection(); }
  void arrive(Arrival arrival) final { arrivals_.add(std::move(arrival)); }

 protected:
  using Clock = std::chrono::steady_clock;
  KeptTask(const Net& home, const Key& key, Failover& failover, std::shared_ptr<Receipts> receipts,
           tutti_bell* engine_bell, bool sends);

  const Net& home_;
  const Key key_;
  Failover& failover_;
  const std::vector<Route> routes_;
  LinkState state_;
  const std::shared_ptr<Receipts> receipts_;
  SlotMemory memory_;
  SlotRequests requests_{memory_};
  Arrivals arrivals_;                 // to be looked at
  std::unique_ptr<Channel> channel_;  // of the messages
  void* registration_ = nullptr;
  std::optional<Haste> haste_;  // until the connection that this rank awaits has come
  Breakage breakage_;
};

/// Sends this rank's filled slots to one receiver. A slot is free when the receiver has acknowledged its message.
class KeptSendTask : public KeptTask {
 public:
  KeptSendTask(const Net& home, const Key& key, Failover& failover, std::shared_ptr<Receipts> receipts,
               tutti_bell* engine_bell);
  ~KeptSendTask() override;
  Result<bool> progress() override;
  bool idle() const override;
  bool urgent() const override;
  Result<bool> settle() override;

 private:
  /// Rounds in one of which the task looks for acknowledgements that it does not need yet.
  static constexpr uint32_t kRoundsPerLook = 16;
  /// After a break, the time for acknowledgements that are under way, and for the news that the receiver has left.
  static constexpr std::chrono::milliseconds kLastTime{500};
  /// The time before a renewal doubles at most this many times.
  static constexpr uint32_t kMostDoublings = 5;

  const Route& route() const { return routes_[route_]; }
  Result<bool> advance();
  Result<bool> connect();
  bool looks();
  bool is_over(bool undelivered) const;
  Result<bool> take_acknowledgements();
  Result<bool> join_acknowledgements();
  Status take(const Acknowledgement& acknowledgement);
  Status hear();
  Status acknowledge(const Acknowledgement& acknowledgement, uint64_t least);
  Status await_acknowledgements();
  Result<bool> fail_over();
  Result<bool> post();
  Status check_time() const;
  bool waits_in_vain();
  void renew();
  void give_up(const Status& why);
  void try_next();
  void begin_generation();
  void drop();

  size_t route_ = 0;         // in use, or being tried
  size_t last_route_ = 0;    // that served
  uint32_t generation_ = 0;  // of the connections
  bool serves_ = true;       // the receiver has stated where to go on; nothing to state at the start
  std::unique_ptr<Dial> dial_;
  Clock::time_point began_;  // the trial of this route
  bool is_known_ = false;    // the receiver has connected back once
  uint32_t renewals_ = 0;    // connections made again before the receiver was known
  bool ends_ = false;        // the connection is lost; its last acknowledgements may come
  Clock::time_point lost_at_;
  std::vector<std::string> lost_;  // routes since the connection last served, with the reasons

  // As many as messages may be without acknowledgement. They outlive their channel.
  std::vector<Acknowledgement> acknowledgements_;
  std::unique_ptr<Channel> acknowledges_;
  Route acknowledges_route_;
  void* acknowledges_registration_ = nullptr;
  std::vector<void*> receives_;
  uint64_t taken_ = 0;   // acknowledgements of this generation
  uint64_t stated_ = 0;  // by the latest of them
  uint32_t rounds_ = 0;  // for looks()

  uint64_t acknowledged_ = 0;
};

/// Receives one sender's slots, and acknowledges them.
class KeptReceiveTask : public KeptTask {
 public:
  KeptReceiveTask(const Net& home, const Key& key, Failover& failover, std::shared_ptr<Receipts> receipts,
                  tutti_bell* engine_bell);
  ~KeptReceiveTask() override;
  Result<bool> progress() override;
  bool idle() const override;
  bool urgent() const override { return acknowledging_ != nullptr; }
  Result<bool> settle() override;

 private:
  /// Rounds without a message after which an acknowledgement goes out: about a millisecond. The short patience holds
  /// while the sender may wait for a slot.
  static constexpr uint32_t kPatience = 2000;
  static constexpr uint32_t kShortPatience = 8;

  Result<bool> take_arrivals();
  Status begin(Arrival arrival);
  Result<bool> advance();
  Result<bool> acknowledge(bool settles);
  bool is_due(bool settles) const;
  Result<bool> or_lose(Result<bool> moved);
  Result<bool> connect_back();
  bool call_sender();
  void lose(const Status& why);
  void drop();
  std::chrono::nanoseconds grace() const;

  Route route_;
  int64_t generation_ = -1;     // of the connections; -1: there were none
  std::unique_ptr<Dial> call_;  // news of the loss
  size_t calls_ = 0;
  Clock::time_point called_at_;

  Acknowledgement acknowledgement_{};  // outlives its channel
  std::unique_ptr<Dial> dial_;         // of the acknowledgements
  std::unique_ptr<Channel> acknowledges_;
  void* acknowledges_registration_ = nullptr;
  void* acknowledging_ = nullptr;  // request
  bool introduced_ = false;        // an acknowledgement of this generation is on its way
  uint32_t waits_ = 0;             // rounds since the latest message
};

}  // namespace tutti::transport
