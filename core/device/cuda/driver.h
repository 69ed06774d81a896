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

/// The functions that map memory. Null: the driver has no function of that name.
struct MappingFunctions {
  decltype(&cuMemRelease) release = driver_function<decltype(release)>("cuMemRelease");
  decltype(&cuMemAddressReserve) reserve = driver_function<decltype(reserve)>("cuMemAddressReserve");
  decltype(&cuMemAddressFree) free = driver_function<decltype(free)>("cuMemAddressFree");
  decltype(&cuMemMap) map = driver_function<decltype(map)>("cuMemMap");
  decltype(&cuMemUnmap) unmap = driver_function<decltype(unmap)>("cuMemUnmap");
  decltype(&cuMemSetAccess) set_access = driver_function<decltype(set_access)>("cuMemSetAccess");

  bool is_whole() const {
    return release != nullptr && reserve != nullptr && free != nullptr && map != nullptr && unmap != nullptr &&
           set_access != nullptr;
  }
};

inline CUdeviceptr driver_pointer(const void* pointer) {
  return static_cast<CUdeviceptr>(reinterpret_cast<uintptr_t>(pointer));
}

}  // namespace tutti::cuda
