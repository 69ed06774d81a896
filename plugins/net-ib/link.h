// SPDX-License-Identifier: Apache-2.0
// What both ends of a connection have: rails, the mailbox, and the TCP connection.
//
// A rail that breaks is given up while there is another one. Both ends then do the same, in this order: they move the
// queue pairs of the rail into the error state, wait for all completions, and write a Report of what they have received
// to the other end, over a live rail. The report of the other end decides which writes are repeated. While a rail is
// given up, nothing new is posted. So each part of a message and each record is written exactly once: a part that is
// repeated has not arrived, and cannot arrive any more over the rail that broke.
#pragma once

#include <infiniband/verbs.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "device.h"
#include "events.h"
#include "owners.h"
#include "rail.h"
#include "settings.h"
#include "tutti/sdk/plugin.h"
#include "tutti/status.h"
#include "wire.h"

namespace tutti::net_ib {

/// The common objects of a context's listeners and connections.
struct Shared {
  sdk::Host host;
  Settings settings;
  std::unique_ptr<Events> events;
};

/// Thread-compatible.
class Link {
 public:
  /// The sender or the receiver on this link.
  class User {
   public:
    /// A write of the other end has arrived: its immediate, and its bytes.
    virtual Status take(uint32_t immediate, uint32_t bytes) = 0;
    /// The own write or read is complete.
    virtual void complete(Work work, uint32_t value) = 0;
    /// It is unknown whether the own write over this rail has arrived.
    virtual void abandon(uint32_t rail, Work work, uint32_t value) = 0;
    /// Fills in the records and parts that this end has received.
    virtual void report(Report& out) const = 0;
    /// Repeats the writes over a lost rail that have not arrived.
    virtual Status resume(uint32_t rail, const Report& received) = 0;

   protected:
    ~User() = default;
  };
  /// A queue pair of a live rail.
  struct QueuePairRef {
    uint32_t rail = 0;
    uint32_t index = 0;  ///< in the rail
  };

  /// Makes queue pairs on `ports`, one rail each.
  static Result<std::unique_ptr<Link>> create(const Shared& shared, const std::vector<Port>& ports);
  ~Link();
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  /// The endpoints with which the other end can connect().
  Endpoints endpoints() const;
  /// Connects each rail to that of the other end. Rails that cannot be connected are left out, apart from the first.
  Status connect(const Endpoints& peer, bool sends);
  /// A bit for each rail that is connected.
  uint8_t connected() const;
  /// Leaves out the rails that the other end has left out. kMismatch: the bits are impossible.
  Status keep_rails(uint8_t bits);
  /// Takes the TCP connection of the exchange. `user` outlives the link's use.
  void keep(Fd exchange) { exchange_ = std::move(exchange); }
  void start(User& user);

  const Shared& shared() const { return shared_; }
  const std::vector<std::unique_ptr<Rail>>& rails() const { return rails_; }
  Rail& rail(uint32_t index) { return *rails_[index]; }
  RdmaMailbox& mailbox() { return *mailbox_; }
  /// The queue pairs of live rails. The first of them are on different rails.
  const std::vector<QueuePairRef>& queue_pairs() const { return queue_pairs_; }
  uint32_t live_rails() const;
  /// Whether each queue pair takes a further write, and no rail is being given up.
  bool has_room() const;

  /// Posts a write over a queue pair. Only where the queue pair has room.
  Status write(const QueuePairRef& queue_pair, Work work, uint32_t value, const Local& from, uint64_t address,
               uint32_t key, uint32_t immediate);
  /// Posts a write from the own mailbox to the same place of the other end's mailbox.
  Status write_mailbox(const QueuePairRef& queue_pair, Work work, uint32_t value, uint64_t from, uint32_t bytes,
                       uint64_t to, uint32_t immediate);

  /// Hands every completion to the user, until there is none left or the link breaks.
  void poll();
  /// Why the link is broken; ok: it is not.
  const Status& failure() const { return failure_; }
  void fail(const Status& why);
  /// "the connection from 10.0.0.1 (mlx5_0) to 10.0.0.2 (mlx5_1)".
  const std::string& ends() const { return ends_; }

 private:
  using Clock = std::chrono::steady_clock;
  explicit Link(const Shared& shared) : shared_(shared) {}
  bool poll(uint32_t index);
  Status take(uint32_t index, const ibv_wc& completion);
  void take_error(uint32_t index, const ibv_wc& completion);
  static void leave_out(Rail& rail, const Status& why);
  void renew_queue_pairs();
  /// Whether the TCP connection has ended, or the device has failed. Seldom a system call.
  Status check_peer();
  Status check_exchange();
  void check_ports();
  Status probe();

  // rescue.cpp
  Status take_control(uint32_t carrier, uint32_t immediate);
  void lose(uint32_t index, const Status& why);
  Status settle();
  Status tell(uint32_t index);
  Status all_lost() const;

  const Shared& shared_;
  std::unique_ptr<RdmaMailbox> mailbox_;
  std::vector<std::unique_ptr<Rail>> rails_;  // they go before the mailbox
  std::vector<QueuePairRef> queue_pairs_;
  uint32_t closing_ = 0;    // rails that are closing or drained
  bool unsettled_ = false;  // settle() has something to do
  User* user_ = nullptr;
  Fd exchange_;
  Stir stir_;
  uint32_t empty_polls_ = 0;
  Clock::time_point next_probe_{};
  std::string ends_;
  Status failure_;
};

}  // namespace tutti::net_ib
