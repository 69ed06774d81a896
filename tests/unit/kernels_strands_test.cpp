// SPDX-License-Identifier: Apache-2.0
// The code of the GPU kernels runs plans with strands: each strand in a CTA of its own, in any order that waits and
// messages permit.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <random>
#include <thread>

#include "program/file/file.h"
#include "program/lower_strands.h"
#include "program/repeat.h"
#include "program/verify/prove.h"
#include "unit/kernel_protocols.h"
#include "unit/plan_support.h"
#include "unit/required.h"
#include "unit/strand_plans.h"

namespace tutti::test {
namespace {

using program::Plan;
using sdk::Buffer;
using sdk::PlanBuilder;

class StrandKernels : public testing::TestWithParam<Protocol> {
 protected:
  size_t below(size_t limit) { return std::uniform_int_distribution<size_t>(0, limit - 1)(random_); }

  /// Three calls in a row, in place and not, by one or two channels. "": all is right.
  std::string run_plans(const std::vector<Plan>& plans, uint64_t most_bytes) {
    const auto ctas = static_cast<uint32_t>(1 + below(2));
    std::vector<TestCall> calls;
    while (calls.size() < 3) {
      const bool in_place = can_run_in_place(plans[0]) && below(2) == 0;
      const bool registered = below(4) == 0;  // strands store nothing to outputs of peers
      calls.emplace_back(plans, in_place, 1 + below(below(3) == 0 ? most_bytes : 100), ctas, GetParam().layout,
                         registered);
      if (!calls.back().fits()) return "kernels do not run the plans";
    }
    return run(GetParam(), calls, ctas, any_number([&](size_t limit) { return below(limit); }), random_());
  }

