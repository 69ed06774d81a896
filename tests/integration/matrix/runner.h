// SPDX-License-Identifier: Apache-2.0
// Running cases, with ranks as threads of this process.
#pragma once

#include <barrier>
#include <functional>
#include <span>

#include "integration/matrix/cases.h"

namespace tutti::matrix {

struct Tally {
  size_t passed = 0;
  size_t failed = 0;
  size_t not_offered = 0;  ///< the algorithm or protocol that the setting forces cannot do the call
  Tally& operator+=(const Tally& other);
};

/// The ranks of one test as threads.
class Team {
 public:
  explicit Team(int rank_count) : rank_count_(rank_count), sync_(rank_count) {}
  int size() const { return rank_count_; }
  /// Runs `part` as every rank, each on a thread of its own.
  void run(const std::function<void(int rank)>& part);
  /// Waits until every rank of run() is here.
  void meet() { sync_.arrive_and_wait(); }

 private:
  int rank_count_;
  std::barrier<> sync_;
};

/// Runs cases that all have the same number of ranks. Failures are told on stderr as they occur.
Result<Tally> run_cases(std::span<const Case> cases);

}  // namespace tutti::matrix
