// SPDX-License-Identifier: Apache-2.0
// Which process this is, to the ranks of other processes.
#pragma once

#include <cstdint>
#include <string>

namespace tutti::bootstrap {

/// A random number of this process. Names and process ids repeat among containers; this number does not.
uint64_t process_token();

/// The process of a rank.
struct RankProcess {
  std::string host;
  std::string origin;
  uint64_t process = 0;
};

std::string host_name();
/// "node7 pid 42"
std::string origin_of(const std::string& host, uint32_t pid);

}  // namespace tutti::bootstrap
