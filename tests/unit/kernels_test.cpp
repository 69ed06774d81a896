// SPDX-License-Identifier: Apache-2.0
// The code of the GPU kernels fulfils plans, in every order in which warps, bulk copies and ranks may advance.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <atomic>
#include <bit>
#include <cmath>
#include <future>
#include <map>
#include <numeric>
#include <random>
#include <thread>

#include "backend/cuda/launch_builder.h"
#include "backend/cuda/stripes.h"
#include "unit/kernel_protocols.h"
#include "unit/plan_support.h"
#include "unit/program_calls.h"

namespace tutti::test {
namespace {

/// Some calls in a row of random plans, sizes and places.
void run_random(const Protocol& protocol, const std::vector<uint32_t>& rank_counts, int rounds) {
  const uint64_t seed = test_seed();
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
        const bool in_place = can_run_in_place(sample.plans[0]) && below(2) == 0;
        const bool registered = protocol.wire == Wire::kSimple && below(2) == 0;
        TestCall call(sample.plans, in_place, bytes, ctas, protocol.layout, registered);
        if (!call.fits()) continue;
        names += fmt::format("{}, {} bytes{}; ", sample.name, bytes, registered ? ", registered" : "");
        calls.push_back(std::move(call));
      }
      const uint32_t first_number = any_number(below);
      ASSERT_EQ(run(protocol, calls, ctas, first_number, random()), "")
          << names << ctas << " CTAs, first_number " << first_number << ", " << protocol.name;
    }
  }
}

/// The messages of all ranks in one launch each, with their memory.
class TestGroup {
 public:
  template <class Below>
  TestGroup(uint32_t ranks, const Protocol& protocol, KernelMachine& machine, Below&& below)
      : sent_(size_t{ranks} * ranks), received_(sent_.size()) {
    std::vector<std::vector<backend::Message>> messages(ranks);
    const size_t share = 1 + below(4);  // share of all pairs, in quarters
    for (uint32_t from = 0; from < ranks; ++from) {
      for (uint32_t to = 0; to < ranks; ++to) {
        // With share 4: one rank exchanges messages with all ranks.
        const bool is_there = share == 4 ? from == 0 || to == 0 : below(4 * ranks) < share * std::min(ranks, 6u);
        if (!is_there || (from == to && ranks > TUTTI_CUDA_SMALL_RANKS)) continue;  // a copy would be one too many
        const uint64_t bytes = 1 + below(below(2) == 0 ? 5000 : 100);
        const auto stripes = static_cast<uint32_t>(1 + below(kStripes));
        messages[from].push_back({from == to ? TUTTI_CUDA_KEEP : TUTTI_CUDA_SEND, to, bytes, stripes});
        if (from != to) messages[to].push_back({TUTTI_CUDA_RECEIVE, from, bytes, stripes});
        auto& data = sent_[from * ranks + to];
        data.resize(bytes);
        for (uint8_t& byte : data) byte = static_cast<uint8_t>(below(256));
        received_[from * ranks + to].assign(bytes, 0xee);
      }
    }
    const auto most_ctas = static_cast<uint32_t>(1 + below(4));
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      auto& own = messages[rank];
      for (size_t i = own.size(); i > 1; --i) std::swap(own[i - 1], own[below(i)]);
      std::map<uint32_t, std::vector<backend::Message>> parts;
      for (const backend::Message& message : own) parts[backend::part_of(message, rank, ranks)].push_back(message);
      launches_.emplace_back();
      for (const auto& [part, of_launch] : parts) {
        launches_.back().push_back(launch(of_launch, rank, ranks, protocol, most_ctas, machine));
      }
    }
  }
  static constexpr uint32_t kStripes = 5;
  const std::vector<tutti_cuda_launch>& launches(uint32_t rank) const { return launches_[rank]; }
  bool is_right() const { return sent_ == received_; }

 private:
  tutti_cuda_launch launch(const std::vector<backend::Message>& messages, uint32_t rank, uint32_t ranks,
                           const Protocol& protocol, uint32_t most_ctas, KernelMachine& machine) {
    tutti_cuda_launch launch = machine.launch(rank);
    const auto places = backend::lay_out(messages, protocol.layout, most_ctas, launch);
    EXPECT_TRUE(places.ok());
    for (size_t i = 0; i < messages.size() && places.ok(); ++i) {
      const bool receives = messages[i].kind == TUTTI_CUDA_RECEIVE;
      const size_t pair = receives ? messages[i].peer * ranks + rank : rank * ranks + messages[i].peer;
      tutti_cuda_message& message = launch.messages[(*places)[i]];
      if (!receives) message.from = sent_[pair].data();
      if (messages[i].kind != TUTTI_CUDA_SEND) message.to = received_[pair].data();
    }
    return launch;
  }

  std::vector<std::vector<uint8_t>> sent_, received_;     // by sender and receiver
  std::vector<std::vector<tutti_cuda_launch>> launches_;  // by rank
};

