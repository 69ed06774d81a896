// SPDX-License-Identifier: Apache-2.0
#include "tutti/device/host/reduce.h"

#include <gmock/gmock.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "tutti/device/numeric.h"
#include "tutti/device/operators.h"
#include "tutti/plugin/types.h"
#include "unit/reduce_reference.h"

namespace tutti {
namespace {

using device::InstructionSet;
using reference::Type;

constexpr InstructionSet kSets[] = {InstructionSet::kBaseline, InstructionSet::kAvx2, InstructionSet::kAvx512};

std::mt19937_64& random_bits() {
  static const uint64_t seed = [] {
    const char* given = std::getenv("TUTTI_TEST_SEED");
    const uint64_t value = given != nullptr ? std::strtoull(given, nullptr, 0) : std::random_device{}();
    std::printf("seed: TUTTI_TEST_SEED=%llu\n", static_cast<unsigned long long>(value));
    return value;
  }();
  static std::mt19937_64 generator(seed);
  return generator;
}

/// Same bits. All NaNs are equal.
bool same(const Type& type, uint64_t a, uint64_t b) {
  return a == b || (reference::is_nan(type, a) && reference::is_nan(type, b));
}

[[maybe_unused]] void PrintTo(const Type& type, std::ostream* out) {
  *out << type.name;
}

// ---- Conversions ----

template <class T>
uint32_t code_of(float value) {
  return device::narrow<T>(value).code;
}

template <class T>
void check_conversions(uint32_t type_value) {
  const Type& type = reference::type_of(type_value);
  const auto expect_rounded = [&](float value) {
    const uint64_t expected = reference::encode(type, static_cast<double>(value));
    ASSERT_TRUE(same(type, code_of<T>(value), expected)) << type.name << " of " << std::hexfloat << value << " is "
                                                         << std::hex << code_of<T>(value) << ", not " << expected;
  };
  for (uint32_t code = 0; code < 1u << (8 * type.bytes); ++code) {
    const float value = device::widen(T{static_cast<decltype(T::code)>(code)});
    const double expected = reference::decode(type, code);
    ASSERT_EQ(std::isnan(value), std::isnan(expected)) << type.name << " " << code;
    if (std::isnan(value)) {
      ASSERT_TRUE(reference::is_nan(type, code_of<T>(value))) << type.name << " " << code;
      continue;
    }
    ASSERT_EQ(std::bit_cast<uint64_t>(static_cast<double>(value)), std::bit_cast<uint64_t>(expected)) << code;
    if (type.overflow != 0 || std::isfinite(value)) {
      ASSERT_EQ(code_of<T>(value), code);
    }

    // The midpoint to the next value, exact in float, and its neighbours.
    const double next = reference::decode(type, (code + 1) % (1u << (8 * type.bytes)));
    const float middle = static_cast<float>((expected + next) / 2);
    for (float near : {std::nextafter(middle, -INFINITY), middle, std::nextafter(middle, INFINITY)}) {
      expect_rounded(near);
    }
  }
  for (int i = 0; i < 2'000'000; ++i) expect_rounded(std::bit_cast<float>(static_cast<uint32_t>(random_bits()())));
}

TEST(Numeric, EveryCodeAndMidpoint) {
  check_conversions<device::float16>(TUTTI_FLOAT16);
  check_conversions<device::bfloat16>(TUTTI_BFLOAT16);
  check_conversions<device::float8_e4m3>(TUTTI_FLOAT8_E4M3);
  check_conversions<device::float8_e5m2>(TUTTI_FLOAT8_E5M2);
}

TEST(Numeric, OverflowAndUnderflow) {
  EXPECT_EQ(code_of<device::float16>(65519.0f), 0x7bffu);
  EXPECT_EQ(code_of<device::float16>(65520.0f), 0x7c00u);
  EXPECT_EQ(code_of<device::float16>(-INFINITY), 0xfc00u);
  EXPECT_EQ(code_of<device::bfloat16>(std::numeric_limits<float>::max()), 0x7f80u);
  EXPECT_EQ(code_of<device::float8_e4m3>(INFINITY), 0x7eu);
  EXPECT_EQ(code_of<device::float8_e4m3>(-1e9f), 0xfeu);
  EXPECT_EQ(code_of<device::float8_e5m2>(-INFINITY), 0xfbu);
  EXPECT_EQ(code_of<device::float8_e5m2>(61440.0f), 0x7bu);
  EXPECT_EQ(code_of<device::float8_e4m3>(-0.0f), 0x80u);
  EXPECT_EQ(code_of<device::float16>(std::ldexp(1.0f, -25)), 0u);
  EXPECT_EQ(code_of<device::float16>(std::nextafter(std::ldexp(1.0f, -25), 1.0f)), 1u);
}

TEST(Operators, SignedZerosAndNan) {
  const device::Max max;
  const device::Min min;
  for (float zero : {0.0f, -0.0f}) {
    EXPECT_FALSE(std::signbit(max(zero, 0.0f)) || std::signbit(max(0.0f, zero)));
    EXPECT_TRUE(std::signbit(min(zero, -0.0f)) && std::signbit(min(-0.0f, zero)));
  }
  EXPECT_TRUE(std::isnan(max(NAN, 1.0f)) && std::isnan(max(1.0f, NAN)));
  EXPECT_TRUE(std::isnan(min(double{NAN}, 1.0)) && std::isnan(min(1.0, double{NAN})));
  EXPECT_EQ(device::divide(int8_t{-7}, 2u), -3);
  EXPECT_EQ(device::divide(int8_t{-128}, 200u), 0);
  EXPECT_EQ(device::Sum{}(INT64_MAX, INT64_C(1)), INT64_MIN);
}

// ---- Reductions ----

/// Memory for buffers with guard bytes around each.
class Buffers {
 public:
  /// `misalignment`: 0 aligns every buffer to 64 bytes; otherwise buffer i starts i * misalignment + 1 bytes later.
  Buffers(size_t buffers, size_t bytes, size_t misalignment)
      : bytes_(bytes),
        stride_((bytes / 64 + 4) * 64),
        misalignment_(misalignment),
        memory_(buffers * stride_ + 64, kGuard) {}

