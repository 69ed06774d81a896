// SPDX-License-Identifier: Apache-2.0
// The code of the GPU kernels runs programs that number their connections: in communicators of more ranks than a
// program has connections (TUTTI_CUDA_MAX_CONNECTIONS).
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <random>

#include "unit/kernel_protocols.h"
#include "unit/plan_support.h"
#include "unit/strand_plans.h"

namespace tutti::test {
namespace {

using program::Plan;
using sdk::Buffer;
using sdk::PlanBuilder;

constexpr uint32_t kRanks = TUTTI_CUDA_MAX_CONNECTIONS + 2;

class ConnectionKernels : public testing::TestWithParam<Protocol> {
 protected:
  size_t below(size_t limit) { return std::uniform_int_distribution<size_t>(0, limit - 1)(random_); }

  /// Runs calls of these plans in a row. "": all is right.
  std::string run_in_a_row(const std::vector<std::vector<Plan>>& of_calls, uint64_t most_bytes) {
    const Protocol& protocol = GetParam();
    std::vector<TestCall> calls;
    for (const std::vector<Plan>& plans : of_calls) {
      const bool in_place = can_run_in_place(plans[0]) && below(2) == 0;
      calls.emplace_back(plans, in_place, 1 + below(most_bytes), 1, protocol.layout);
      if (!calls.back().fits()) return "kernels do not run the plans";
    }
    return run(protocol, calls, 1, any_number([&](size_t limit) { return below(limit); }), random_());
  }