void run_groups(const Protocol& protocol, int rounds, uint32_t least_ranks, uint32_t most_ranks) {
  const uint64_t seed = test_seed();
  SCOPED_TRACE(fmt::format("TUTTI_TEST_SEED={}", seed));
  std::mt19937_64 random(seed);
  const auto below = [&](size_t limit) { return std::uniform_int_distribution<size_t>(0, limit - 1)(random); };
  for (int round = 0; round < rounds; ++round) {
    const auto ranks = static_cast<uint32_t>(least_ranks + below(most_ranks + 1 - least_ranks));
    KernelMachine::Options options = options_of(protocol, ranks, TestGroup::kStripes);
    options.large_ranks = random();
    options.first_number = any_number(below);
    options.seed = random();
    KernelMachine machine(options);
    std::vector<TestGroup> groups;
    groups.reserve(3);
    for (int i = 0; i < 3; ++i) groups.emplace_back(ranks, protocol, machine, below);
    std::vector<std::vector<tutti_cuda_launch>> launches(ranks);
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      for (const TestGroup& group : groups) {
        launches[rank].insert(launches[rank].end(), group.launches(rank).begin(), group.launches(rank).end());
      }
    }
    ASSERT_EQ(machine.run(launches), "") << ranks << " ranks, " << protocol.name;
    for (size_t i = 0; i < groups.size(); ++i) {
      ASSERT_TRUE(groups[i].is_right()) << "group " << i << ", " << ranks << " ranks, " << protocol.name;
    }
  }
}

class Kernels : public testing::TestWithParam<Protocol> {};

TEST_P(Kernels, DoWhatTheirPlansSay) {
  run_random(GetParam(), {2, 3, 4}, rounds(GetParam(), 3));
}
TEST_P(Kernels, WithMoreRanks) {
  run_random(GetParam(), {5, 8, 12}, rounds(GetParam(), 1));
}

/// Runs a plan of each family at these numbers of ranks.
void run_families(const Protocol& protocol, const std::vector<uint32_t>& rank_counts) {
  const uint64_t seed = test_seed();
  SCOPED_TRACE(fmt::format("TUTTI_TEST_SEED={}", seed));
  std::mt19937_64 random(seed);
  const auto below = [&](size_t limit) { return std::uniform_int_distribution<size_t>(0, limit - 1)(random); };
  for (const uint32_t ranks : rank_counts) {
    for (const char* name :
         {"ring  all_reduce", "tree direct all_reduce", "direct two-shot all_reduce", "direct one-shot all_to_all"}) {
      const std::vector<program::Plan> plans = plans_of(name, ranks);
      const bool in_place = can_run_in_place(plans[0]) && below(2) == 0;
      const TestCall call(plans, in_place, 1 + below(300), 1, protocol.layout);
      ASSERT_TRUE(call.fits()) << name << ", " << ranks << " ranks";
      ASSERT_EQ(run(protocol, {&call, 1}, 1, any_number(below), random()), "")
          << name << ", " << ranks << " ranks, in place " << in_place;
    }
  }
}

/// Each number of ranks that the small form takes, or three of these numbers.
TEST_P(Kernels, OfEachFamilyUpToTheLimitOfTheSmallForm) {
  run_families(GetParam(), takes_few(GetParam()) ? std::vector<uint32_t>{2, 7, TUTTI_CUDA_SMALL_RANKS}
                                                 : all_of(2, TUTTI_CUDA_SMALL_RANKS));
}

