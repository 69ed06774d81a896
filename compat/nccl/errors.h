// SPDX-License-Identifier: Apache-2.0
// How failures leave: as a result code, with a text that ncclGetLastError hands out and the log shows.
#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>

#include "nccl/nccl.h"
#include "tutti/status.h"

namespace tutti::nccl {

/// The result code for a failure of Tutti.
ncclResult_t result_of(Code code);

/// Keeps the text as the last error, logs it as a warning, and returns the result.
ncclResult_t fail_with(ncclResult_t result, std::string text);

template <class... Args>
ncclResult_t fail(ncclResult_t result, fmt::format_string<Args...> format, Args&&... args) {
  return fail_with(result, fmt::format(format, std::forward<Args>(args)...));
}

/// ncclSuccess, or fail() with the status's text.
ncclResult_t report(const Status& status);

}  // namespace tutti::nccl

/// Returns the result of `expression` from the calling function unless it is ncclSuccess.
#define TUTTI_NCCL_TRY(expression)                                                         \
  do {                                                                                     \
    if (const ncclResult_t result_ = (expression); result_ != ncclSuccess) return result_; \
  } while (false)
