// SPDX-License-Identifier: Apache-2.0
// Memory of a GPU that other GPUs reach over NVLink or PCI; ranks of other processes map it by CUDA IPC.
#pragma once

#include <vector>

#include "device/cuda/runtime.h"
#include "transport/heap.h"

namespace tutti::transport {

/// Memory of GPUs that reach each other. Threads: as Heap.
class P2pHeap : public Heap {
 public:
  explicit P2pHeap(int device) : device_(device) {}
  Result<Block> make(uint64_t bytes) override;
  Result<uint8_t*> open(const Address& address) override;
  void close() override { opened_.clear(); }

 private:
  int device_;
  std::vector<cuda::DeviceMemory> made_;
  std::vector<cuda::PeerMemory> opened_;
};

}  // namespace tutti::transport
