// SPDX-License-Identifier: Apache-2.0
// Functions of CUDA's driver, which the runtime finds: nothing links the driver's library.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdint>

namespace tutti::cuda {

/// Null: the driver has none of that name.
void* find_driver_function(const char* name);

template <class Function>
Function driver_function(const char* name) {
  return reinterpret_cast<Function>(find_driver_function(name));
}

inline CUdeviceptr driver_pointer(const void* pointer) {
  return static_cast<CUdeviceptr>(reinterpret_cast<uintptr_t>(pointer));
}

}  // namespace tutti::cuda