/// One or two numbers of ranks, or with TUTTI_TEST_ROUNDS many numbers up to the limit of kernels.
TEST_P(Kernels, OfEachFamilyBeyondTheSmallForm) {
  std::vector<uint32_t> ranks = {TUTTI_CUDA_SMALL_RANKS + 1, 33};
  if (GetParam().wire == Wire::kSimple) std::erase(ranks, GetParam().layout.slot_bytes > 128 ? 17 : 33);
  if (std::getenv("TUTTI_TEST_ROUNDS") != nullptr) {
    ranks = all_of(TUTTI_CUDA_SMALL_RANKS + 1, 33);
    ranks.push_back(48);
    ranks.push_back(TUTTI_CUDA_MAX_CONNECTIONS + 1);
  }
  run_families(with_less_memory(GetParam()), ranks);
}

/// All-reduces over two pairs of ranks. Ranks 0 and 2 fold the data of their pair. Rank 0 writes it to its output and
/// reads it there again: at once if there is one pair, else one wave later.
std::vector<program::Plan> pairs_of(uint32_t ranks) {
  using sdk::Buffer;
  std::vector<program::Plan> plans;
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    plans.push_back(write_plan(TUTTI_ALL_REDUCE, ranks, rank, 1, [&](sdk::PlanBuilder& plan) {
      if (rank == 0) plan.step().recv(1).own(Buffer::kInput, 0).to_output(0);
      if (rank % 2 != 0) plan.step().own(Buffer::kInput, 0).send(rank - 1);
      if (rank == 2) plan.step().recv(3).own(Buffer::kInput, 0).send(0);
      if (rank == 0 && ranks == 2) plan.step().own(Buffer::kOutput, 0).send(1);
      if (rank == 0 && ranks == 4) plan.step().recv(2).own(Buffer::kOutput, 0).to_output(0).send(1).send(2).send(3);
      if (rank != 0) plan.step().recv(0).to_output(0);
    }));
  }
  return plans;
}

/// Over two ranks and two chunks. The second chunk goes out first. Its step waits for earlier steps, and this wait
/// serves the first chunk, too, also if the second chunk has no data.
std::vector<program::Plan> crossed_pair() {
  using sdk::Buffer;
  std::vector<program::Plan> plans;
  for (uint32_t rank = 0; rank < 2; ++rank) {
    plans.push_back(write_plan(TUTTI_ALL_REDUCE, 2, rank, 2, [&](sdk::PlanBuilder& plan) {
      for (const uint32_t chunk : {0u, 1u}) {
        if (rank == 0) plan.step().recv(1).own(Buffer::kInput, chunk).to_output(chunk);
        if (rank == 1) plan.step().own(Buffer::kInput, chunk).send(0);
      }
      for (const uint32_t chunk : {1u, 0u}) {
        if (rank == 0) plan.step().own(Buffer::kOutput, chunk).send(1);
        if (rank == 1) plan.step().recv(0).to_output(chunk);
      }
    }));
  }
  return plans;
}

TEST_P(Kernels, ReadWhatStepsBeforeLeft) {
  const uint64_t seed = test_seed();
  SCOPED_TRACE(fmt::format("TUTTI_TEST_SEED={}", seed));
  std::mt19937_64 random(seed);
  const auto below = [&](size_t limit) { return std::uniform_int_distribution<size_t>(0, limit - 1)(random); };
  for (const std::vector<program::Plan>& plans : {pairs_of(2), pairs_of(4), crossed_pair()}) {
    for (int round = 0; round < rounds(GetParam(), 3); ++round) {
      for (const bool in_place : {false, true}) {
        // The last of several CTAs has less data, and thus chunks that are not whole.
        const auto ctas = static_cast<uint32_t>(below(2) == 0 ? 1 : 6);
        const TestCall call(plans, in_place, 1 + below(6000), ctas, GetParam().layout);
        ASSERT_EQ(run(GetParam(), {&call, 1}, ctas, any_number(below), random()), "")
            << plans.size() << " ranks, " << plans[0].chunks << " chunks, in place " << in_place;
      }
    }
  }
}

