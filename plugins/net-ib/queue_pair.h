// SPDX-License-Identifier: Apache-2.0
// One reliable connected queue pair.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

#include "device.h"
#include "owners.h"
#include "settings.h"
#include "tutti/status.h"
#include "wire.h"

namespace tutti::net_ib {

/// A range of local memory that a request reads or writes.
struct Local {
  uint64_t address = 0;
  uint32_t bytes = 0;
  uint32_t key = 0;
  bool on_gpu = false;  ///< the processor cannot read it
};

/// Thread-compatible.
class QueuePair {
 public:
  struct Depth {
    uint32_t sends = 0;
    uint32_t receives = 0;
  };
  /// Makes a queue pair in the state INIT. kSystem with the reason of the system, the limits and the remedy.
  static Result<QueuePair> create(const Port& port, const Settings& settings, ibv_cq* queue, Depth depth);

  uint32_t number() const { return pair_->qp_num; }
  /// The longest message that the queue pair takes into a work request.
  uint32_t inline_bytes() const { return inline_bytes_; }

  /// Connects to the queue pair `number` at `peer`; `psn` is the first packet number of this side.
  Status connect(const Port& port, const Settings& settings, const Endpoint& peer, uint32_t number, uint32_t psn);

  /// Moves into the error state: all posted requests end, and packets of the peer are dropped.
  void close();

  /// Posts receives without memory, for `count` messages that come with an immediate.
  Status post_receives(uint64_t id, uint32_t count);
  /// Writes `from` to `address`; `immediate` arrives with the last byte.
  Status post_write(uint64_t id, const Local& from, uint64_t address, uint32_t key, uint32_t immediate);
  /// Reads from `address` into `to`.
  Status post_read(uint64_t id, const Local& to, uint64_t address, uint32_t key);

 private:
  Status to_init(const Port& port, const Settings& settings);
  Status to_receive(const Port& port, const Settings& settings, const Endpoint& peer, uint32_t number);
  Status to_send(const Settings& settings, uint32_t psn);
  Status post(ibv_send_wr& request);

  RawQueuePair pair_;
  uint32_t inline_bytes_ = 0;
};

}  // namespace tutti::net_ib
