// SPDX-License-Identifier: Apache-2.0
// One rail of a connection: a port, its queue pairs to the port of the other end, and their completion queue.
#pragma once

#include <infiniband/verbs.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "device.h"
#include "events.h"
#include "queue_pair.h"
#include "settings.h"
#include "tutti/status.h"
#include "wire.h"

namespace tutti::net_ib {

/// Purpose of a work request. The request's number carries the purpose and a value, because a completion with an error
/// has nothing else that is valid.
enum class Work : uint8_t { kReceive, kData, kRecord, kControl, kFlush };
constexpr uint64_t work_number(Work work, uint32_t value) {
  return static_cast<uint64_t>(work) << 32 | value;
}
constexpr Work work_of(uint64_t number) {
  return static_cast<Work>(number >> 32);
}
constexpr uint32_t value_of(uint64_t number) {
  return static_cast<uint32_t>(number);
}

/// Thread-compatible.
class Rail {
 public:
  static constexpr uint32_t kSends = 80;                ///< requests of one queue pair: 64, and some to spare
  static constexpr uint32_t kSpare = 8;                 ///< sends that only control messages use
  static constexpr uint32_t kReceives = kRecords + 32;  ///< of one queue pair; some to spare, to post them in batches

  /// A live rail serves. A closing rail waits for the completions of all that is posted. A drained rail takes nothing
  /// from the network any more. A lost rail is drained, and the other end has sent its report.
  enum class State { kLive, kClosing, kDrained, kLost };

  /// Makes the queue pairs. `mailbox` is the memory that the other end writes.
  static Result<std::unique_ptr<Rail>> create(const Settings& settings, Events& events, const Port& port,
                                              uint32_t queue_pairs, RdmaMailbox& mailbox);
  /// The queue pairs go first, so that the device touches no memory afterwards.
  ~Rail();
  Rail(const Rail&) = delete;
  Rail& operator=(const Rail&) = delete;

  /// Connects the queue pairs to those of the other end; the smaller count of both ends is used.
  Status connect(const Settings& settings, const Endpoint& peer);

  const Port& port() const { return port_; }
  const Endpoint& own() const { return own_; }
  const Endpoint& peer() const { return peer_; }
  uint32_t mailbox_key() const { return mailbox_->region->lkey; }
  ibv_cq* queue() const { return queue_->get(); }
  uint32_t queue_pairs() const { return static_cast<uint32_t>(pairs_.size()); }

  /// Whether the queue pair takes a further send; `spare`: a control message.
  bool has_room(uint32_t pair, bool spare = false) const { return open_[pair].sends + (spare ? 0 : kSpare) < kSends; }
  /// Posts a write to the other end. Only with has_room.
  Status post_write(uint32_t pair, uint64_t number, const Local& from, uint64_t address, uint32_t key,
                    uint32_t immediate);
  /// Reads the last byte of a range through a queue pair that is connected to itself. The read ends after all writes
  /// that the device made before it.
  Status post_flush(const Settings& settings, uint64_t number, uint64_t last_byte, uint32_t key);
  /// Counts the completion of a posted request, other than a flush. The place of its queue pair. kInternal: it is none
  /// of this rail.
  Result<uint32_t> count(const ibv_wc& completion);
  /// Posts receives again, in batches, for those that completions used up.
  Status replenish(uint32_t pair);

  State state() const { return state_; }
  /// Moves the queue pairs into the error state: they take nothing from the network any more.
  void close(const Status& why);
  /// Why the rail was closed.
  const Status& why() const { return why_; }
  /// Moves on from kClosing where all completions have come. kDevice: the device has not given them in time.
  Status drain(std::chrono::milliseconds limit);
  void set_lost() { state_ = State::kLost; }
  /// Whether the port has gone down since the rail was made, or the device has failed.
  bool is_down() const;

  // Messages about this rail, when it is not live:
  bool told = false;        ///< the other end is told, or the message is on its way
  bool heard = false;       ///< the other end has told that it has given the rail up
  uint32_t told_by = 0;     ///< the rail that carries the message
  uint32_t heard_from = 0;  ///< the rail that carried the message of the other end

 private:
  using Clock = std::chrono::steady_clock;
  struct Open {
    uint32_t sends = 0;
    uint32_t receives = 0;
    uint32_t used = 0;  ///< receives to be posted again
  };
  /// The queue pair for flush, made when it is first needed.
  struct Loop {
    QueuePair pair;
    Registration* memory = nullptr;
    uint64_t byte = 0;  ///< target of the reads
  };
  explicit Rail(Port port) : port_(std::move(port)) {}
  Status make_loop(const Settings& settings);
  void describe(const RdmaMailbox& mailbox);

  Port port_;
  std::unique_ptr<Queue> queue_;
  Registration* mailbox_ = nullptr;
  std::vector<QueuePair> pairs_;
  std::vector<Open> open_;  // by queue pair
  std::unique_ptr<Loop> loop_;
  Endpoint own_;
  Endpoint peer_;
  uint32_t downs_ = 0;  // times that the port had gone down when the rail was made
  State state_ = State::kLive;
  Status why_;
  Clock::time_point closed_at_{};
};

}  // namespace tutti::net_ib
