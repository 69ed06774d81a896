// SPDX-License-Identifier: Apache-2.0
// The transport between GPUs that reach each other's memory (NVLink, PCI): slots in the receiver's GPU.
#pragma once

#include <vector>

#include "bootstrap/bootstrap.h"
#include "device/cuda/runtime.h"
#include "tutti/plugin/cuda.h"
#include "tutti/plugin/protocol.h"

namespace tutti::transport {

/// CTAs that share connections: those of collectives, and those of sends and receives between two ranks.
struct P2pLane {
  uint64_t mailboxes_offset = 0;
  uint64_t slots_offset = 0;
  tutti_cuda_track* tracks = nullptr;
};

/// One rank's end of one protocol's connections to all others.
class P2p {
 public:
  struct Options {
    uint32_t rank = 0;
    uint32_t rank_count = 1;
    uint32_t collective_ctas = 1;
    uint32_t message_ctas = 1;  ///< per peer and direction
    tutti_slot_layout layout{};
  };
  /// Makes this rank's memory and maps the others'; collective over all ranks.
  static Result<P2p> create(const Options& options, int device, bootstrap::Bootstrap& bootstrap, base::Time deadline);

  const P2pLane& collectives() const { return collectives_; }
  const P2pLane& messages() const { return messages_; }
  const tutti_slot_layout& layout() const { return options_.layout; }
  uint32_t collective_ctas() const { return options_.collective_ctas; }
  /// Fills what a launch must know of slots and ranks.
  void describe(const P2pLane& lane, tutti_cuda_launch& launch) const;
  /// Of this GPU's memory.
  size_t bytes() const { return arena_.size() + tracks_.size(); }

 private:
  Options options_;
  cuda::DeviceMemory arena_;
  cuda::DeviceMemory tracks_;
  std::vector<cuda::PeerMemory> peers_;  // by rank; the own one is empty
  P2pLane collectives_;
  P2pLane messages_;
};

}  // namespace tutti::transport
