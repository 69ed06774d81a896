// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/driver.h"

namespace tutti::cuda {

void* find_driver_function(const char* name) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found{};
#if CUDART_VERSION >= 12050
  const cudaError_t error = cudaGetDriverEntryPointByVersion(name, &function, 12000, cudaEnableDefault, &found);
#else
  const cudaError_t error = cudaGetDriverEntryPoint(name, &function, cudaEnableDefault, &found);
#endif
  if (error == cudaSuccess && found == cudaDriverEntryPointSuccess) return function;
  cudaGetLastError();  // clears the error: it is no failure
  return nullptr;
}

}  // namespace tutti::cuda