/// Over 3 ranks. Rank 0 sends all chunks to rank 1, but only the first to rank 2, which gets the remaining chunks from
/// rank 1: some connections carry fewer messages than the busiest.
std::vector<program::Plan> uneven_broadcast(uint32_t chunks) {
  using sdk::Buffer;
  std::vector<program::Plan> plans;
  for (uint32_t rank = 0; rank < 3; ++rank) {
    plans.push_back(write_plan(TUTTI_BROADCAST, 3, rank, chunks, [&](sdk::PlanBuilder& plan) {
      for (uint32_t chunk = 0; chunk < chunks; ++chunk) {
        auto& step = plan.step().to_output(chunk);
        if (rank == 0) step.own(Buffer::kInput, chunk).send(1);
        if (rank == 0 && chunk == 0) step.send(2);
        if (rank == 1) step.recv(0);
        if (rank == 1 && chunk > 0) step.send(2);
        if (rank == 2) step.recv(chunk == 0 ? 0 : 1);
      }
    }));
  }
  return plans;
}

TEST_P(Kernels, OfConnectionsThatCarryLessThanOthers) {
  const uint64_t seed = test_seed();
  SCOPED_TRACE(fmt::format("TUTTI_TEST_SEED={}", seed));
  std::mt19937_64 random(seed);
  const uint32_t slots = GetParam().layout.slot_count;
  // More messages on the busiest connection than it has slots, in many loops.
  const std::vector<program::Plan> plans = uneven_broadcast(slots + 3);
  const uint64_t loop = (slots + 3) * GetParam().layout.chunk_slots * GetParam().layout.slot_bytes;
  const std::vector<TestCall> calls = [&] {
    std::vector<TestCall> made;
    made.emplace_back(plans, false, std::min<uint64_t>(6 * loop, 40'000), 1, GetParam().layout);
    return made;
  }();
  ASSERT_TRUE(calls[0].fits());
  EXPECT_EQ(run(GetParam(), calls, 1, static_cast<uint32_t>(random()), random()), "");
}

/// More calls in a row than slots. The root gets no messages, only done signals.
TEST_P(Kernels, RunMoreCallsInARowThanThereAreSlots) {
  const uint64_t seed = test_seed();
  SCOPED_TRACE(fmt::format("TUTTI_TEST_SEED={}", seed));
  std::mt19937_64 random(seed);
  for (const char* name : {"direct one-shot broadcast", "ring  broadcast"}) {
    const std::vector<program::Plan> plans = plans_of(name, 3);
    const size_t count = GetParam().layout.slot_count * 4 + 3;
    std::vector<TestCall> calls;
    for (size_t i = 0; i < count; ++i) calls.emplace_back(plans, false, 1 + i % 40, 1, GetParam().layout);
    // By the kernel for one hop on all ranks, on none, and on some.
    for (const uint64_t kernels : {0, 7, 2}) {
      ASSERT_EQ(run(GetParam(), calls, 1, static_cast<uint32_t>(random()), (random() & ~uint64_t{7}) | kernels), "")
          << name << ", kernels " << kernels;
    }
  }
}

/// Between hosts, relays carry the same slots: in all orders, over the end of sequence numbers, with large and small
/// slots, and with some ranks on the same host.
TEST(KernelsBetweenHosts, DoWhatTheirPlansSay) {
  const std::vector<Protocol>& all = all_protocols();
  for (auto [protocol, hosts] : {std::pair(all[0], 2u), std::pair(all[1], 64u)}) {
    protocol.hosts = hosts;
    run_random(protocol, {2, 3, 4}, rounds(protocol, 1));
    run_families(protocol, {2, 5, 8});
    run_groups(protocol, rounds(protocol, 1), 2, 4);
  }
}

/// Moves of more tiles than there are stages, copied and folded, of whole tiles and with a rest.
TEST(KernelsOfLargeSlots, MoveManyTiles) {
  const uint64_t seed = test_seed();
  SCOPED_TRACE(fmt::format("TUTTI_TEST_SEED={}", seed));
  std::mt19937_64 random(seed);
  const Protocol protocol = {"simple of large slots", Wire::kSimple, layout_of(4, 1 << 18, 2, 1), 0, true};
  for (const char* name : {"ring  broadcast", "direct one-shot all_reduce", "ring  all_gather"}) {
    const std::vector<program::Plan> plans = plans_of(name, 3);
    for (const uint64_t bytes : {uint64_t{1} << 18, uint64_t{(1 << 18) + (1 << 17) + 48}}) {
      const TestCall call(plans, false, bytes, 1, protocol.layout);
      ASSERT_EQ(run(protocol, {&call, 1}, 1, static_cast<uint32_t>(random()), random()), "") << name << ", " << bytes;
    }
  }
}

TEST_P(Kernels, SendAndReceive) {
  run_groups(GetParam(), rounds(GetParam(), 3), 2, 6);
}

/// A group of a rank that exchanges messages with all ranks has several launches.
TEST_P(Kernels, SendAndReceiveBetweenManyRanks) {
  const bool is_long = std::getenv("TUTTI_TEST_ROUNDS") != nullptr;
  run_groups(with_less_memory(GetParam()), is_long ? 3 : 1, TUTTI_CUDA_SMALL_RANKS + 1, is_long ? 40 : 20);
  // Slots of all pairs must fit the memory.
  if (GetParam().layout.slot_bytes * GetParam().layout.slot_count > 1024) return;
  run_groups(GetParam(), 1, TUTTI_CUDA_MAX_CONNECTIONS + 2, TUTTI_CUDA_MAX_CONNECTIONS + 9);
}

/// A reduction of floats in one step, whose order shows in the bits.
struct Folding {
  bool average = false;
  bool scaled = false;
};

void check_order(const Protocol& protocol, uint32_t ranks, size_t count, const Folding& folding) {
  SCOPED_TRACE(
      fmt::format("{}, {} ranks, average {}, scaled {}", protocol.name, ranks, folding.average, folding.scaled));
  const Algorithm direct("direct");
  Connected connected(direct, split(ranks, 1));
  const auto plans = connected.plans(TUTTI_ALL_REDUCE, 0);  // one-shot
  ASSERT_TRUE(plans.ok());
  const auto programs = backend::lower_channels({*plans}, false, false, protocol.layout);
  ASSERT_TRUE(programs.ok());
  ProgramCall call{};
  call.programs = programs->front();
  call.block_bytes = count * sizeof(float);
  call.layout = protocol.layout;
  call.cut = program::cut(call.block_bytes, 1, call.programs[0], protocol.layout);
  std::vector<std::vector<float>> inputs(ranks, std::vector<float>(count));
  std::vector<std::vector<float>> outputs(ranks, std::vector<float>(count, -1));
  const uint64_t seed = test_seed();
  SCOPED_TRACE(fmt::format("TUTTI_TEST_SEED={}", seed));
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<float> exponent(-12, 12);
  for (auto& input : inputs) {
    for (float& value : input) value = std::exp2(exponent(random)) * (random() % 2 == 0 ? 1.0F : -1.0F);
  }
  KernelMachine::Options options = options_of(protocol, ranks, 1);
  options.floats = true;
  KernelMachine machine(options);
  std::vector<std::vector<tutti_cuda_launch>> launches(ranks);
  const auto factor_of = [&](uint32_t rank) { return folding.scaled ? 0.7F + 0.1F * static_cast<float>(rank) : 1.0F; };
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    call.inputs.emplace_back(reinterpret_cast<uint8_t*>(inputs[rank].data()), call.block_bytes);
    call.outputs.emplace_back(reinterpret_cast<uint8_t*>(outputs[rank].data()), call.block_bytes);
  }
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    tutti_cuda_launch& launch = launches[rank].emplace_back(machine.launch(rank, call, 1));
    launch.divisor = folding.average ? ranks : 0;
    launch.premultiplied = folding.scaled ? 1 : 0;
    launch.scalar = std::bit_cast<uint32_t>(factor_of(rank));
  }
  ASSERT_EQ(machine.run(launches), "");
  for (size_t at = 0; at < count; ++at) {
    float sum = inputs[0][at] * factor_of(0);
    for (uint32_t rank = 1; rank < ranks; ++rank) {
      const float next = inputs[rank][at] * factor_of(rank);
      sum += next;
    }
    if (folding.average) sum /= static_cast<float>(ranks);
    for (uint32_t rank = 0; rank < ranks; ++rank) ASSERT_EQ(outputs[rank][at], sum) << "element " << at;
  }
}

