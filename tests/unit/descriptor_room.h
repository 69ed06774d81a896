// SPDX-License-Identifier: Apache-2.0
// The room in the table of the descriptors of this process, as the kernel tells it.
#pragma once

#include <sys/resource.h>

#include <algorithm>
#include <fstream>
#include <string>

#include "base/descriptors.h"

namespace tutti::test {

inline size_t descriptor_room() {
  std::ifstream status("/proc/self/status");
  size_t room = 0;
  for (std::string word; status >> word;) {
    if (word == "FDSize:") status >> room;
  }
  return room;
}

/// `wanted`, or the limit of open files if it is lower.
inline size_t within_limit(size_t wanted) {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  return std::min<size_t>(wanted, limit.rlim_cur);
}

}  // namespace tutti::test
