// SPDX-License-Identifier: Apache-2.0
// The ranks of one test as threads.
#pragma once

#include <barrier>
#include <functional>
#include <thread>
#include <vector>

namespace tutti::matrix {

class Team {
 public:
  explicit Team(int rank_count) : rank_count_(rank_count), sync_(rank_count) {}
  int size() const { return rank_count_; }
  /// Runs `part` as every rank, each on a thread of its own.
  void run(const std::function<void(int rank)>& part) {
    std::vector<std::jthread> threads;
    threads.reserve(static_cast<size_t>(rank_count_));
    for (int rank = 0; rank < rank_count_; ++rank) threads.emplace_back([&part, rank] { part(rank); });
  }
  /// Waits until every rank of run() is here.
  void meet() { sync_.arrive_and_wait(); }

 private:
  int rank_count_;
  std::barrier<> sync_;
};

}  // namespace tutti::matrix
