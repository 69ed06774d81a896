// SPDX-License-Identifier: Apache-2.0
// The kernels' own code runs the programs of all plans: they fulfil their collective, and never deadlock. Each test
// draws from the protocols, sizes and numbers of CTAs; with TUTTI_TEST_ROUNDS, it runs all of them.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <random>

#include "unit/kernel_protocols.h"
#include "unit/plan_support.h"
#include "unit/program_calls.h"

namespace tutti::test {
namespace {

using program::Plan;
using testing::HasSubstr;

/// Connections of lines.
std::vector<Protocol> line_protocols() {
  std::vector<Protocol> lines = all_protocols();
  std::erase_if(lines, [](const Protocol& protocol) { return protocol.wire == Wire::kSimple; });
  return lines;
}
const std::vector<Protocol> kLines = line_protocols();

Protocol slices(const char* name, const tutti_slot_layout& layout) {
  return {name, Wire::kSimple, layout, 0, true};
}
/// Connections of slices, with and without overlapping loops.
const std::vector<Protocol> kSlices = {
    slices("simple", layout_of(4, 65536, 2)),
    slices("simple 448", layout_of(4, 57344, 2)),
    slices("small slices", layout_of(4, 48, 2)),
    slices("small eight slots", layout_of(8, 32, 4)),
    slices("simple that overlaps", layout_of(8, 49152, 2, 1)),
    slices("small slices that overlap", layout_of(8, 48, 2, 1)),
    slices("small four slots that overlap", layout_of(4, 32, 2, 1)),
    slices("small sixteen slots that overlap", layout_of(16, 32, 8, 1)),
};

class LoweredKernels : public testing::Test {
 protected:
  size_t below(size_t limit) { return std::uniform_int_distribution<size_t>(0, limit - 1)(random_); }
  /// One of the values, or with TUTTI_TEST_ROUNDS all of them.
  template <class Value>
  std::vector<Value> draw(const std::vector<Value>& all) {
    if (is_long_) return all;
    return {all[below(all.size())]};
  }
  /// So many of lines, and so many of slices. With a sanitizer, one of either.
  std::vector<Protocol> draw_protocols(int times) {
    if (is_slow()) return draw(below(2) == 0 ? kLines : kSlices);
    std::vector<Protocol> drawn;
    for (int i = 0; i < (is_long_ ? 1 : times); ++i) {
      for (const Protocol& protocol : draw(kLines)) drawn.push_back(protocol);
      for (const Protocol& protocol : draw(kSlices)) drawn.push_back(protocol);
    }
    return drawn;
  }
  /// Runs calls in a row, without a meeting of ranks between them. "": all is right.
  std::string run_calls(const Protocol& protocol, std::span<const TestCall> calls, uint32_t ctas) {
    return run(protocol, calls, ctas, any_number([&](size_t limit) { return below(limit); }), random_());
  }
  void run_sample(const Sample& sample, bool in_place, const Protocol& protocol, uint64_t bytes, uint32_t ctas);
  void run_samples(const std::vector<uint32_t>& rank_counts, const std::vector<uint64_t>& sizes,
                   const std::vector<uint32_t>& cta_counts);
  /// Three calls in a row of each size.
  void run_plans(const std::vector<Plan>& plans, const std::vector<uint64_t>& sizes);

  const bool is_long_ = std::getenv("TUTTI_TEST_ROUNDS") != nullptr;