  uint8_t* at(size_t i) {
    uint8_t* aligned = memory_.data() + (64 - reinterpret_cast<uintptr_t>(memory_.data()) % 64);
    return aligned + i * stride_ + 64 + (misalignment_ == 0 ? 0 : (i * misalignment_ + 1) % 63);
  }
  /// Everything outside the given number of buffers is untouched.
  bool guards_hold(size_t buffers) {
    const uint8_t* next = memory_.data();
    for (size_t i = 0; i <= buffers; ++i) {
      const uint8_t* end = i < buffers ? at(i) : memory_.data() + memory_.size();
      for (; next != end; ++next) {
        if (*next != kGuard) return false;
      }
      if (i < buffers) next = at(i) + bytes_;
    }
    return true;
  }

 private:
  static constexpr uint8_t kGuard = 0xa5;
  size_t bytes_;
  size_t stride_;
  size_t misalignment_;
  std::vector<uint8_t> memory_;
};

/// One reduction's input and the output that the reference gives.
struct Problem {
  const Type& type;
  uint32_t op;
  reference::Scaling scaling;
  size_t count;
  std::vector<std::vector<uint64_t>> sources;  // codes
  std::vector<uint64_t> expected;
};

uint64_t random_code(const Type& type) {
  const uint64_t bits = random_bits()();
  const uint64_t mask = type.bytes == 8 ? ~uint64_t{0} : (uint64_t{1} << (8 * type.bytes)) - 1;
  if (!type.is_float) return bits & mask;
  switch (bits % 16) {
    case 0:
      return reference::encode(type, (bits & 16) != 0 ? -0.0 : 0.0);
    case 1:
      return reference::encode(type, (bits & 16) != 0 ? -INFINITY : NAN);
    case 2:
    case 3:
      return (bits >> 8) & mask;  // anything, subnormals and NaNs with any payload too
    default:
      return reference::encode(type, std::ldexp(static_cast<double>(bits >> 32) - 0x1p31, -28));
  }
}

Problem make_problem(const Type& type, uint32_t op, uint32_t sources, size_t count) {
  Problem problem{type, op, {}, count, {}, {}};
  if (op == TUTTI_AVG) problem.scaling.divisor = sources == 7 ? 4'000'000'000u : sources;
  if (op == TUTTI_PREMUL_SUM) {
    problem.scaling.scaled_source = static_cast<int32_t>(random_bits()() % sources);
    problem.scaling.scalar = random_code(type) | (type.bytes < 8 ? random_bits()() << (8 * type.bytes) : 0);
  }
  // The bits above the scalar's element are none of the reduction's business, nor of the reference's.
  reference::Scaling scaling = problem.scaling;
  if (type.bytes < 8) scaling.scalar &= (uint64_t{1} << (8 * type.bytes)) - 1;

  problem.sources.assign(sources, std::vector<uint64_t>(count));
  for (size_t i = 0; i < count; ++i) {
    std::vector<uint64_t> codes;
    for (auto& source : problem.sources) codes.push_back(source[i] = random_code(type));
    problem.expected.push_back(reference::reduce(type, op, codes, scaling));
  }
  return problem;
}

void write_codes(uint8_t* to, const Type& type, const std::vector<uint64_t>& codes) {
  for (uint64_t code : codes) {
    std::memcpy(to, &code, type.bytes);
    to += type.bytes;
  }
}

testing::AssertionResult holds(const uint8_t* from, const Type& type, const std::vector<uint64_t>& codes, bool exact) {
  for (size_t i = 0; i < codes.size(); ++i) {
    uint64_t code = 0;
    std::memcpy(&code, from + i * type.bytes, type.bytes);
    if (exact ? code != codes[i] : !same(type, code, codes[i])) {
      return testing::AssertionFailure() << "element " << i << " is " << std::hex << code << ", not " << codes[i];
    }
  }
  return testing::AssertionSuccess();
}

struct Layout {
  size_t misalignment;
  uint32_t extra_destinations;  // beside the destination in place, if any
  int in_place;                 // index of the source that is also a destination, or -1
  bool streaming;
};

void run(InstructionSet set, const Problem& problem, const Layout& layout) {
  SCOPED_TRACE(testing::Message() << to_string(set) << " " << problem.type.name << " op " << problem.op << " sources "
                                  << problem.sources.size() << " count " << problem.count << " misalignment "
                                  << layout.misalignment << " in place " << layout.in_place << " streaming "
                                  << layout.streaming);
  const device::ReduceFunction function = device::select_reduce_for(set, problem.type.value, problem.op);
  ASSERT_NE(function, nullptr);
  const size_t source_count = problem.sources.size();
  const size_t buffer_count = source_count + layout.extra_destinations;
  Buffers buffers(buffer_count, problem.count * problem.type.bytes, layout.misalignment);
  std::vector<const void*> sources;
  std::vector<void*> destinations;
  for (size_t i = 0; i < source_count; ++i) {
    write_codes(buffers.at(i), problem.type, problem.sources[i]);
    sources.push_back(buffers.at(i));
  }
  if (layout.in_place >= 0) destinations.push_back(buffers.at(static_cast<size_t>(layout.in_place)));
  for (size_t i = source_count; i < buffer_count; ++i) destinations.push_back(buffers.at(i));

  function({.sources = sources.data(),
            .source_count = static_cast<uint32_t>(source_count),
            .destination_count = static_cast<uint32_t>(destinations.size()),
            .destinations = destinations.data(),
            .count = problem.count,
            .scalar = problem.scaling.scalar,
            .scaled_source = problem.scaling.scaled_source,
            .divisor = problem.scaling.divisor,
            .streaming = layout.streaming});

  const bool copied = source_count == 1 && problem.scaling.scaled_source < 0 && problem.scaling.divisor == 0;
  for (void* destination : destinations) {
    ASSERT_TRUE(holds(static_cast<uint8_t*>(destination), problem.type, problem.expected, copied));
  }
  for (size_t i = 0; i < source_count; ++i) {
    if (static_cast<int>(i) == layout.in_place) continue;
    ASSERT_TRUE(holds(buffers.at(i), problem.type, problem.sources[i], true)) << "source " << i << " was changed";
  }
  ASSERT_TRUE(buffers.guards_hold(buffer_count)) << "bytes outside the buffers were written";
}

class Reduce : public testing::TestWithParam<Type> {};

TEST_P(Reduce, MatchesReference) {
  const Type& type = GetParam();
  for (uint32_t op = 0; op < TUTTI_REDUCE_OP_COUNT; ++op) {
    for (uint32_t sources = 1; sources <= 9; ++sources) {
      for (size_t count : {0, 1, 2, 3, 17, 1000, 4097}) {
        const Problem problem = make_problem(type, op, sources, count);
        for (InstructionSet set : kSets) {
          if (device::select_reduce_for(set, type.value, op) == nullptr) continue;
          const int last = static_cast<int>(sources) - 1;
          for (const Layout& layout :
               {Layout{0, 1, -1, false}, Layout{type.bytes, 2, -1, false}, Layout{3, 0, 0, false},
                Layout{0, 3, last, true}, Layout{5, 1, last, true}, Layout{0, 0, -1, false}}) {
            run(set, problem, layout);
            if (HasFatalFailure()) return;
          }
        }
      }
    }
  }
}

/// Every remainder of every vector width.
TEST_P(Reduce, EveryShortCount) {
  const Type& type = GetParam();
  for (size_t count = 0; count <= 130; ++count) {
    const Problem problem = make_problem(type, TUTTI_SUM, 2, count);
    for (InstructionSet set : kSets) {
      if (device::select_reduce_for(set, type.value, TUTTI_SUM) == nullptr) continue;
      run(set, problem, {type.bytes, 1, 1, false});
      if (HasFatalFailure()) return;
    }
  }
}

/// Streaming stores need destinations at multiples of a vector: all other destinations must get the usual stores.
TEST_P(Reduce, StreamsToDestinationsAtAnyPlace) {
  const Type& type = GetParam();
  const Problem problem = make_problem(type, TUTTI_SUM, 2, 1000);
  Buffers sources(2, problem.count * type.bytes, 0);
  for (size_t i = 0; i < 2; ++i) write_codes(sources.at(i), type, problem.sources[i]);
  const void* from[] = {sources.at(0), sources.at(1)};
  std::vector<uint8_t> memory(problem.count * type.bytes + 128);
  uint8_t* const aligned = memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64);
  for (InstructionSet set : kSets) {
    const device::ReduceFunction function = device::select_reduce_for(set, type.value, TUTTI_SUM);
    if (function == nullptr) continue;
    for (const size_t offset : {0, 8, 16, 32, 48}) {
      SCOPED_TRACE(testing::Message() << to_string(set) << " offset " << offset);
      std::fill(memory.begin(), memory.end(), uint8_t{0xa5});
      void* to[] = {aligned + offset};
      function({.sources = from,
                .source_count = 2,
                .destination_count = 1,
                .destinations = to,
                .count = problem.count,
                .scalar = 0,
                .scaled_source = -1,
                .divisor = 0,
                .streaming = true});
      ASSERT_TRUE(holds(aligned + offset, type, problem.expected, false));
    }
  }
}

/// Each instruction set's own conversions, on every code: the vectors do not use Numeric, which the tests above cover.
class ReduceSmallFloats : public Reduce {};
TEST_P(ReduceSmallFloats, EveryCode) {
  const Type& type = GetParam();
  const uint32_t codes = 1u << (8 * type.bytes);
  Problem problem = make_problem(type, TUTTI_SUM, 2, codes);
  for (uint32_t code = 0; code < codes; ++code) {
    problem.sources[0][code] = code;
    problem.expected[code] = reference::reduce(type, TUTTI_SUM, {code, problem.sources[1][code]}, {});
  }
  for (InstructionSet set : kSets) {
    if (device::select_reduce_for(set, type.value, TUTTI_SUM) != nullptr) run(set, problem, {0, 1, -1, false});
  }
}

std::string name_of(const testing::TestParamInfo<Type>& test) {
  return test.param.name;
}
INSTANTIATE_TEST_SUITE_P(Types, Reduce, testing::ValuesIn(reference::kTypes), name_of);
INSTANTIATE_TEST_SUITE_P(Types, ReduceSmallFloats,
                         testing::Values(reference::type_of(TUTTI_FLOAT16), reference::type_of(TUTTI_BFLOAT16),
                                         reference::type_of(TUTTI_FLOAT8_E4M3), reference::type_of(TUTTI_FLOAT8_E5M2)),
                         name_of);

TEST(Select, KnownAndUnknown) {
  EXPECT_EQ(device::select_reduce(TUTTI_DATA_TYPE_COUNT, TUTTI_SUM), nullptr);
  EXPECT_EQ(device::select_reduce(TUTTI_INT8, TUTTI_REDUCE_OP_COUNT), nullptr);
  for (uint32_t type = 0; type < TUTTI_DATA_TYPE_COUNT; ++type) {
    for (uint32_t op = 0; op < TUTTI_REDUCE_OP_COUNT; ++op) EXPECT_NE(device::select_reduce(type, op), nullptr);
  }
  std::printf("instruction set: %s\n", to_string(device::best_instruction_set()));
}

TEST(Copy, SameAndOther) {
  std::vector<uint8_t> from(100'003, 7);
  std::vector<uint8_t> to(from.size() + 1, 0xa5);
  device::copy(to.data(), from.data(), from.size());
  EXPECT_TRUE(std::equal(from.begin(), from.end(), to.begin()));
  EXPECT_EQ(to.back(), 0xa5);
  device::copy(to.data(), to.data(), to.size());
  device::copy(nullptr, nullptr, 0);
}

}  // namespace
}  // namespace tutti
