// SPDX-License-Identifier: Apache-2.0
// The limit of open files of this process.
#pragma once

#include <sys/resource.h>

namespace tutti::sdk {

/// For a process that is out of descriptors: raises its soft limit (`ulimit -n`) to the hard limit. False: the limit is
/// there already, or the system refuses. Any thread.
inline bool raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= limit.rlim_max) return false;
  limit.rlim_cur = limit.rlim_max;
  return ::setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

}  // namespace tutti::sdk