 private:
  const uint64_t seed_ = test_seed();
  std::mt19937_64 random_{seed_};
  const testing::ScopedTrace trace_{__FILE__, __LINE__, fmt::format("TUTTI_TEST_SEED={}", seed_)};
};

/// A call of `bytes`, one of a byte, and the first again.
void LoweredKernels::run_sample(const Sample& sample, bool in_place, const Protocol& protocol, uint64_t bytes,
                                uint32_t ctas) {
  if (bytes > 5000 && protocol.layout.slot_bytes < 1000) return;
  std::vector<TestCall> calls;
  const bool registered = protocol.wire == Wire::kSimple && below(2) == 0;
  for (const uint64_t size : {bytes, uint64_t{1}, bytes}) {
    calls.emplace_back(sample.plans, in_place, size, ctas, protocol.layout, registered);
  }
  if (!calls[0].fits()) return;
  EXPECT_EQ(run_calls(protocol, calls, ctas), "")
      << sample.name << ", in place " << in_place << ", " << protocol.name << ", " << bytes << " bytes, " << ctas
      << " CTAs, registered " << registered;
}

void LoweredKernels::run_samples(const std::vector<uint32_t>& rank_counts, const std::vector<uint64_t>& sizes,
                                 const std::vector<uint32_t>& cta_counts) {
  for (const Sample& sample : samples(rank_counts, rank_counts.back() <= 4)) {
    for (const bool in_place : {false, true}) {
      if (in_place && !can_run_in_place(sample.plans[0])) continue;
      for (const Protocol& protocol : draw_protocols(rank_counts.back() <= 4 ? 3 : 1)) {
        for (const uint64_t bytes : draw(sizes)) {
          for (const uint32_t ctas : draw(cta_counts)) run_sample(sample, in_place, protocol, bytes, ctas);
        }
      }
      if (HasFailure()) return;
    }
  }
}

TEST_F(LoweredKernels, DoWhatTheirPlansSay) {
  run_samples({1, 2, 3, 4}, {1, 15, 16, 17, 1000, 4097}, {1, 3});
}
TEST_F(LoweredKernels, WithMoreRanks) {
  run_samples({5, 6, 7, 8}, {1, 16, 17, 1000}, {1, 5});
  if (is_long_) run_samples({5}, {100003}, {4});
}
TEST_F(LoweredKernels, With16Ranks) {
  run_samples({16}, {1, 1000}, {2});
  if (is_long_) run_samples({16}, {20011}, {3});
}

/// Each call finds the state that the previous call left: different collectives, sizes and shares of the slots.
TEST_F(LoweredKernels, OneAfterTheOther) {
  for (const uint32_t ranks : {2u, 3u, 5u, 8u}) {
    const std::vector<Sample> all = samples({ranks}, true);
    for (int round = 0; round < (is_long_ ? 300 : 5); ++round) {
      const Protocol& protocol = below(2) == 0 ? kLines[below(kLines.size())] : kSlices[below(kSlices.size())];
      const auto ctas = static_cast<uint32_t>(1 + below(3));
      std::vector<TestCall> calls;
      std::string names;
      while (calls.size() < 6) {
        const Sample& sample = all[below(all.size())];
        const uint64_t bytes = 1 + below(below(3) == 0 ? 3000 : 100);
        const bool in_place = can_run_in_place(sample.plans[0]) && below(2) == 0;
        const bool registered = protocol.wire == Wire::kSimple && below(2) == 0;
        TestCall call(sample.plans, in_place, bytes, ctas, protocol.layout, registered);
        if (!call.fits()) continue;
        names += fmt::format("{}, {} bytes; ", sample.name, bytes);
        calls.push_back(std::move(call));
      }
      ASSERT_EQ(run_calls(protocol, calls, ctas), "") << names << protocol.name << ", " << ctas << " CTAs";
    }
  }
}

void LoweredKernels::run_plans(const std::vector<Plan>& plans, const std::vector<uint64_t>& sizes) {
  for (const std::vector<Protocol>* protocols : {&kLines, &kSlices}) {
    for (const Protocol& protocol : *protocols) {
      for (const uint64_t bytes : draw(sizes)) {
        std::vector<TestCall> calls;
        for (int i = 0; i < 3; ++i) calls.emplace_back(plans, false, bytes, 2, protocol.layout);
        EXPECT_EQ(run_calls(protocol, calls, 2), "") << protocol.name << ", " << bytes << " bytes";
      }
    }
  }
}

/// Each connection must progress, whatever the others carry.
TEST_F(LoweredKernels, ConnectionsNeedNotCarryTheSame) {
  run_plans(uneven_connections(), {1, 20, 40, 1000, 5000});
}
TEST_F(LoweredKernels, MessagesOfAConnectionMayWaitUnevenly) {
  run_plans(uneven_waits(), {1, 100, 5000});
}

/// The reason why receivers signal messages that do not exist: senders would wait for the signal.
TEST_F(LoweredKernels, SilenceAboutEmptyMessagesIsADeadlock) {
  const std::vector<Plan> ring = plans_of("ring  all_reduce", 8);
  const Protocol& protocol = kSlices[0];
  const TestCall test(ring, false, 16, 1, protocol.layout);
  KernelMachine::Options options = options_of(protocol, 8, 1);
  EXPECT_EQ(KernelMachine(options).run({&test.call(), 1}, 1), "");
  options.is_silent_of_gaps = true;
  options.timeout_ns = 1'000'000'000;
  EXPECT_THAT(KernelMachine(options).run({&test.call(), 1}, 1), HasSubstr("gave up"));
}

}  // namespace
}  // namespace tutti::test
