// SPDX-License-Identifier: Apache-2.0
// Memory that the application has allocated: what it is part of, and how other processes map that.
#pragma once

#include "device/cuda/runtime.h"

namespace tutti::cuda {

/// An allocation of this process.
struct Allocation {
  uint8_t* begin = nullptr;
  uint64_t bytes = 0;
  uint64_t id = 0;  ///< of no other allocation of this process, before or after
};

/// The one that an address lies in. kUnsupported: it is no memory of this GPU alone.
Result<Allocation> allocation_of(const void* pointer, int device);
/// Its id; 0: there is no memory, or none that CUDA knows.
uint64_t allocation_id(const void* pointer);

/// kUnsupported where CUDA does not share it with other processes.
Result<MemoryAddress> export_allocation(const Allocation& allocation, int device);

}  // namespace tutti::cuda