TEST_P(Kernels, FoldInOrderOfRanks) {
  for (const uint32_t ranks : {2u, 3u, 4u, 5u, 8u, 9u, 12u}) {
    for (const Folding folding : {Folding{false, false}, Folding{true, false}, Folding{false, true}}) {
      if (GetParam().wire == Wire::kSimple && ranks > 5 && folding.average) continue;  // takes longer, shows no more
      check_order(GetParam(), ranks, 37, folding);
    }
  }
}

/// An all-reduce.
std::vector<program::Plan> ring_of_three(uint32_t collective) {
  const Algorithm ring("ring");
  Connected connected(ring, split(3, 1));
  auto plans = connected.plans(collective, 0);
  EXPECT_TRUE(plans.ok());
  return plans.ok() ? *std::move(plans) : std::vector<program::Plan>();
}

/// All ranks' launches of it.
std::vector<std::vector<tutti_cuda_launch>> ring_launches(KernelMachine& machine, const TestCall& call) {
  std::vector<std::vector<tutti_cuda_launch>> launches(call.call().programs.size());
  for (uint32_t rank = 0; rank < launches.size(); ++rank) launches[rank] = {machine.launch(rank, call.call(), 1)};
  return launches;
}

TEST_P(Kernels, GiveUpOnARankThatDoesNotCome) {
  const std::vector<program::Plan> plans = ring_of_three(TUTTI_ALL_REDUCE);
  const TestCall call(plans, false, 1000, 1, GetParam().layout);
  KernelMachine::Options options = options_of(GetParam(), 3, 1);
  options.timeout_ns = uint64_t{2} * TUTTI_CUDA_LONG_WAIT_NS;
  KernelMachine machine(options);
  auto launches = ring_launches(machine, call);
  launches[2].clear();
  EXPECT_NE(machine.run(launches), "");
  const tutti_cuda_control& control = machine.control(0);
  EXPECT_EQ(control.waits & TUTTI_CUDA_WAIT_RANK, 2u) << "a long wait is shown to the host";
  EXPECT_GE(control.seen, (control.waits & ~uint64_t{TUTTI_CUDA_WAIT_RANK}) + TUTTI_CUDA_LONG_WAIT_NS);
  EXPECT_EQ(machine.control(0).fault, static_cast<uint32_t>(TUTTI_TIMEOUT)) << "rank 0 waits for rank 2";
  EXPECT_EQ(machine.control(0).peer, 2u);
  EXPECT_EQ(machine.control(2).fault, 0u);
}

