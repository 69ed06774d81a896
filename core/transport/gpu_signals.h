// SPDX-License-Identifier: Apache-2.0
// The mailboxes through which a process speaks with its GPU about one connection to a GPU on a different host. The
// process carries the messages of this connection (relay.h, line_relay.h, carried_relay.h, carried_line_relay.h).
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

#include "tutti/plugin/cuda.h"

namespace tutti::transport {

/// The mailboxes are memory of the host. One thread at a time.
class GpuSignals {
 public:
  /// `at`: mailbox in which the GPU signals the peer; `of`: mailbox in which the GPU is signaled.
  GpuSignals(tutti_cuda_mailbox* at, tutti_cuda_mailbox* of) : at_(at), of_(of), done_(load(at->done)) {}

  /// The GPU has filled slots for messages before this number.
  uint32_t tail() const { return load(at_->tail); }
  /// The GPU is done with messages before this number, which never falls. The number in the mailbox may fall: at the
  /// end of a wave, a kernel signals all peers the number that is right for the peer with the largest lag.
  uint32_t done() const {
    const uint32_t now = load(at_->done);
    if (is_after(now, done_)) done_ = now;
    return done_;
  }
  /// Tells the GPU that messages before this number have come.
  void deliver(uint32_t tail) { store(of_->tail, tail); }
  /// Tells the GPU that the peer is done with messages before this number. The number may have been told before.
  void hear(uint32_t done) {
    if (peer_done_ && !is_after(done, *peer_done_)) return;
    peer_done_ = done;
    store(of_->done, done);
  }

  /// Numbers of messages are counted modulo 2^32.
  static bool is_after(uint32_t a, uint32_t b) { return static_cast<int32_t>(a - b) > 0; }

 private:
  // Partners of the GPU's loads and stores with system scope.
  static uint32_t load(uint32_t& word) { return std::atomic_ref<uint32_t>(word).load(std::memory_order_acquire); }
  static void store(uint32_t& word, uint32_t value) {
    std::atomic_ref<uint32_t>(word).store(value, std::memory_order_release);
  }

  tutti_cuda_mailbox* at_;
  tutti_cuda_mailbox* of_;
  mutable uint32_t done_;              // the largest number that this rank's GPU has signaled so far
  std::optional<uint32_t> peer_done_;  // nothing: the peer has said nothing so far
};

}  // namespace tutti::transport
