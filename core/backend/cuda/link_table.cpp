// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/link_table.h"

#include <bit>

namespace tutti::backend {

uint32_t LinkTable::row_of(uint32_t ctas) {
  return static_cast<uint32_t>(std::bit_width(ctas - 1));
}

bool LinkTable::merge(uint32_t row, std::span<const tutti_cuda_link> links) {
  bool changed = false;
  const auto set = [&](auto& field, auto value) {
    if (value == nullptr || field == value) return;
    field = value;
    changed = true;
  };
  for (uint32_t rank = 0; rank < rank_count_; ++rank) {
    tutti_cuda_link& link = links_[size_t{row} * rank_count_ + rank];
    set(link.to, links[rank].to);
    set(link.from, links[rank].from);
    set(link.at, links[rank].at);
    set(link.of, links[rank].of);
    set(link.lengths, links[rank].lengths);
    set(link.scattered, links[rank].scattered);
  }
  return changed;
}

}  // namespace tutti::backend
