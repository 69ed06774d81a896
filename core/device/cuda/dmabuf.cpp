// SPDX-License-Identifier: Apache-2.0
#include "device/cuda/dmabuf.h"

#include <fmt/format.h>
#include <unistd.h>

#include "device/cuda/driver.h"
#include "device/cuda/runtime.h"

namespace tutti::cuda {
namespace {

uint64_t page_bytes() {
  return static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

}  // namespace

bool exports_dmabufs(int device) {
  static const auto attribute = driver_function<decltype(&cuDeviceGetAttribute)>("cuDeviceGetAttribute");
  int yes = 0;
  return attribute != nullptr && attribute(&yes, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, device) == CUDA_SUCCESS &&
         yes != 0;
}

Result<Dmabuf> export_dmabuf(const void* begin, uint64_t bytes, int device) {
  static const auto get_handle =
      driver_function<decltype(&cuMemGetHandleForAddressRange)>("cuMemGetHandleForAddressRange");
  if (get_handle == nullptr || !exports_dmabufs(device)) {
    return Status(Code::kUnsupported,
                  fmt::format("GPU {} or its driver exports no memory as a dmabuf; set net.direct to off", device));
  }
  const DeviceScope scope(device);
  const CUdeviceptr at = driver_pointer(begin);
  const CUdeviceptr first = at / page_bytes() * page_bytes();
  const CUdeviceptr end = (at + bytes + page_bytes() - 1) / page_bytes() * page_bytes();
  int fd = -1;
  const CUresult result = get_handle(&fd, first, end - first, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
  if (result != CUDA_SUCCESS) {
    return Status(
        Code::kUnsupported,
        fmt::format("cuMemGetHandleForAddressRange failed (CUresult {}) for {} bytes of GPU {}; set net.direct "
                    "to off",
                    static_cast<int>(result), end - first, device));
  }
  return Dmabuf{base::Fd(fd), at - first};
}

}  // namespace tutti::cuda
