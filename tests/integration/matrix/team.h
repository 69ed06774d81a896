// SPDX-License-Identifier: Apache-2.0
// The ranks of one test as threads. Each thread may live in a network namespace, which is a host of its own to Tutti.
#pragma once

#include <barrier>
#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace tutti::matrix {

/// The files of network namespaces: the first part of the ranks of each team lives in the first one, and so on. None:
/// threads stay where they are. Set once, before the first team runs.
void set_namespaces(std::vector<std::string> files);

/// Moves the calling thread to the network namespace of a rank. Threads that it starts live there, too. Ends the
/// program if that fails.
void enter_namespace(int rank, int rank_count);

class Team {
 public:
  explicit Team(int rank_count) : rank_count_(rank_count), sync_(rank_count) {}
  int size() const { return rank_count_; }
  /// Runs `part` as every rank, each on a thread of its own.
  void run(const std::function<void(int rank)>& part) {
    std::vector<std::jthread> threads;
    threads.reserve(static_cast<size_t>(rank_count_));
    for (int rank = 0; rank < rank_count_; ++rank) {
      threads.emplace_back([this, &part, rank] {
        enter_namespace(rank, rank_count_);
        part(rank);
      });
    }
  }
  /// Waits until every rank of run() is here, except ranks that left.
  void meet() { sync_.arrive_and_wait(); }
  /// The calling rank meets the other ranks no more.
  void leave() { sync_.arrive_and_drop(); }

 private:
  int rank_count_;
  std::barrier<> sync_;
};

}  // namespace tutti::matrix
