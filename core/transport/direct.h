// SPDX-License-Identifier: Apache-2.0
// Memory of GPUs that a network moves itself ("direct"), without a copy in memory of the host: memory of this rank's
// GPU, or memory of a second GPU that is nearer to a port of the network (PXN).
#pragma once

#include <vector>

#include "device/cuda/lent_memory.h"
#include "device/cuda/runtime.h"
#include "transport/heap.h"

namespace tutti::transport {

/// Memory of this rank's GPU that a network moves. Threads: as Heap.
class DirectHeap : public Heap {
 public:
  /// `dmabuf`: the network registers descriptors of memory, not pointers.
  DirectHeap(int device, bool dmabuf) : device_(device), dmabuf_(dmabuf) {}
  Result<Block> make(uint64_t bytes) override;
  /// kInternal: no other rank sees it.
  Result<uint8_t*> open(const Address& address) override;
  /// kUnsupported where CUDA does not export the memory as a dmabuf.
  Result<MessageMemory> for_network(uint8_t* at, uint64_t bytes) override;
  Status write(uint8_t* at, const void* from, uint64_t bytes) override;
  void close() override {}

 private:
  int device_;
  bool dmabuf_;
  std::vector<cuda::DeviceMemory> made_;
};

/// Memory of a second GPU, which this rank's GPU reads and writes and a network moves. Threads: as Heap.
class LentHeap : public Heap {
 public:
  /// `owner`: the second GPU, which lends memory to `user` (cuda::why_not_lent). `dmabuf`: as for DirectHeap.
  LentHeap(int owner, int user, bool dmabuf) : owner_(owner), user_(user), dmabuf_(dmabuf) {}
  Result<Block> make(uint64_t bytes) override;
  /// kInternal: no other rank sees it.
  Result<uint8_t*> open(const Address& address) override;
  Result<MessageMemory> for_network(uint8_t* at, uint64_t bytes) override;
  void close() override {}

 private:
  int owner_;
  int user_;
  bool dmabuf_;
  std::vector<cuda::LentMemory> made_;
};

}  // namespace tutti::transport
