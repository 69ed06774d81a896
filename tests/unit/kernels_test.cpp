// SPDX-License-Identifier: Apache-2.0
// The GPU kernels' code does what plans demand, in whatever order warps, bulk copies and ranks advance.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <random>

#include "unit/kernel_machine.h"
#include "unit/plan_support.h"
#include "unit/program_calls.h"

namespace tutti::test {
namespace {

struct Protocol {
  const char* name;
  Wire wire;
  tutti_slot_layout layout;
  uint32_t threads;
  bool stages;
};

tutti_slot_layout line_layout(uint32_t slots, uint64_t lines, uint64_t data, uint64_t bytes) {
  tutti_slot_layout layout = layout_of(slots, lines * data, 1);
  layout.slot_stride = lines * bytes;
  return layout;
}

/// With slots that are small, so that few bytes are many loops, and as they are.
const std::vector<Protocol> kProtocols = {
    {"ll", Wire::kLL, line_layout(8, 512, 8, 16), 64, false},
    {"ll of small slots", Wire::kLL, line_layout(8, 6, 8, 16), 32, false},
    {"ll128", Wire::kLL128, line_layout(4, 256, 120, 128), 64, false},
    {"ll128 of small slots", Wire::kLL128, line_layout(4, 5, 120, 128), 96, false},
    {"simple", Wire::kSimple, layout_of(16, 65536, 8, 1), 0, true},
    {"simple of small slots", Wire::kSimple, layout_of(8, 512, 4, 1), 0, true},
    {"simple without bulk copies", Wire::kSimple, layout_of(8, 512, 4, 1), 0, false},
};

std::string run(const Protocol& protocol, std::span<const TestCall> tests, uint32_t ctas, uint32_t epoch,
                uint64_t seed) {
  std::vector<ProgramCall> calls;
  for (const TestCall& test : tests) calls.push_back(test.call());
  KernelMachine::Options options;
  options.wire = protocol.wire;
  options.rank_count = static_cast<uint32_t>(calls[0].programs.size());
  options.layout = protocol.layout;
  options.lanes = ctas;
  options.threads = protocol.threads;
  options.stages = protocol.stages;
  options.epoch = epoch;
  options.seed = seed;
  if (std::string wrong = KernelMachine(options).run(calls, ctas); !wrong.empty()) return wrong;
  for (size_t i = 0; i < tests.size(); ++i) {
    if (std::string wrong = tests[i].check(); !wrong.empty()) return fmt::format("call {}: {}", i, wrong);
  }
  return {};
}

/// Some calls in a row of random plans, sizes and places.
void run_random(const Protocol& protocol, const std::vector<uint32_t>& rank_counts, int rounds) {
  const char* const given = std::getenv("TUTTI_TEST_SEED");
  const uint64_t seed = given != nullptr ? std::strtoull(given, nullptr, 0) : std::random_device{}();
  SCOPED_TRACE(fmt::format("TUTTI_TEST_SEED={}", seed));
  std::mt19937_64 random(seed);
  const auto below = [&](size_t limit) { return std::uniform_int_distribution<size_t>(0, limit - 1)(random); };
  for (const uint32_t ranks : rank_counts) {
    const std::vector<Sample> all = samples({ranks}, true);
    for (int round = 0; round < rounds; ++round) {
      const auto ctas = static_cast<uint32_t>(1 + below(2));
      std::vector<TestCall> calls;
      std::string names;
      while (calls.size() < 3) {
        const Sample& sample = all[below(all.size())];
        const uint64_t bytes = 1 + below(below(3) == 0 ? 6000 : 300);
        TestCall call(sample.plans, can_run_in_place(sample.plans[0]) && below(2) == 0, bytes, ctas, protocol.layout);
        if (!call.fits()) continue;
        names += fmt::format("{}, {} bytes; ", sample.name, bytes);
        calls.push_back(std::move(call));
      }
      const auto epoch = static_cast<uint32_t>(below(2) == 0 ? below(16) : ~uint32_t{0} - below(40));
      ASSERT_EQ(run(protocol, calls, ctas, epoch, random()), "")
          << names << ctas << " CTAs, epoch " << epoch << ", " << protocol.name;
    }
  }
}

class Kernels : public testing::TestWithParam<Protocol> {};

TEST_P(Kernels, DoWhatTheirPlansSay) {
  run_random(GetParam(), {2, 3, 4}, 20);
}
TEST_P(Kernels, WithMoreRanks) {
  run_random(GetParam(), {5, 8}, 4);
}

INSTANTIATE_TEST_SUITE_P(All, Kernels, testing::ValuesIn(kProtocols), [](const auto& instance) {
  std::string name = instance.param.name;
  std::replace(name.begin(), name.end(), ' ', '_');
  return name;
});

}  // namespace
}  // namespace tutti::test
