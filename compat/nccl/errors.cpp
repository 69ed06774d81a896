// SPDX-License-Identifier: Apache-2.0
#include "nccl/errors.h"

#include <mutex>

#include "base/fork.h"
#include "log/log.h"
#include "nccl/api.h"

namespace tutti::nccl {
namespace {

// One error for the whole process, as applications expect it: often, a different thread asks for the text.
struct LastError {
  std::mutex mutex;
  std::string text;
};

LastError& last_error() {
  static LastError* const instance = [] {
    auto* const made = new LastError;  // never destroyed: threads may fail while the process ends
    base::hold_over_forks(made->mutex);
    return made;
  }();
  return *instance;
}

}  // namespace

ncclResult_t result_of(Code code) {
  switch (code) {
    case Code::kOk:
      return ncclSuccess;
    case Code::kAgain:
      return ncclInProgress;
    case Code::kInvalidArgument:
      return ncclInvalidArgument;
    case Code::kNotFound:
    case Code::kUnsupported:
    case Code::kFailedPrecondition:
    case Code::kVersionMismatch:
    case Code::kConfig:
    case Code::kMismatch:
      return ncclInvalidUsage;
    case Code::kSystem:
      return ncclSystemError;
    case Code::kDevice:
      return ncclUnhandledCudaError;
    case Code::kRemote:
    case Code::kTimeout:
    case Code::kAborted:
      return ncclRemoteError;
    case Code::kInternal:
      return ncclInternalError;
  }
  return ncclInternalError;
}

ncclResult_t fail_with(ncclResult_t result, std::string text) {
  log::warn("nccl: {}", text);
  LastError& last = last_error();
  const std::lock_guard lock(last.mutex);
  last.text = std::move(text);
  return result;
}

ncclResult_t report(const Status& status) {
  return status.ok() ? ncclSuccess : fail_with(result_of(status.code()), status.to_string());
}

}  // namespace tutti::nccl

TUTTI_NCCL(const char*, ncclGetErrorString, (ncclResult_t result)) {
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclUnhandledCudaError:
      return "unhandled cuda error";
    case ncclSystemError:
      return "unhandled system error";
    case ncclInternalError:
      return "internal error";
    case ncclInvalidArgument:
      return "invalid argument";
    case ncclInvalidUsage:
      return "invalid usage";
    case ncclRemoteError:
      return "remote error: a peer is lost or the network failed";
    case ncclInProgress:
      return "in progress";
    default:
      return "unknown result code";
  }
}

TUTTI_NCCL(const char*, ncclGetLastError, ([[maybe_unused]] ncclComm_t comm)) {
  thread_local std::string copy;  // stays as it is until this thread asks again
  tutti::nccl::LastError& last = tutti::nccl::last_error();
  const std::lock_guard lock(last.mutex);
  copy = last.text;
  return copy.c_str();
}

TUTTI_NCCL(ncclResult_t, ncclGetVersion, (int* version)) {
  if (version == nullptr) return tutti::nccl::fail(ncclInvalidArgument, "GetVersion: version is null");
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}
