// SPDX-License-Identifier: Apache-2.0
// The checker of results finds wrong elements of each type, also errors that comparisons of floats easily miss.
#include "tools/check/compare.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <cstring>

#include "tools/check/element.h"
#include "tools/check/random_input.h"

namespace tutti::check {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

constexpr size_t kCount = 33;

std::vector<DataType> all_types() {
  std::vector<DataType> types;
  for (uint32_t type = 0; type < kDataTypeCount; ++type) types.push_back(static_cast<DataType>(type));
  return types;
}

template <class T>
T from_bits(uint64_t bits) {
  T element{};
  std::memcpy(&element, &bits, sizeof element);
  return element;
}

/// Bits of the value that a float type has for a not-a-number and for infinity; nothing: the type has none.
struct Special {
  std::optional<uint64_t> nan, infinity;
};
Special special_of(DataType type) {
  switch (type) {
    case DataType::kFloat16:
      return {0x7e00, 0x7c00};
    case DataType::kBfloat16:
      return {0x7fc0, 0x7f80};
    case DataType::kFloat32:
      return {0x7fc00000, 0x7f800000};
    case DataType::kFloat64:
      return {0x7ff8000000000000, 0x7ff0000000000000};
    case DataType::kFloat8E4M3:
      return {0x7f, std::nullopt};
    case DataType::kFloat8E5M2:
      return {0x7e, 0x7c};
    default:
      return {};
  }
}

/// The output of one rank, right at first.
class Output {
 public:
  Output(const Problem& problem, int rank)
      : problem_(problem), rank_(rank), reference_(Reference::for_rank(problem, rank)) {
    element_bytes_ = size_of(problem.type);
    bytes_.resize(output_elements(problem, rank) * element_bytes_);
    for (const Part& part : sampled_output(problem, rank, SIZE_MAX)) fill(part);
  }

  Comparison compare() const { return check::compare(problem_, reference_, rank_, bytes_.data()); }
  const Reference& reference() const { return reference_; }
  size_t size() const { return bytes_.size() / element_bytes_; }
  void set(size_t element, uint64_t bits) { std::memcpy(&bytes_[element * element_bytes_], &bits, element_bytes_); }
  void flip(size_t element, size_t bit) {
    bytes_[element * element_bytes_ + bit / 8] ^= static_cast<std::byte>(1u << bit % 8);
  }
  /// Puts the value of the element type that is nearest to `value` there.
  void set_value(size_t element, double value) {
    with_element(problem_.type, [&]<class T>(T) {
      if constexpr (device::SmallFloat<T>) {
        const auto rounded = device::narrow<T>(static_cast<float>(value));
        std::memcpy(&bytes_[element * element_bytes_], &rounded, sizeof rounded);
      } else {
        const T rounded = static_cast<T>(value);
        std::memcpy(&bytes_[element * element_bytes_], &rounded, sizeof rounded);
      }
    });
  }

 private:
  void fill(const Part& part) {
    std::byte* const at = bytes_.data() + part.output_first * element_bytes_;
    if (!reduces(problem_.collective)) return fill_input(problem_, part.source, part.input_first, part.count, at);
    const size_t begin = part.input_first - reference_.first();
    if (reference_.values().empty()) {
      std::memcpy(at, reference_.exact().data() + begin * element_bytes_, part.count * element_bytes_);
      return;
    }
    for (size_t i = 0; i < part.count; ++i) set_value(part.output_first + i, reference_.values()[begin + i]);
  }

