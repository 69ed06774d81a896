// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/allocation.h"

#include <fmt/format.h>

#include "device/cuda/driver.h"

namespace tutti::cuda {

uint64_t allocation_id(const void* pointer) {
  static const auto attribute = driver_function<decltype(&cuPointerGetAttribute)>("cuPointerGetAttribute");
  if (attribute == nullptr) return 0;
  unsigned long long id = 0;
  const auto ask = [&] { return attribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, driver_pointer(pointer)); };
  if (ask() == CUDA_SUCCESS) [[likely]]
    return id;
  const CaptureScope capture;
  cudaFree(nullptr);  // a new thread has no context until its first call of the runtime
  return ask() == CUDA_SUCCESS ? id : 0;
}

Result<Allocation> allocation_of(const void* pointer, int device) {
  const DeviceScope scope(device);
  cudaPointerAttributes attributes{};
  TUTTI_CUDA_TRY(cudaPointerGetAttributes(&attributes, pointer));
  if (attributes.type != cudaMemoryTypeDevice || attributes.device != device) {
    return Status(Code::kUnsupported, fmt::format("it is no memory of GPU {}", device));
  }
  static const auto range = driver_function<decltype(&cuMemGetAddressRange)>("cuMemGetAddressRange");
  CUdeviceptr begin = 0;
  size_t bytes = 0;
  Allocation allocation;
  allocation.id = allocation_id(pointer);
  if (range == nullptr || allocation.id == 0 || range(&begin, &bytes, driver_pointer(pointer)) != CUDA_SUCCESS) {
    return Status(Code::kUnsupported, "CUDA does not say which allocation it is part of");
  }
  allocation.begin = reinterpret_cast<uint8_t*>(static_cast<uintptr_t>(begin));  // NOLINT(performance-no-int-to-ptr)
  allocation.bytes = bytes;
  return allocation;
}

Result<MemoryAddress> export_allocation(const Allocation& allocation, int device) {
  const DeviceScope scope(device);
  auto address = export_memory(allocation.begin, allocation.bytes, device);
  if (address.ok()) return address;
  cudaGetLastError();  // clears the error: it is no failure
  return Status(Code::kUnsupported, fmt::format("CUDA does not share it between processes, take it from cudaMalloc: {}",
                                                address.status().text()));
}

}  // namespace tutti::cuda