/// A broadcast from rank 0 through rank 1 to rank 2. One rank has its output at a different place, or at no registered
/// place. The rank that stores there and the rank that waits for the data detect it.
TEST_P(Kernels, StoreToNoOutputThatLiesElsewhere) {
  if (GetParam().wire != Wire::kSimple) GTEST_SKIP() << "goes through slots";
  const std::vector<program::Plan> plans = ring_of_three(TUTTI_BROADCAST);
  ASSERT_FALSE(plans.empty());
  const TestCall call(plans, false, 1000, 1, GetParam().layout, true);
  const TestCall plain(plans, false, 1000, 1, GetParam().layout, false);
  for (uint32_t rank = 0; rank < 3; ++rank) {
    for (const bool is_registered : {true, false}) {
      SCOPED_TRACE(fmt::format("rank {}, registered {}", rank, is_registered));
      KernelMachine::Options options = options_of(GetParam(), 3, 1);
      options.timeout_ns = is_registered ? 60'000'000'000 : 500'000'000;  // all but one are in time
      // Sequence numbers at which no older signal looks current: a mailbox that was never written signals nothing.
      const uint32_t first_numbers[] = {0, 3u << 30, 0u - call.call().cut.messages};
      options.first_number = first_numbers[rank];
      KernelMachine machine(options);
      auto launches = ring_launches(machine, call);
      if (is_registered) launches[rank][0].place += 2;
      if (!is_registered) launches[rank] = {machine.launch(rank, plain.call(), 1)};
      const uint32_t other = rank == 0 ? 1 : rank - 1;
      std::atomic<bool> ended = false;
      const auto aborted = std::async(std::launch::async, [&] {
        while (machine.fault(other) == 0 && !ended) std::this_thread::yield();
        machine.abort();  // as the host does once a rank gives up
      });
      EXPECT_NE(machine.run(launches), "");
      ended = true;
      EXPECT_EQ(machine.fault(other), static_cast<uint32_t>(is_registered ? TUTTI_MISMATCH : TUTTI_TIMEOUT));
      EXPECT_EQ(machine.control(other).peer, rank);
    }
  }
}