  Problem problem_;
  int rank_;
  Reference reference_;
  size_t element_bytes_;
  std::vector<std::byte> bytes_;
};

Problem problem_of(Collective collective, DataType type, ReduceOp op = ReduceOp::kSum) {
  Problem problem;
  problem.collective = collective;
  problem.type = type;
  problem.op = op;
  problem.rank_count = 3;
  problem.count = kCount;
  problem.seed = 7;
  return problem;
}

class Compare : public testing::TestWithParam<DataType> {};

TEST_P(Compare, RightOutputsHaveNothingWrong) {
  for (uint32_t collective = 0; collective < kCollectiveCount; ++collective) {
    const Problem problem = problem_of(static_cast<Collective>(collective), GetParam());
    for (int rank = 0; rank < problem.rank_count; ++rank) {
      const Comparison comparison = Output(problem, rank).compare();
      EXPECT_EQ(comparison.wrong, 0u) << to_string(problem) << ": " << comparison.first;
      EXPECT_EQ(comparison.first, "");
    }
  }
}

TEST_P(Compare, AFlippedBitOfACopyIsFoundWhereverItIs) {
  const Problem problem = problem_of(Collective::kAllGather, GetParam());
  for (const size_t element : {size_t{0}, kCount - 1, kCount, 3 * kCount - 1}) {
    for (const size_t bit : {size_t{0}, 8 * size_of(GetParam()) - 1}) {
      Output output(problem, 1);
      output.flip(element, bit);
      const Comparison comparison = output.compare();
      EXPECT_EQ(comparison.wrong, 1u);
      EXPECT_THAT(comparison.first, StartsWith(fmt::format("element {} is ", element)));
      EXPECT_THAT(comparison.first, HasSubstr("(bits "));
    }
  }
}

TEST_P(Compare, WrongElementsOfSeveralPartsAreCounted) {
  const Problem problem = problem_of(Collective::kAllGather, GetParam());
  Output output(problem, 0);
  for (const size_t element : {size_t{4}, size_t{5}, kCount + 1, 2 * kCount + 2}) output.flip(element, 0);
  const Comparison comparison = output.compare();
  EXPECT_EQ(comparison.wrong, 4u);
  EXPECT_THAT(comparison.first, StartsWith("element 4 is ")) << "the first, not the last";
}

TEST_P(Compare, NanAndInfinityAreWrongSums) {
  const Special special = special_of(GetParam());
  for (const auto& bits : {special.nan, special.infinity}) {
    if (!bits) continue;
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kProd, ReduceOp::kMax}) {
      Output output(problem_of(Collective::kAllReduce, GetParam(), op), 0);
      output.set(3, *bits);
      output.set(kCount - 1, *bits);
      const Comparison comparison = output.compare();
      EXPECT_EQ(comparison.wrong, 2u) << "operator " << static_cast<int>(op);
      EXPECT_THAT(comparison.first, StartsWith(bits == special.infinity ? "element 3 is inf" : "element 3 is "));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, Compare, testing::ValuesIn(all_types()),
                         [](const auto& instance) { return std::string(to_string(instance.param)); });

TEST(CompareValues, ZerosDifferWhereResultsAreExact) {
  // -0 is not 0 in a copy, and not in a maximum.
  for (const Collective collective : {Collective::kAllGather, Collective::kAllReduce}) {
    Problem problem = problem_of(collective, DataType::kFloat32, ReduceOp::kMax);
    problem.count = 4096;  // some of the maxima are zeros
    Output output(problem, 0);
    const auto& exact = output.reference().exact();
    size_t zeros = 0;
    for (size_t i = 0; collective == Collective::kAllReduce && i < problem.count; ++i) {
      uint32_t bits = 0;
      std::memcpy(&bits, &exact[i * sizeof bits], sizeof bits);
      if ((bits << 1) != 0) continue;
      output.set(i, bits ^ 0x80000000u);
      ++zeros;
    }
    EXPECT_EQ(output.compare().wrong, zeros);
    EXPECT_EQ(zeros > 0, collective == Collective::kAllReduce);
  }
}

/// +0 is greater than -0: the maximum of zeros of both signs is +0, and their minimum is -0.
TEST(CompareValues, ZerosOfBothSignsAreOrdered) {
  for (const ReduceOp op : {ReduceOp::kMax, ReduceOp::kMin}) {
    Problem problem = problem_of(Collective::kAllReduce, DataType::kFloat32, op);
    problem.count = 16384;
    std::vector<std::vector<float>> inputs(static_cast<size_t>(problem.rank_count));
    for (int rank = 0; rank < problem.rank_count; ++rank) {
      auto& input = inputs[static_cast<size_t>(rank)];
      input.resize(problem.count);
      fill_input(problem, rank, 0, problem.count, input.data());
    }
    std::vector<float> results(problem.count);
    std::memcpy(results.data(), Reference::for_all(problem).exact().data(), problem.count * sizeof(float));
    size_t both = 0;
    for (size_t i = 0; i < problem.count; ++i) {
      bool has_plus = false, has_minus = false;
      for (const auto& input : inputs) {
        if (input[i] == 0) (std::signbit(input[i]) ? has_minus : has_plus) = true;
      }
      if (results[i] != 0 || !has_plus || !has_minus) continue;
      ++both;
      EXPECT_EQ(std::signbit(results[i]), op == ReduceOp::kMin) << i;
    }
    EXPECT_GT(both, 0U);
  }
}

/// Values at the border of the permitted range are right, and their neighbours beyond it are wrong.
TEST(CompareValues, BoundsOfSumsAreExact) {
  for (const DataType type : {DataType::kFloat32, DataType::kFloat64}) {
    for (const double sign : {-1.0, 1.0}) {
      Output output(problem_of(Collective::kAllReduce, type), 1);
      const Reference& reference = output.reference();
      ASSERT_EQ(reference.values().size(), kCount);
      for (size_t i = 0; i < kCount; ++i) ASSERT_GT(reference.bounds()[i], 0) << i;
      const double border = reference.values()[2] + sign * reference.bounds()[2];
      output.set_value(2, reference.values()[2] + sign * reference.bounds()[2] * 0.75);
      EXPECT_EQ(output.compare().wrong, 0u) << border;
      output.set_value(2, reference.values()[2] + sign * reference.bounds()[2] * 1.5);
      EXPECT_EQ(output.compare().wrong, 1u) << border;
      EXPECT_THAT(output.compare().first, HasSubstr(" ± "));
    }
  }
}

TEST(CompareValues, AValueAtItsBoundIsRight) {
  // The bound of an average of 8-bit floats is half a step above a power of two, and the whole step below it.
  for (const auto& [type, step] : {std::pair(DataType::kFloat8E4M3, 1.0 / 16), {DataType::kFloat8E5M2, 1.0 / 8}}) {
    Problem problem = problem_of(Collective::kAllReduce, type, ReduceOp::kAvg);
    problem.count = 1000;
    Output output(problem, 0);
    const auto& values = output.reference().values();
    const auto one = std::find(values.begin(), values.end(), 1.0);
    ASSERT_NE(one, values.end());
    const auto element = static_cast<size_t>(one - values.begin());
    ASSERT_EQ(output.reference().bounds()[element], step);
    output.set_value(element, 1 - step);
    EXPECT_EQ(output.compare().wrong, 0u) << output.compare().first;
    for (const double wrong : {1 - 2 * step, 1 + 2 * step}) {
      output.set_value(element, wrong);
      EXPECT_EQ(output.compare().wrong, 1u) << wrong;
    }
  }
}

TEST(CompareValues, SumsOfSmallFloatsAreExact) {
  for (const DataType type : {DataType::kFloat8E4M3, DataType::kFloat8E5M2}) {
    Output output(problem_of(Collective::kAllReduce, type), 0);
    output.flip(6, 0);
    EXPECT_EQ(output.compare().wrong, 1u) << to_string(type);
  }
}

TEST(CompareValues, APartStandsWhereItSays) {
  const Problem problem = problem_of(Collective::kAllReduce, DataType::kInt32);
  const Reference reference(problem, 10, 8);
  std::vector<int32_t> output(3);
  std::memcpy(output.data(), reference.exact().data() + 5 * sizeof(int32_t), 3 * sizeof(int32_t));
  const Part part{0, 15, 40, 3};
  EXPECT_EQ(compare(problem, part, reference, output.data()).wrong, 0u);
  output[1] += 1;
  const Comparison comparison = compare(problem, part, reference, output.data());
  EXPECT_EQ(comparison.wrong, 1u);
  EXPECT_THAT(comparison.first, StartsWith("element 41 is "));
}

TEST(Comparison, AddsUp) {
  Comparison sum;
  sum.add({});
  sum.add({2, "the first"});
  sum.add({3, "a later one"});
  EXPECT_EQ(sum.wrong, 5u);
  EXPECT_EQ(sum.first, "the first");
}

TEST(CountWritten, SeesEveryByte) {
  std::vector<std::byte> memory(9);
  poison(memory.data(), memory.size());
  EXPECT_EQ(count_written(memory.data(), memory.size()), 0u);
  memory.front() = memory.back() = std::byte{0};
  EXPECT_EQ(count_written(memory.data(), memory.size()), 2u);
  EXPECT_EQ(count_written(memory.data(), 0), 0u);
}

TEST(Hash, DependsOnEveryByteAndOnTheLength) {
  std::vector<uint8_t> data(19);
  const uint64_t zeros = hash(data.data(), data.size());
  EXPECT_NE(hash(data.data(), data.size() - 1), zeros);
  for (uint8_t& byte : data) {
    byte = 1;
    EXPECT_NE(hash(data.data(), data.size()), zeros);
    byte = 0;
  }
  EXPECT_EQ(hash(data.data(), data.size()), zeros);
}

}  // namespace
}  // namespace tutti::check
