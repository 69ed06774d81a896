// SPDX-License-Identifier: Apache-2.0
// Memory of the host for this rank alone, mapped by its GPU: relays carry its data to other hosts.
#pragma once

#include <vector>

#include "device/cuda/runtime.h"
#include "transport/heap.h"

namespace tutti::transport {

/// Pinned memory of the host for this rank alone. Threads: as Heap.
class PinnedHeap : public Heap {
 public:
  Result<Block> make(uint64_t bytes) override;
  /// kInternal: no other rank sees it.
  Result<uint8_t*> open(const Address& address) override;
  void close() override {}

 private:
  std::vector<cuda::MappedMemory> made_;
};

}  // namespace tutti::transport
