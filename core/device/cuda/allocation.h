// SPDX-License-Identifier: Apache-2.0
// Memory of the application: the allocation that contains an address, and its export to other processes.
#pragma once

#include "device/cuda/runtime.h"

namespace tutti::cuda {

/// An allocation of this process.
struct Allocation {
  uint8_t* begin = nullptr;
  uint64_t bytes = 0;
  uint64_t id = 0;  ///< differs from the id of every other allocation of this process, earlier or later
};

/// The allocation that contains an address. kUnsupported: the address is not in memory of this GPU alone.
Result<Allocation> allocation_of(const void* pointer, int device);
/// Its id; 0: there is no memory, or none that CUDA knows.
uint64_t allocation_id(const void* pointer);

/// kUnsupported where CUDA does not share it with other processes.
Result<MemoryAddress> export_allocation(const Allocation& allocation, int device);

}  // namespace tutti::cuda
