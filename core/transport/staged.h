// SPDX-License-Identifier: Apache-2.0
// Memory of the host between GPUs that do not reach each other: shared by the ranks, and mapped by the GPU of each
// rank.
#pragma once

#include <vector>

#include "device/cuda/runtime.h"
#include "memory/arena.h"
#include "transport/heap.h"

namespace tutti::transport {

/// Shared memory of the host that GPUs map. Threads: as Heap.
class StagedHeap : public Heap {
 public:
  Result<Block> make(uint64_t bytes) override;
  Result<uint8_t*> open(const Address& address) override;
  void close() override { opened_.clear(); }

 private:
  struct Mapping {
    memory::Arena arena;
    cuda::RegisteredMemory registered;  // destroyed before the memory that it registers
  };
  static Result<Mapping> map(memory::Arena arena);

  std::vector<Mapping> made_;
  std::vector<Mapping> opened_;
};

}  // namespace tutti::transport
