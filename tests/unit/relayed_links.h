// SPDX-License-Identifier: Apache-2.0
// Relays between emulated GPUs of different hosts: their slots and mailboxes, over a network in memory of this process.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "transport/line_relay.h"
#include "transport/net.h"
#include "unit/fake_network.h"

namespace tutti::test {

/// Rank r is on host r modulo `hosts`.
class RelayedLinks {
 public:
  struct Options {
    uint32_t rank_count = 1;
    uint32_t hosts = 1;
    uint32_t count = 1;  ///< connections of each pair of ranks
    tutti_slot_layout layout{};
    uint32_t first_number = 0;                        ///< the first sequence number
    std::function<void(const Status&)> on_failure{};  ///< by any thread
  };
  explicit RelayedLinks(Options options);
  ~RelayedLinks();

  bool relayed(uint32_t a, uint32_t b) const { return a % options_.hosts != b % options_.hosts; }
  /// The slots that a rank's GPU fills for a peer, and the mailboxes in which it signals the peer: by connection.
  uint8_t* to(uint32_t rank, uint32_t peer) { return bytes_of(slots_[pair(rank, peer)]); }
  tutti_cuda_mailbox* at(uint32_t rank, uint32_t peer) { return at_[pair(rank, peer)].data(); }
  /// Starts the relays of a rank to a peer. `from`: slots that the rank's GPU reads; `of`: mailboxes in which it is
  /// signaled. Before any kernel runs.
  void start(uint32_t rank, uint32_t peer, uint8_t* from, tutti_cuda_mailbox* of);

 private:
  size_t pair(uint32_t rank, uint32_t peer) const { return size_t{rank} * options_.rank_count + peer; }
  static uint8_t* bytes_of(std::vector<uint64_t>& words) { return reinterpret_cast<uint8_t*>(words.data()); }

  Options options_;
  uint64_t link_bytes_;
  FakeNetwork fake_;
  std::vector<std::vector<uint64_t>> slots_;           // by pair
  std::vector<std::vector<tutti_cuda_mailbox>> at_;    // by pair
  std::vector<tutti_bell> bells_;                      // by rank
  std::vector<std::unique_ptr<transport::Net>> nets_;  // by rank
};

}  // namespace tutti::test
