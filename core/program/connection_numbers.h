// SPDX-License-Identifier: Apache-2.0
// The numbers of a program's connections on GPUs (tutti_cuda_large_program.ranks).
//
// Threads: any. The class changes nothing after its creation.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "program/plan.h"
#include "program/program.h"

namespace tutti::program {

/// If the communicator has up to TUTTI_CUDA_MAX_CONNECTIONS + 1 ranks, numbers are ranks. Otherwise the ranks with
/// which the program has messages are numbered in ascending order.
class ConnectionNumbers {
 public:
  static ConnectionNumbers of(const Plan& plan);
  static ConnectionNumbers of(const Program& program, uint32_t rank_count);

  bool are_ranks() const { return are_ranks_; }
  /// The ranks by number; empty if numbers are ranks.
  std::span<const uint32_t> ranks() const { return ranks_; }
  /// Numbers are from 0 to below count(). If numbers are ranks, the own rank has one, too.
  uint32_t count() const { return are_ranks_ ? rank_count_ : static_cast<uint32_t>(ranks_.size()); }
  /// `rank`: with which the program has messages.
  uint32_t number_of(uint32_t rank) const;

 private:
  ConnectionNumbers(std::vector<uint32_t> peers, uint32_t rank_count);

  std::vector<uint32_t> ranks_;
  uint32_t rank_count_;
  bool are_ranks_;
};

}  // namespace tutti::program
