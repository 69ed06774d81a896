// SPDX-License-Identifier: Apache-2.0
// Memory and its registration. Tutti moves data through its own memory, so that any of the GPU's memory will do; large
// calls on windows go straight to the outputs of other ranks.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <memory>

#include "device/cuda/runtime.h"
#include "nccl/api.h"
#include "nccl/comm.h"
#include "nccl/errors.h"
#include "nccl/group.h"

using namespace tutti::nccl;

TUTTI_NCCL(ncclResult_t, ncclMemAlloc, (void** memory, size_t size)) {
  return report(tutti::cuda::check(cudaMalloc(memory, size), "cudaMalloc for ncclMemAlloc"));
}

TUTTI_NCCL(ncclResult_t, ncclMemFree, (void* memory)) {
  if (memory == nullptr) return ncclSuccess;
  return report(tutti::cuda::check(cudaFree(memory), "cudaFree for ncclMemFree"));
}

TUTTI_NCCL(ncclResult_t, ncclCommRegister, (ncclComm_t comm, void* buffer, size_t size, void** handle)) {
  TUTTI_NCCL_TRY(check_usable(comm, "CommRegister"));
  if (buffer == nullptr || size == 0 || handle == nullptr) {
    return fail(ncclInvalidArgument, "CommRegister: the buffer or the place for the handle is null, or the size is 0");
  }
  *handle = comm->registrations.emplace_back(std::make_unique<char>()).get();
  return ncclSuccess;
}

TUTTI_NCCL(ncclResult_t, ncclCommDeregister, (ncclComm_t comm, void* handle)) {
  TUTTI_NCCL_TRY(check_handle(comm, "CommDeregister"));
  if (handle == nullptr) return ncclSuccess;
  auto& all = comm->registrations;
  const auto entry = std::find_if(all.begin(), all.end(), [&](const auto& own) { return own.get() == handle; });
  if (entry == all.end()) return fail(ncclInvalidUsage, "CommDeregister: the handle is none of this communicator");
  all.erase(entry);
  return ncclSuccess;
}

// A null window says that there is no symmetric memory. Applications then work without it; their kernels would read the
// memory of any other value. If the application promises equal offsets on all ranks, the buffer is registered anyway.
// Null windows cannot be distinguished. So all registrations stay until the same number was deregistered, or until
// their memory is freed, which Tutti detects at the next use of the address.
TUTTI_NCCL(ncclResult_t, ncclCommWindowRegister,
           (ncclComm_t comm, void* buffer, size_t size, ncclWindow_t* window, int flags)) {
  TUTTI_NCCL_TRY(check_usable(comm, "CommWindowRegister"));
  if (buffer == nullptr || size == 0 || window == nullptr) {
    return fail(ncclInvalidArgument,
                "CommWindowRegister: the buffer or the place for the window is null, or the size "
                "is 0");
  }
  *window = nullptr;
  if ((flags & NCCL_WIN_COLL_SYMMETRIC) == 0) return ncclSuccess;
  return remember(submit(WindowRequest{comm, buffer, size}));
}

TUTTI_NCCL(ncclResult_t, ncclCommWindowDeregister, (ncclComm_t comm, ncclWindow_t window)) {
  TUTTI_NCCL_TRY(check_handle(comm, "CommWindowDeregister"));
  if (window == nullptr) {
    end_window(*comm);
    return ncclSuccess;
  }
  return fail(ncclInvalidUsage, "CommWindowDeregister: the window is none of this communicator");
}
