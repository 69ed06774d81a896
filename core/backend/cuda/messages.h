// SPDX-License-Identifier: Apache-2.0
// Sends and receives made ready for kernels, and kept: a group that is made again costs little more than a collective.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <vector>

#include "backend/call.h"
#include "backend/call_key.h"
#include "backend/cuda/programs.h"

namespace tutti::backend {

/// One thread at a time.
class GpuMessages {
 public:
  GpuMessages(uint32_t rank, GpuPrograms& programs) : rank_(rank), programs_(programs) {}

  /// The launches of sends and receives that progress together, in an order that is equal on both sides of every
  /// connection. They leave out messages of a rank to itself, and empty messages. Valid until the next call. The first
  /// call of a shape may wait for peers.
  Result<std::span<const GpuCall>> prepare(std::span<const Call> calls);

 private:
  /// The key of groups that can use the same launches: two words per call.
  using Shape = std::vector<uint64_t>;
  /// The launch of a call, and its message in that launch.
  struct MessageIndex {
    uint32_t launch = 0;
    uint32_t message = 0;
  };
  struct Batch {
    std::vector<GpuCall> launches;
    std::vector<MessageIndex> indices;  // by call that is not left out
  };
  struct Round;

  bool left_out(const Call& call) const { return call.count == 0 || call.root == static_cast<int>(rank_); }
  void find_shape(std::span<const Call> calls);
  Result<std::unique_ptr<Batch>> make(std::span<const Call> calls);
  void fill(std::span<const Call> calls, Batch& batch) const;

  uint32_t rank_;
  GpuPrograms& programs_;
  Shape shape_;  // shape of the prepared group; kept for its memory
  Kept<std::map<Shape, std::unique_ptr<Batch>>, 1024> kept_;
};

}  // namespace tutti::backend
