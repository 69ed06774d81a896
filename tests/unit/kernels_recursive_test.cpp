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

enum Variant : uint32_t { kBruck, kHalving, kHierarchical, kVariants };

class RecursiveKernels : public testing::TestWithParam<Protocol> {
 protected:
  std::vector<program::Plan> plans(uint32_t variant, uint32_t ranks) {
    // An algorithm has up to four machines, and machines of different sizes.
    Connected connected(algorithm_, split(ranks, std::min(4u, 1 + ranks / 3)));
    return required(connected.plans(variant == kBruck ? TUTTI_ALL_GATHER : TUTTI_ALL_REDUCE, variant));
  }
  size_t below(size_t limit) { return std::uniform_int_distribution<size_t>(0, limit - 1)(random_); }

  /// Calls in a row, of random sizes, in place and not. They share the scratch buffers of the ranks.
  void run_plans(const Protocol& protocol, const std::vector<program::Plan>& plans, uint64_t most_bytes,
                 size_t count = 3) {
    const auto ctas = static_cast<uint32_t>(1 + below(2));
    const auto ranks = static_cast<uint32_t>(plans.size());
    std::vector<TestCall> calls;
    calls.reserve(count);
    while (calls.size() < count) {
      const bool in_place = below(2) == 0;
      const bool registered = protocol.wire == Wire::kSimple && ranks <= TUTTI_CUDA_SMALL_RANKS && below(2) == 0;
      calls.emplace_back(plans, in_place && can_run_in_place(plans[0]), 1 + below(most_bytes), ctas, protocol.layout,
                         registered);
      ASSERT_TRUE(calls.back().fits());
    }
    ASSERT_EQ(run(protocol, calls, ctas, any_number([&](size_t limit) { return below(limit); }), random_()), "")
        << ctas << " CTAs";
  }

  /// All variants.
  void run_all(const Protocol& protocol, const std::vector<uint32_t>& rank_counts, uint64_t most_bytes) {
    for (const uint32_t ranks : rank_counts) {
      for (uint32_t variant = 0; variant < kVariants; ++variant) {
        SCOPED_TRACE(fmt::format("TUTTI_TEST_SEED={}: variant {}, {} ranks, {}", seed_, variant, ranks, protocol.name));
        run_plans(protocol, plans(variant, ranks), most_bytes);
        if (HasFatalFailure()) return;
      }
    }
  }

  Algorithm algorithm_{"recursive", "examples"};
  uint64_t seed_ = test_seed();
  std::mt19937_64 random_{seed_};
};

TEST_P(RecursiveKernels, UpToTheLimitOfTheSmallForm) {
  run_all(GetParam(), takes_few(GetParam()) ? std::vector<uint32_t>{2, 3, 6} : all_of(2, TUTTI_CUDA_SMALL_RANKS), 600);
}

TEST_P(RecursiveKernels, OfManyLoops) {
  run_all(GetParam(), {4, 5}, GetParam().wire == Wire::kSimple ? 2000 : 9000);
}

/// The all-to-all of machines gathers to scratch memory. From four machines on, it also passes blocks on from there.
TEST_P(RecursiveKernels, GatherToScratch) {
  struct Layout {
    uint32_t ranks, machines;
    const char* variant;
  };
  const Algorithm hier("hier");
  for (const Layout& layout : {Layout{4, 2, "exchange"}, Layout{6, 3, "exchange"}, Layout{12, 3, "exchange"},
                               Layout{5, 5, "bruck"}, Layout{8, 4, "bruck"}, Layout{14, 7, "bruck"}}) {
    const auto& [ranks, machines, name] = layout;
    if (ranks > 6 && takes_few(GetParam())) continue;
    SCOPED_TRACE(fmt::format("TUTTI_TEST_SEED={}: {}, {} ranks on {} machines", seed_, name, ranks, machines));
    Connected connected(hier, split(ranks, machines));
    run_plans(GetParam(), required(connected.plans(TUTTI_ALL_TO_ALL, hier.variant(name))), 400);
  }
}

/// All variants, or one call of any variant.
TEST_P(RecursiveKernels, BeyondTheSmallForm) {
  const Protocol protocol = with_less_memory(GetParam());
  if (std::getenv("TUTTI_TEST_ROUNDS") != nullptr) {
    return run_all(protocol, all_of(TUTTI_CUDA_SMALL_RANKS + 1, 33), 200);
  }
  if (!takes_few(protocol)) return run_all(protocol, {TUTTI_CUDA_SMALL_RANKS + 1, 33}, 200);
  const auto variant = static_cast<uint32_t>(below(kVariants));
  const auto ranks = static_cast<uint32_t>(TUTTI_CUDA_SMALL_RANKS + 1 + below(17));
  SCOPED_TRACE(fmt::format("TUTTI_TEST_SEED={}: variant {}, {} ranks", seed_, variant, ranks));
  run_plans(protocol, plans(variant, ranks), 200, 1);
}

INSTANTIATE_TEST_SUITE_P(All, RecursiveKernels, testing::ValuesIn(all_protocols()), protocol_name);

}  // namespace
}  // namespace tutti::test
