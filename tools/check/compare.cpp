// SPDX-License-Identifier: Apache-2.0
#include "tools/check/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "tools/check/element.h"
#include "tools/check/random_input.h"

namespace tutti::check {
namespace {

constexpr size_t kBatch = 8192;

template <class T>
std::string text_of(T element) {
  if constexpr (std::is_integral_v<T>)
    return fmt::format("{}", element);
  else
    return fmt::format("{:.9g}", value_of(element));
}

template <class T>
uint64_t bits_of(const T& element) {
  uint64_t bits = 0;
  std::memcpy(&bits, &element, sizeof(T));
  return bits;
}

template <class T>
std::string text_with_bits(T element) {
  return fmt::format("{} (bits {:0{}x})", text_of(element), bits_of(element), 2 * sizeof(T));
}

/// Adds the elements that differ in a bit; `index` is where the range begins in the output.
template <class T>
void compare_bits(size_t index, const T* output, const T* expected, size_t count, Comparison& result) {
  for (size_t i = 0; i < count; ++i) {
    if (bits_of(output[i]) == bits_of(expected[i])) continue;
    if (result.wrong++ == 0) {
      result.first = fmt::format("element {} is {}, must be {}", index + i, text_with_bits(output[i]),
                                 text_with_bits(expected[i]));
    }
  }
}

template <class T>
void compare_values(const T* output, const double* values, const double* bounds, size_t count, Comparison& result) {
  for (size_t i = 0; i < count; ++i) {
    const double value = value_of(output[i]);
    if (std::abs(value - values[i]) <= bounds[i]) continue;  // false for a NaN
    if (result.wrong++ == 0) {
      result.first = fmt::format("element {} is {:.9g}, must be {:.9g} ± {:.3g}", i, value, values[i], bounds[i]);
    }
  }
}

/// Where a block of an output comes from.
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

template <class T>
void compare_copies(const Problem& problem, int rank, const T* output, Comparison& result) {
  std::vector<T> expected(kBatch);
  size_t index = 0;
  for (const Block& block : sources(problem, rank)) {
    for (size_t done = 0; done < block.count; done += kBatch) {
      const size_t count = std::min(kBatch, block.count - done);
      fill_input(problem, block.rank, block.offset + done, count, expected.data());
      compare_bits(index + done, output + index + done, expected.data(), count, result);
    }
    index += block.count;
  }
}

}  // namespace

Comparison compare(const Problem& problem, const Reference& reference, int rank, const void* output) {
  Comparison result;
  with_element(problem.type, [&]<class T>(T) {
    const auto* elements = static_cast<const T*>(output);
    if (!reduces(problem.collective)) return compare_copies(problem, rank, elements, result);
    const bool scattered = problem.collective == Collective::kReduceScatter;
    const size_t begin = (scattered ? problem.count * static_cast<size_t>(rank) : 0) - reference.first();
    const size_t count = output_elements(problem, rank);
    if (reference.exact().empty()) {
      compare_values(elements, reference.values().data() + begin, reference.bounds().data() + begin, count, result);
    } else {
      compare_bits(0, elements, reinterpret_cast<const T*>(reference.exact().data()) + begin, count, result);
    }
  });
  return result;
}

size_t count_written(const void* output, size_t bytes) {
  const auto* begin = static_cast<const unsigned char*>(output);
  unsigned char poisoned = 0;
  poison(&poisoned, 1);
  return bytes - static_cast<size_t>(std::count(begin, begin + bytes, poisoned));
}

uint64_t hash(const void* data, size_t bytes) {
  const auto* begin = static_cast<const unsigned char*>(data);
  uint64_t value = mix(bytes);
  for (size_t i = 0; i < bytes; i += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, begin + i, std::min(sizeof(word), bytes - i));
    value = mix(value ^ word);
  }
  return value;
}

bool same_everywhere(Collective collective) {
  return collective == Collective::kAllReduce || collective == Collective::kAllGather ||
         collective == Collective::kBroadcast;
}

}  // namespace tutti::check
