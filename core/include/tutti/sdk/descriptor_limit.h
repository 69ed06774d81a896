// SPDX-License-Identifier: Apache-2.0
// The limit of open files of this process.
#pragma once

#include <sys/resource.h>

#include <cerrno>
#include <string>

namespace tutti::sdk {

/// For a process that is out of descriptors: raises its soft limit (`ulimit -n`) to the hard limit. False: the limit is
/// there already, or the system refuses. Any thread.
inline bool raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= limit.rlim_max) return false;
  limit.rlim_cur = limit.rlim_max;
  return ::setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

/// Goes behind the text of a failure with errno `error`: the limit and the remedy, if the process is out of
/// descriptors; else empty. Any thread.
inline std::string descriptor_remedy(int error) {
  rlimit limit{};
  if (error != EMFILE || ::getrlimit(RLIMIT_NOFILE, &limit) != 0) return {};
  return ": this process may have " + std::to_string(limit.rlim_cur) + " descriptors; raise the limit (ulimit -n)";
}

}  // namespace tutti::sdk
