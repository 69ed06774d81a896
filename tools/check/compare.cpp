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
void compare_values(size_t index, const T* output, const double* values, const double* bounds, size_t count,
                    Comparison& result) {
  for (size_t i = 0; i < count; ++i) {
    const double value = value_of(output[i]);
    if (std::abs(value - values[i]) <= bounds[i]) continue;  // false for a NaN
    if (result.wrong++ == 0) {
      result.first =
          fmt::format("element {} is {:.9g}, must be {:.9g} ± {:.3g}", index + i, value, values[i], bounds[i]);
    }
  }
}

template <class T>
void compare_copies(const Problem& problem, const Part& part, const T* output, Comparison& result) {
  std::vector<T> expected(std::min(kBatch, part.count));
  for (size_t done = 0; done < part.count; done += kBatch) {
    const size_t count = std::min(kBatch, part.count - done);
    fill_input(problem, part.source, part.input_first + done, count, expected.data());
    compare_bits(part.output_first + done, output + done, expected.data(), count, result);
  }
}

}  // namespace

void Comparison::add(const Comparison& other) {
  if (wrong == 0) first = other.first;
  wrong += other.wrong;
}

Comparison compare(const Problem& problem, const Part& part, const Reference& reference, const void* output) {
  Comparison result;
  with_element(problem.type, [&]<class T>(T) {
    const auto* elements = static_cast<const T*>(output);
    if (!reduces(problem.collective)) return compare_copies(problem, part, elements, result);
    const size_t begin = part.input_first - reference.first();
    if (reference.exact().empty()) {
      compare_values(part.output_first, elements, reference.values().data() + begin, reference.bounds().data() + begin,
                     part.count, result);
    } else {
      compare_bits(part.output_first, elements, reinterpret_cast<const T*>(reference.exact().data()) + begin,
                   part.count, result);
    }
  });
  return result;
}

Comparison compare(const Problem& problem, const Reference& reference, int rank, const void* output) {
  Comparison result;
  const auto* bytes = static_cast<const std::byte*>(output);
  for (const Part& part : sampled_output(problem, rank, SIZE_MAX)) {
    result.add(compare(problem, part, reference, bytes + part.output_first * size_of(problem.type)));
  }
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
