// SPDX-License-Identifier: Apache-2.0
// The code of the GPU kernels runs plans with messages of several chunks and with scratch buffers: the algorithms of
// examples/algo-recursive.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cstdlib>
#include <random>

#include "unit/kernel_protocols.h"
#include "unit/plan_support.h"
#include "unit/required.h"

namespace tutti::test {
namespace {

enum Variant : uint32_t { kBruck, kVariants };

class RecursiveKernels : public testing::TestWithParam<Protocol> {
 protected:
  std::vector<program::Plan> plans(uint32_t variant, uint32_t ranks) {
    // An algorithm has up to four machines, and machines of different sizes.
    Connected connected(algorithm_, split(ranks, std::min(4u, 1 + ranks / 3)));
    return required(connected.plans(variant == kBruck ? TUTTI_ALL_GATHER : TUTTI_ALL_REDUCE, variant));
  }
  size_t below(size_t limit) { return std::uniform_int_distribution<size_t>(0, limit - 1)(random_); }

  /// Two calls in a row of each variant, of random sizes, in place and not.
  void run_all(const Protocol& protocol, const std::vector<uint32_t>& rank_counts, uint64_t most_bytes) {
    SCOPED_TRACE(fmt::format("TUTTI_TEST_SEED={}", seed_));
    for (const uint32_t ranks : rank_counts) {
      for (uint32_t variant = 0; variant < kVariants; ++variant) {
        const std::vector<program::Plan> plans = this->plans(variant, ranks);
        const auto ctas = static_cast<uint32_t>(1 + below(2));
        std::vector<TestCall> calls;
        calls.reserve(2);
        for (const bool in_place : {false, true}) {
          calls.emplace_back(plans, in_place, 1 + below(most_bytes), ctas, protocol.layout,
                             protocol.wire == Wire::kSimple && below(2) == 0);
          ASSERT_TRUE(calls.back().fits()) << "variant " << variant << ", " << ranks << " ranks";
        }
        ASSERT_EQ(run(protocol, calls, ctas, any_epoch([&](size_t limit) { return below(limit); }), random_()), "")
            << "variant " << variant << ", " << ranks << " ranks, " << protocol.name << ", " << ctas << " CTAs";
      }
    }
  }

  Algorithm algorithm_{"recursive", "examples"};
  uint64_t seed_ = test_seed();
  std::mt19937_64 random_{seed_};
};

bool is_long() {
  return std::getenv("TUTTI_TEST_ROUNDS") != nullptr;
}

TEST_P(RecursiveKernels, UpToTheLimitOfTheSmallForm) {
  const bool is_few = GetParam().wire == Wire::kSimple && !is_long();
  run_all(GetParam(), is_few ? std::vector<uint32_t>{2, 3, 6} : all_of(2, TUTTI_CUDA_SMALL_RANKS), 600);
}

TEST_P(RecursiveKernels, OfManyLoops) {
  run_all(GetParam(), {4, 5}, 9000);
}

/// Slots for all pairs of ranks take the time of these runs.
TEST_P(RecursiveKernels, BeyondTheSmallForm) {
  std::vector<uint32_t> ranks = {TUTTI_CUDA_SMALL_RANKS + 1, 33};
  if (GetParam().wire == Wire::kSimple) std::erase(ranks, GetParam().layout.slot_bytes > 128 ? 17 : 33);
  run_all(with_less_memory(GetParam()), is_long() ? all_of(TUTTI_CUDA_SMALL_RANKS + 1, 33) : ranks, 200);
}

INSTANTIATE_TEST_SUITE_P(All, RecursiveKernels, testing::ValuesIn(all_protocols()), protocol_name);

}  // namespace
}  // namespace tutti::test