  uint64_t seed_ = test_seed();
  std::mt19937_64 random_{seed_};
  const testing::ScopedTrace trace_{__FILE__, __LINE__, fmt::format("TUTTI_TEST_SEED={}", seed_)};
};

/// The calls have different connections, and a connection rests for more messages than it has slots.
TEST_P(ConnectionKernels, RunProgramsOfDifferentConnections) {
  const std::vector<Plan> ring = plans_of("ring  all_reduce", kRanks);
  const std::vector<Plan> tree = plans_of("tree direct all_reduce", kRanks);
  const std::vector<Plan> gather = plans_of("ring  all_gather", kRanks);
  ASSERT_EQ(run_in_a_row({tree, ring, tree, tree}, 40), "");
  ASSERT_EQ(run_in_a_row({ring, tree, tree, tree, tree, gather}, 40), "");
}

/// A call that passes a multiple of 2^29 signals all ranks, so that no `done` is older than 2^29 messages.
TEST_P(ConnectionKernels, SignalAllRanksOnceInAWhile) {
  constexpr uint32_t kLongestRest = 1u << 29;
  const Protocol& protocol = GetParam();
  const std::vector<Plan> ring_plans = plans_of("ring  all_reduce", kRanks);
  const std::vector<Plan> tree_plans = plans_of("tree direct all_reduce", kRanks);
  const TestCall ring(ring_plans, false, 200, 1, protocol.layout);
  const TestCall tree(tree_plans, false, 200, 1, protocol.layout);
  KernelMachine::Options options = options_of(protocol, kRanks, 1);
  options.first_number = 3 * kLongestRest - 5;
  options.tail_rest = options.done_rest = kLongestRest;
  options.seed = random_();
  KernelMachine machine(options);
  const std::vector<ProgramCall> calls = {ring.call(), tree.call()};
  ASSERT_EQ(machine.run(calls, 1), "");
  EXPECT_EQ(ring.check(), "");
  EXPECT_EQ(tree.check(), "");
  for (uint32_t from = 0; from < kRanks; ++from) {
    for (uint32_t to = 0; to < kRanks; ++to) {
      if (from == to) continue;
      ASSERT_GE(machine.done(from, to), 3 * kLongestRest) << "rank " << from << " to rank " << to;
    }
  }
}

/// With small slots, a call has many loops, and more messages than there are slots.
TEST_P(ConnectionKernels, RunLongCalls) {
  const std::vector<Plan> tree = plans_of("tree direct all_reduce", kRanks);
  ASSERT_EQ(run_in_a_row({tree, plans_of("tree direct broadcast", kRanks), tree}, 3000), "");
}

/// An all-reduce. Rank 0 has as many connections as a program may have, and folds the data of all of them at once.
std::vector<Plan> plans_of_a_hub() {
  constexpr uint32_t kLast = kRanks - 1;  // its data goes by rank 1
  static_assert(kLast == TUTTI_CUDA_MAX_CONNECTIONS + 1);
  return write_plans(TUTTI_ALL_REDUCE, kRanks, 1, [](PlanBuilder& plan, uint32_t rank) {
    if (rank == 0) {
      auto&& fold = plan.step().own(Buffer::kInput, 0);
      for (uint32_t peer = 1; peer < kLast; ++peer) fold.recv(peer);
      fold.final().to_output(0);
      auto&& share = plan.step().own(Buffer::kOutput, 0);
      for (uint32_t peer = 1; peer < kLast; ++peer) share.send(peer);
      return;
    }
    if (rank == kLast) {
      plan.step().own(Buffer::kInput, 0).send(1);
      plan.step().recv(1).to_output(0);
      return;
    }
    auto&& give = plan.step().own(Buffer::kInput, 0);
    if (rank == 1) give.recv(kLast);
    give.send(0);
    auto&& take = plan.step().recv(0).to_output(0);
    if (rank == 1) take.send(kLast);
  });
}

TEST_P(ConnectionKernels, RunAProgramOfTheMostConnections) {
  const std::vector<Plan> hub = plans_of_a_hub();
  ASSERT_EQ(run_in_a_row({hub, plans_of("ring  all_reduce", kRanks), hub, hub}, 300), "");
}

/// Rank 0 fills most slots of its connection to rank 1, which reads nothing. In the next call, rank 0 hears from
/// rank 2 alone that slots are free. Rank 0 must not take this for the slots of rank 1.
TEST_P(ConnectionKernels, WaitForARankThatLagsByTwoCalls) {
  const Protocol& protocol = GetParam();
  const std::vector<Plan> to_one = write_plans(TUTTI_ALL_REDUCE, kRanks, 1, [](PlanBuilder& plan, uint32_t rank) {
    if (rank == 0) plan.step().own(Buffer::kInput, 0).send(1);
    if (rank == 1) plan.step().recv(0).to_output(0);
  });
  const std::vector<Plan> from_two = write_plans(TUTTI_ALL_REDUCE, kRanks, 1, [](PlanBuilder& plan, uint32_t rank) {
    if (rank == 2) plan.step().own(Buffer::kInput, 0).send(0);
    if (rank == 0) plan.step().recv(2).to_output(0);
  });
  const TestCall hear(from_two, false, 1, 1, protocol.layout);
  const uint32_t slots = protocol.layout.slot_count;
  const auto has_room = [&](uint64_t bytes) {  // the first two calls wait for no slot
    const TestCall call(to_one, false, bytes, 1, protocol.layout);
    return call.call().cut.messages + hear.call().cut.messages <= slots;
  };
  uint64_t bytes = 8;
  while (has_room(bytes + 8)) bytes += 8;
  const TestCall fill(to_one, false, bytes, 1, protocol.layout);
  KernelMachine::Options options = options_of(protocol, kRanks, 1);
  options.first_number = any_number([&](size_t limit) { return below(limit); });
  options.seed = random_();
  options.timeout_ns = 300'000'000;
  KernelMachine machine(options);
  const auto launch = [&](uint32_t rank, const TestCall& test) { return machine.launch(rank, test.call(), 1); };
  std::vector<std::vector<tutti_cuda_launch>> launches(kRanks);
  launches[2] = {launch(2, fill), launch(2, hear)};
  ASSERT_EQ(machine.run(launches), "");
  launches[2].clear();
  launches[0] = {launch(0, fill), launch(0, hear)};
  ASSERT_EQ(machine.run(launches), "");
  launches[0] = {launch(0, fill)};
  EXPECT_NE(machine.run(launches), "") << "rank 0 waits for rank 1, which has no part in the runs";
  EXPECT_EQ(machine.fault(0), static_cast<uint32_t>(TUTTI_TIMEOUT));
  EXPECT_EQ(machine.control(0).peer, 1u);
}

TEST_P(ConnectionKernels, RunStrands) {
  const std::vector<Plan> tree = plans_of("tree direct all_reduce", kRanks);
  const std::vector<Plan> strands = in_strands(tree, TUTTI_CUDA_MAX_STRANDS, random_());
  ASSERT_GT(program::most_strands(strands), 1u);
  ASSERT_EQ(run_in_a_row({tree, strands, strands, tree, strands}, 200), "");
}

/// Small slots of each wire format: few bytes are many messages.
INSTANTIATE_TEST_SUITE_P(All, ConnectionKernels,
                         testing::Values(all_protocols()[1], all_protocols()[3], all_protocols()[5]), protocol_name);

}  // namespace
}  // namespace tutti::test