  uint64_t seed_ = test_seed();
  std::mt19937_64 random_{seed_};
  const testing::ScopedTrace trace_{__FILE__, __LINE__, fmt::format("TUTTI_TEST_SEED={}", seed_)};
};

/// "" if the plans are right, with strands that run in any order, in place and not.
std::string proof(const std::vector<Plan>& plans) {
  for (const bool in_place : {false, true}) {
    if (in_place && !can_run_in_place(plans[0])) continue;
    if (const Status proved = program::verify(plans, {1, in_place}); !proved.ok()) return std::string(proved.text());
  }
  return {};
}

/// The plans of examples/plans, without repeats.
std::vector<Plan> example(const std::string& name) {
  std::vector<Plan> plans;
  for (Plan& plan : required(program::read_file(std::string(TUTTI_SOURCE_DIR "/examples/plans/") + name)).plans) {
    plans.push_back(required(program::unroll(std::move(plan))));
  }
  return plans;
}

TEST_P(StrandKernels, RunTheExamples) {
  for (const char* const name : {"two_rings4.yaml", "chain_strands4.yaml"}) {
    const std::vector<Plan> plans = example(name);
    EXPECT_EQ(program::most_strands(plans), 2u);
    for (int round = 0; round < rounds(GetParam(), 3); ++round) {
      ASSERT_EQ(run_plans(plans, GetParam().wire == Wire::kSimple ? 4000 : 9000), "") << name;
    }
  }
}

/// Many strands with many waits, by cutting plans of one list. Some plans have a single way to be cut, or none.
TEST_P(StrandKernels, RunAnyCutOfAPlan) {
  for (const uint32_t ranks : {2u, 3u, 5u}) {
    const std::vector<Sample> all = samples({ranks}, true);
    const uint32_t least = ranks == 5 ? 3 : 2;
    for (int round = 0; round < rounds(GetParam(), 4);) {
      const Sample& sample = all[below(all.size())];
      const std::vector<Plan> plans = in_strands(sample.plans, TUTTI_CUDA_MAX_STRANDS, random_());
      if (program::most_strands(plans) < least) continue;
      ++round;
      ASSERT_EQ(proof(plans), "") << sample.name << "\n" << listing(plans);
      ASSERT_EQ(run_plans(plans, GetParam().wire == Wire::kSimple ? 1500 : 5000), "") << sample.name << "\n"
                                                                                      << listing(plans);
    }
  }
}

/// The plans are an all-reduce of two ranks. The second strand of rank 0 sends what the first strand has folded.
std::vector<Plan> fold_and_return() {
  return write_plans(TUTTI_ALL_REDUCE, 2, 2, [](PlanBuilder& plan, uint32_t rank) {
    for (uint32_t chunk = 0; chunk < 2; ++chunk) {
      if (rank == 0) plan.step().own(Buffer::kInput, chunk).recv(1).final().to_output(chunk);
      if (rank == 1) plan.step().own(Buffer::kInput, chunk).send(0);
    }
    plan.strand();
    for (uint32_t chunk = 0; chunk < 2; ++chunk) {
      if (rank == 0) plan.step().own(Buffer::kOutput, chunk).send(1).after(chunk);
      if (rank == 1) plan.step().recv(0).to_output(chunk).after(chunk);
    }
  });
}

/// The emulator finds a race: the second strand sends chunks before the first has written them.
TEST_P(StrandKernels, FailWithoutWaits) {
  const std::vector<Plan> plans = fold_and_return();
  ASSERT_EQ(proof(plans), "");
  constexpr int kTimes = 200;  // whether strands meet in the wrong order also depends on the processors
  for (const bool drops_waits : {false, true}) {
    int wrong = 0;
    for (int i = 0; i < (drops_waits ? kTimes : 5) && wrong == 0; ++i) {
      const TestCall call(plans, false, 2000, 1, GetParam().layout);
      KernelMachine::Options options = options_of(GetParam(), 2, 1);
      options.seed = random_();
      options.drops_waits = drops_waits;
      KernelMachine machine(options);
      const ProgramCall calls[] = {call.call()};
      ASSERT_EQ(machine.run(calls, 1), "");
      EXPECT_TRUE(machine.is_at_rest());
      if (!call.check().empty()) ++wrong;
    }
    EXPECT_EQ(wrong, drops_waits ? 1 : 0);
  }
}

/// Each rank sends all its messages before it receives one. If chunks had the largest size, connections would not hold
/// the messages.
TEST_P(StrandKernels, HaveRoomForMessagesUnderWay) {
  const tutti_slot_layout& layout = GetParam().layout;
  const uint32_t chunks = std::min(3u, layout.slot_count / 2);
  const std::vector<Plan> plans = write_plans(TUTTI_ALL_GATHER, 2, chunks, [&](PlanBuilder& plan, uint32_t rank) {
    const uint32_t peer = 1 - rank;
    for (uint32_t chunk = 0; chunk < chunks; ++chunk) plan.step().own(Buffer::kInput, chunk).send(peer);
    for (uint32_t chunk = 0; chunk < chunks; ++chunk) plan.step().recv(peer).to_output(peer * chunks + chunk);
    plan.strand();
    for (uint32_t chunk = 0; chunk < chunks; ++chunk) {
      plan.step().own(Buffer::kInput, chunk).to_output(rank * chunks + chunk);
    }
  });
  ASSERT_EQ(program::verify(plans, {layout.slot_count / 2}).text(), "");
  const uint64_t bytes = 2 * chunks * layout.chunk_slots * std::min<uint64_t>(layout.slot_bytes, 4096);
  std::vector<TestCall> calls;
  calls.emplace_back(plans, false, bytes, 1, layout);
  EXPECT_EQ(run(GetParam(), calls, 1, 0, random_()), "");
}

/// Rank 1 does not take part: the second strand of rank 0 waits for the first, and the first for rank 1.
TEST_P(StrandKernels, EndWhileAStrandWaits) {
  const std::vector<Plan> plans = fold_and_return();
  for (const bool aborts : {false, true}) {
    const TestCall call(plans, false, 1000, 1, GetParam().layout);
    KernelMachine::Options options = options_of(GetParam(), 2, 1);
    options.timeout_ns = aborts ? 300'000'000'000 : 2'000'000'000;  // a busy machine may hold a thread back
    options.counts_signals = true;
    KernelMachine machine(options);
    std::vector<std::vector<tutti_cuda_launch>> launches(2);
    launches[0] = {machine.launch(0, call.call(), 1)};
    if (aborts) machine.abort();
    EXPECT_EQ(machine.run(launches).empty(), aborts);
    EXPECT_EQ(machine.signals(), 0u) << "a strand that stops does not say that its step is complete";
    EXPECT_EQ(machine.control(0).peer, aborts ? TUTTI_CUDA_NO_PEER : 1u)
        << "the strand that waits for a peer reports it";
    EXPECT_TRUE(machine.is_at_rest()) << "strands that end early count as ended";
  }
}

/// The first strand takes longer for all its steps than a wait may last, but not for one step. The second strand waits
/// for the last step, so it sees the steps before it, which the third strand waits for.
TEST_P(StrandKernels, WaitAsLongAsTheStrandMoves) {
  constexpr uint32_t kSteps = 6;
  const std::vector<Plan> plans = write_plans(TUTTI_ALL_GATHER, 1, kSteps, [](PlanBuilder& plan, uint32_t) {
    for (uint32_t chunk = 0; chunk < kSteps; ++chunk) plan.step().own(Buffer::kInput, chunk).to_output(chunk);
    plan.strand();
    plan.step().after(kSteps - 1);
    plan.strand();
    for (uint32_t chunk = 0; chunk + 1 < kSteps; ++chunk) plan.step().after(chunk);
  });
  const TestCall call(plans, false, 60, 1, GetParam().layout);  // one loop
  KernelMachine::Options options = options_of(GetParam(), 1, 1);
  options.counts_signals = true;
  options.signal_time = std::chrono::milliseconds(400);
  options.timeout_ns = 700'000'000;  // a wait for a strand has twice the time
  KernelMachine machine(options);
  const ProgramCall calls[] = {call.call()};
  EXPECT_EQ(machine.run(calls, 1), "");
  EXPECT_EQ(machine.signals(), kSteps);
  EXPECT_EQ(call.check(), "");
}

/// Relays carry the messages of each strand between hosts.
TEST(RelayedStrands, RunTheExamples) {
  Protocol protocol = all_protocols()[0];
  ASSERT_EQ(protocol.wire, Wire::kLL);
  protocol.hosts = 2;
  const uint64_t seed = test_seed();
  SCOPED_TRACE(fmt::format("TUTTI_TEST_SEED={}", seed));
  for (const char* const name : {"two_rings4.yaml", "chain_strands4.yaml"}) {
    const std::vector<Plan> plans = example(name);
    std::vector<TestCall> calls;
    for (const uint64_t bytes : {40'000, 1, 40'000}) calls.emplace_back(plans, false, bytes, 2, protocol.layout);
    ASSERT_EQ(run(protocol, calls, 2, 0u - 100, seed), "") << name;
  }
}

INSTANTIATE_TEST_SUITE_P(All, StrandKernels, testing::ValuesIn(all_protocols()), protocol_name);

}  // namespace
}  // namespace tutti::test
