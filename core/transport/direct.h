// SPDX-License-Identifier: Apache-2.0
// Memory of this rank's GPU that a network moves itself ("direct"), without a copy in memory of the host.
#pragma once

#include <vector>

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
  void close() override {}

 private:
  int device_;
  bool dmabuf_;
  std::vector<cuda::DeviceMemory> made_;
};

}  // namespace tutti::transport
