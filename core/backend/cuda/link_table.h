// SPDX-License-Identifier: Apache-2.0
// The links of launches of the large form, as memory of the GPU holds them (tutti_cuda_tables.links): a row for each
// size of connections. An entry gets its slots once and then stays, so a launch that was captured may run again at any
// time. Makes no call of CUDA: the owner copies rows to the GPU.
//
// Threads: one at a time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tutti/plugin/cuda.h"

namespace tutti::backend {

class LinkTable {
 public:
  static constexpr uint32_t kRows = 7;  ///< sizes are powers of two up to TUTTI_CUDA_MAX_CTAS

  explicit LinkTable(uint32_t rank_count) : rank_count_(rank_count), links_(size_t{kRows} * rank_count) {}

  /// The row of connections for this number of CTAs, or of a message's stripes: from 1 to TUTTI_CUDA_MAX_CTAS.
  static uint32_t row_of(uint32_t ctas);
  /// Adds links, by rank; slots that are null are unknown or unused. Returns whether the row has changed.
  bool merge(uint32_t row, std::span<const tutti_cuda_link> links);

  std::span<const tutti_cuda_link> row(uint32_t row) const {
    return std::span(links_).subspan(size_t{row} * rank_count_, rank_count_);
  }
  std::span<const tutti_cuda_link> all() const { return links_; }

 private:
  uint32_t rank_count_;
  std::vector<tutti_cuda_link> links_;  // [row][rank]
};

}  // namespace tutti::backend