/// The same broadcast. Rank 2 has ended its call before the call of rank 1 begins. Its `done` signals are ahead of rank
/// 1 by more messages than there are slots, and rank 1 looks for its output nevertheless.
TEST_P(Kernels, DetectARankThatHasGivenUp) {
  if (GetParam().wire != Wire::kSimple) GTEST_SKIP() << "goes through slots";
  const std::vector<program::Plan> plans = ring_of_three(TUTTI_BROADCAST);
  ASSERT_FALSE(plans.empty());
  const TestCall call(plans, false, 1000, 1, GetParam().layout, true);
  KernelMachine::Options options = options_of(GetParam(), 3, 1);
  options.timeout_ns = 60'000'000'000;
  KernelMachine machine(options);
  auto launches = ring_launches(machine, call);
  launches[2][0].place += 2;
  machine.abort();
  ASSERT_EQ(machine.run(std::vector<std::vector<tutti_cuda_launch>>{{}, {}, launches[2]}), "");
  machine.end_abort();
  EXPECT_NE(machine.run(std::vector<std::vector<tutti_cuda_launch>>{launches[0], launches[1], {}}), "");
  EXPECT_EQ(machine.fault(1), static_cast<uint32_t>(TUTTI_MISMATCH));
  EXPECT_EQ(machine.control(1).peer, 2u);
}

TEST_P(Kernels, EndWhenAborted) {
  const std::vector<program::Plan> plans = ring_of_three(TUTTI_ALL_REDUCE);
  const TestCall call(plans, false, 1000, 1, GetParam().layout);
  KernelMachine machine(options_of(GetParam(), 3, 1));
  auto launches = ring_launches(machine, call);
  launches[2].clear();
  machine.abort();  // as if it came while they wait: they look only then
  EXPECT_EQ(machine.run(launches), "") << "no rank gives up by itself";
}

/// More stripes than CTAs, of which none is ever met.
TEST_P(Kernels, GiveUpOnMessagesThatNeverCome) {
  for (const bool aborts : {false, true}) {
    KernelMachine::Options options = options_of(GetParam(), 2, 3);
    options.timeout_ns = aborts ? 300'000'000'000 : 100'000'000;
    KernelMachine machine(options);
    std::vector<uint8_t> data(4000);
    const std::vector<backend::Message> messages = {{TUTTI_CUDA_RECEIVE, 1, data.size(), 3}};
    tutti_cuda_launch launch = machine.launch(0);
    ASSERT_TRUE(backend::lay_out(messages, GetParam().layout, 1, launch).ok());
    launch.messages[0].to = data.data();
    if (aborts) machine.abort();
    EXPECT_EQ(machine.run(std::vector<std::vector<tutti_cuda_launch>>{{launch}, {}}).empty(), aborts);
    EXPECT_EQ(machine.control(0).peer, aborts ? TUTTI_CUDA_NO_PEER : 1u);
  }
}

INSTANTIATE_TEST_SUITE_P(All, Kernels, testing::ValuesIn(all_protocols()), protocol_name);

}  // namespace
}  // namespace tutti::test
