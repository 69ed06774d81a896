// SPDX-License-Identifier: Apache-2.0
#include "tools/check/sample.h"

#include <algorithm>

namespace tutti::check {
namespace {

constexpr size_t kWindows = 64;

/// The origin of a block of an output.
struct Block {
  int rank;
  size_t offset;
  size_t count;
};

size_t offset_of_block(const Problem& problem, int from, int to) {
  size_t offset = 0;
  for (int peer = 0; peer < to; ++peer) offset += block_elements(problem, from, peer);
  return offset;
}

/// The blocks of the output of `rank`, in their order.
std::vector<Block> sources(const Problem& problem, int rank) {
  const int n = problem.rank_count;
  const size_t own = problem.count * static_cast<size_t>(rank);
  switch (problem.collective) {
    case Collective::kBroadcast:
      return {{problem.root, 0, problem.count}};
    case Collective::kScatter:
      return {{problem.root, own, problem.count}};
    case Collective::kSendRecv:
      return {{(rank + n - 1) % n, 0, problem.count}};
    case Collective::kReduceScatter:
      return {{rank, own, problem.count}};
    case Collective::kAllReduce:
    case Collective::kReduce:
      return {{rank, 0, output_elements(problem, rank)}};
    default:
      break;
  }
  if (output_elements(problem, rank) == 0) return {};
  std::vector<Block> blocks;
  for (int peer = 0; peer < n; ++peer) {
    const bool exchange = problem.collective == Collective::kAllToAll;
    blocks.push_back({peer, exchange ? offset_of_block(problem, peer, rank) : 0,
                      exchange ? block_elements(problem, peer, rank) : problem.count});
  }
  return blocks;
}

}  // namespace

std::vector<Range> sampled_input(const Problem& problem, int rank, size_t max_bytes) {
  const size_t elements = input_elements(problem, rank);
  const size_t bytes = bytes_of(problem);
  if (bytes <= max_bytes) return {{0, elements}};
  const double share = static_cast<double>(max_bytes) / static_cast<double>(bytes);
  const auto sampled = static_cast<size_t>(static_cast<double>(elements) * share);
  const size_t width = std::clamp<size_t>(sampled / kWindows, std::min<size_t>(elements, 1), elements);
  std::vector<Range> ranges;
  size_t end = 0;
  for (size_t i = 0; i < kWindows; ++i) {
    const auto place = static_cast<double>(i) / static_cast<double>(kWindows - 1);
    const size_t last = elements - width;
    const size_t first = std::max(end, std::min(last, static_cast<size_t>(static_cast<double>(last) * place)));
    end = std::min(elements, first + width);
    if (first < end) ranges.push_back({first, end - first});
  }
  return ranges;
}

std::vector<Part> sampled_output(const Problem& problem, int rank, size_t max_bytes) {
  std::vector<Part> parts;
  size_t output_first = 0;
  for (const Block& block : sources(problem, rank)) {
    for (const Range& range : sampled_input(problem, block.rank, max_bytes)) {
      const size_t first = std::max(range.first, block.offset);
      const size_t end = std::min(range.first + range.count, block.offset + block.count);
      if (first < end) parts.push_back({block.rank, first, output_first + first - block.offset, end - first});
    }
    output_first += block.count;
  }
  return parts;
}

}  // namespace tutti::check
