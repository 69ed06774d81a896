// SPDX-License-Identifier: Apache-2.0
// Failures and log lines of all ranks of a job: each text is printed once per job, not once per rank.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/status.h"

namespace tutti::tools {

/// Why one rank failed.
struct Failure {
  int rank = 0;
  std::chrono::steady_clock::time_point time;  ///< the rank that detects a failure is earlier than ranks it tells
  std::string text;
};
Failure failure_now(int rank, const Status& status);

/// Lines "ranks 0-2: text", a line for each distinct cause: the earliest first, which is the cause of later lines.
/// "kind: text" of rank 1 and "kind: rank 1: text" of a rank that rank 1 told have one cause; the line names rank 1.
std::vector<std::string> lines_of(std::vector<Failure> failures);
/// Prints them on stderr, behind all that was printed on stdout.
void print(std::vector<Failure> failures);

/// Which rank wrote a line first. All bytes zero: none. In memory that the processes of a job share; any thread.
class LoggedLines {
 public:
  /// False for a line that a different rank has written before. Past some hundred distinct lines always true.
  bool claim(int rank, std::string_view text);

 private:
  /// Hash of the line and the rank's number, plus 1, in the low bits; 0: free.
  std::array<std::atomic<uint64_t>, 512> lines_{};
  static_assert(std::atomic<uint64_t>::is_always_lock_free);
};

/// For this process, and processes that it forks from now on: writes a warning or an error to the log only if no other
/// rank has written the same line.
Status log_once_per_job();

}  // namespace tutti::tools
