// SPDX-License-Identifier: Apache-2.0
// Plans lowered to programs of GPU kernels: they fulfil their collective, and never deadlock.
#include "program/lower.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <functional>
#include <random>
#include <tuple>

#include "backend/cuda/launch_builder.h"
#include "tutti/sdk/plan_builder.h"
#include "unit/plan_support.h"
#include "unit/program_calls.h"
#include "unit/program_machine.h"

namespace tutti::test {
namespace {

using program::Plan;
using sdk::Buffer;
using sdk::PlanBuilder;
using testing::ElementsAre;
using testing::HasSubstr;

/// The protocols' own layouts, and small layouts with which few bytes are many loops.
const std::vector<Layout> kLayouts = {
    {"ll", false, layout_of(8, 4096, 1)},
    {"ll128", false, layout_of(8, 15360, 1)},
    {"simple", true, layout_of(4, 65536, 2)},
    {"simple 448", true, layout_of(4, 57344, 2)},
    {"small lines", false, layout_of(8, 48, 1)},
    {"small slices", true, layout_of(4, 48, 2)},
    {"small eight slots", true, layout_of(8, 32, 4)},
    {"simple that overlaps", true, layout_of(8, 49152, 2, 1)},
    {"small slices that overlap", true, layout_of(8, 48, 2, 1)},
    {"small four slots that overlap", true, layout_of(4, 32, 2, 1)},
    {"small sixteen slots that overlap", true, layout_of(16, 32, 8, 1)},
};

/// Runs calls in a row, without a meeting of ranks between them. "": all is right.
std::string run(std::span<const TestCall> tests, const Layout& layout, uint32_t ctas, uint32_t epoch) {
  std::vector<ProgramCall> calls;
  for (const TestCall& test : tests) calls.push_back(test.call());
  for (uint32_t cta = 0; cta < ctas; ++cta) {
    ProgramMachine::Options options;
    options.rank_count = static_cast<uint32_t>(calls[0].programs.size());
    options.layout = layout.layout;
    options.slices = layout.slices;
    options.cta = cta;
    options.epoch = epoch;
    options.in_turns = (cta + epoch) % 2 == 0;
    ProgramMachine machine(options, calls);
    if (std::string wrong = machine.run(); !wrong.empty()) return fmt::format("CTA {}: {}", cta, wrong);
  }
  for (size_t i = 0; i < tests.size(); ++i) {
    if (std::string wrong = tests[i].check(); !wrong.empty()) return fmt::format("call {}: {}", i, wrong);
  }
  return {};
}

/// Every sample with every layout: a call of `bytes`, one of a byte, and the first again.
void run_samples(const std::vector<uint32_t>& rank_counts, const std::vector<uint64_t>& sizes,
                 const std::vector<uint32_t>& cta_counts) {
  uint32_t epoch = 0;
  for (const Sample& sample : samples(rank_counts, rank_counts.back() <= 4)) {
    for (const bool in_place : {false, true}) {
      if (in_place && !can_run_in_place(sample.plans[0])) continue;
      for (const Layout& layout : kLayouts) {
        for (const uint64_t bytes : sizes) {
          if (bytes > 5000 && layout.layout.slot_bytes < 1000) continue;
          for (const uint32_t ctas : cta_counts) {
            const bool registered = layout.slices && (ctas + bytes) % 2 == 0;
            std::vector<TestCall> calls;
            for (const uint64_t size : {bytes, uint64_t{1}, bytes}) {
              calls.emplace_back(sample.plans, in_place, size, ctas, layout.layout, registered);
            }
            if (!calls[0].fits()) continue;
            // Numbers with any remainder, or shortly before the wrap-around.
            epoch = epoch % 8 == 7 ? ~uint32_t{0} - 4 : (epoch + 1) % 8;
            const std::string wrong = run(calls, layout, ctas, epoch);
            EXPECT_EQ(wrong, "") << sample.name << ", in place " << in_place << ", " << layout.name << ", " << bytes
                                 << " bytes, " << ctas << " CTAs, epoch " << epoch;
          }
        }
      }
    }
  }
}

TEST(LoweredPrograms, DoWhatTheirPlansSay) {
  run_samples({1, 2, 3, 4}, {1, 15, 16, 17, 1000, 4097}, {1, 3});
}
TEST(LoweredPrograms, WithMoreRanks) {
  run_samples({5, 6, 7, 8}, {1, 16, 17, 1000}, {1, 5});
  run_samples({5}, {100003}, {4});
}
TEST(LoweredPrograms, With16Ranks) {
  run_samples({16}, {1, 1000}, {2});
  run_samples({16}, {20011}, {3});
}

/// Each call finds the state that the previous call left: different collectives, sizes and shares of the slots.
TEST(LoweredPrograms, OneAfterTheOther) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937_64 random(seed);
  const auto below = [&](size_t limit) { return std::uniform_int_distribution<size_t>(0, limit - 1)(random); };
  for (const uint32_t ranks : {2u, 3u, 5u, 8u}) {
    const std::vector<Sample> all = samples({ranks}, true);
    for (int round = 0; round < 300; ++round) {
      const Layout& layout = kLayouts[below(kLayouts.size())];
      const uint32_t ctas = 1 + static_cast<uint32_t>(below(3));
      std::vector<TestCall> calls;
      std::string names;
      while (calls.size() < 6) {
        const Sample& sample = all[below(all.size())];
        const uint64_t bytes = 1 + below(below(3) == 0 ? 3000 : 100);
        const bool in_place = can_run_in_place(sample.plans[0]) && below(2) == 0;
        TestCall call(sample.plans, in_place, bytes, ctas, layout.layout, layout.slices && below(2) == 0);
        if (!call.fits()) continue;
        names += fmt::format("{}, {} bytes; ", sample.name, bytes);
        calls.push_back(std::move(call));
      }
      const auto epoch = static_cast<uint32_t>(below(2) == 0 ? below(16) : ~uint32_t{0} - below(40));
      ASSERT_EQ(run(calls, layout, ctas, epoch), "") << names << layout.name << ", " << ctas << " CTAs";
    }
  }
}

/// A call is cut once, for all channels: they must agree. So must ranks, of which only some may use their buffers in
/// place.
TEST(LoweredPrograms, ChannelsAreCutAlike) {
  for (const char* name : {"ring", "tree", "direct"}) {
    const Algorithm algorithm(name);
    const auto variants = algorithm.variants();
    for (uint32_t ranks = 1; ranks <= 8; ++ranks) {
      Connected connected(algorithm, split(ranks, 1), 4);
      for (uint32_t i = 0; i < variants.size() * TUTTI_COLLECTIVE_COUNT; ++i) {
        const uint32_t variant = i / TUTTI_COLLECTIVE_COUNT;
        const uint32_t collective = i % TUTTI_COLLECTIVE_COUNT;
        if (!variants[variant].can(collective)) continue;
        const auto first = connected.plans(collective, variant);
        ASSERT_TRUE(first.ok());
        std::vector<std::vector<Plan>> channels = {*first};
        while (channels.size() < connected.channels()) {
          const auto plans = connected.plans(collective, variant, 0, static_cast<uint32_t>(channels.size()));
          ASSERT_TRUE(plans.ok());
          channels.push_back(*plans);
        }
        const tutti_slot_layout layout = layout_of(8, 49152, 2, 1);
        const auto programs = backend::lower_channels(channels, false, false, layout);
        if (!programs.ok()) continue;
        const auto in_place = backend::lower_channels(channels, true, false, layout);
        ASSERT_TRUE(in_place.ok());
        const auto common = [](const program::Program& of) {
          return std::tuple(of.chunks, of.messages, of.stages, of.lag);
        };
        const auto one = common(programs->front().front());
        for (const program::Programs& all : {*programs, *in_place}) {
          for (const auto& channel : all) {
            for (const program::Program& program : channel) {
              EXPECT_EQ(common(program), one) << name << ", " << ranks << " ranks";
            }
          }
        }
      }
    }
  }
}

// --- Hand-made plans
// ------------------------------------------------------------------------------------------------------

/// The connections of three ranks carry three, two and one messages per loop. Each must progress nevertheless.
TEST(LoweredPrograms, ConnectionsNeedNotCarryTheSame) {
  std::vector<Plan> plans;
  for (const uint32_t rank : {0u, 1u, 2u}) {
    plans.push_back(write_plan(TUTTI_BROADCAST, 3, rank, 3, [&](PlanBuilder& plan) {
      for (const uint32_t chunk : {0u, 1u, 2u}) {
        if (rank == 0) plan.step().own(Buffer::kInput, chunk).to_output(chunk).send(1);
        if (rank == 1) plan.step().recv(0).to_output(chunk);
      }
      if (rank == 0) plan.step().own(Buffer::kOutput, 1).send(2);
      if (rank == 1) plan.step().own(Buffer::kOutput, 0).send(2);
      if (rank == 1) plan.step().own(Buffer::kOutput, 2).scatter(2, 2);
      if (rank != 2) return;
      plan.step().recv(1).to_output(0);
      plan.step().recv(0).to_output(1);
      plan.step().gather(1, 2);
    }));
  }
  for (const Layout& layout : kLayouts) {
    for (const uint64_t bytes : {1u, 20u, 40u, 1000u, 5000u}) {
      for (uint32_t epoch = 0; epoch < 8; ++epoch) {
        std::vector<TestCall> calls;
        for (int i = 0; i < 3; ++i) calls.emplace_back(plans, false, bytes, 2, layout.layout);
        EXPECT_EQ(run(calls, layout, 2, epoch), "") << layout.name << ", " << bytes << " bytes";
      }
    }
  }
}

/// Rank 1 gets chunks 2 and 3 from rank 0 only after chunk 1 has come round by rank 2. They come one wave later than
/// chunk 0, which uses the same connection.
TEST(LoweredPrograms, MessagesOfAConnectionMayWaitUnevenly) {
  std::vector<Plan> plans;
  for (const uint32_t rank : {0u, 1u, 2u}) {
    plans.push_back(write_plan(TUTTI_BROADCAST, 3, rank, 4, [&](PlanBuilder& plan) {
      for (const uint32_t chunk : {0u, 1u, 2u, 3u}) {
        const bool goes_round = chunk == 1;
        auto&& step = plan.step();
        if (rank == 0) step.own(Buffer::kInput, chunk).send(2);
        if (rank == 0 && !goes_round) step.send(1);
        if (rank != 0) step.recv(rank == 1 && goes_round ? 2 : 0);
        if (rank == 2 && goes_round) step.send(1);
        step.to_output(chunk);
      }
    }));
  }
  for (const Layout& layout : kLayouts) {
    for (const uint64_t bytes : {1u, 100u, 5000u}) {
      std::vector<TestCall> calls;
      for (int i = 0; i < 3; ++i) calls.emplace_back(plans, false, bytes, 2, layout.layout);
      for (uint32_t epoch = 0; epoch < 8; ++epoch) {
        EXPECT_EQ(run(calls, layout, 2, epoch), "") << layout.name << ", " << bytes << " bytes";
      }
    }
  }
}

/// The reason why receivers signal messages that do not exist: senders would wait for the signal.
TEST(LoweredPrograms, SilenceAboutEmptyMessagesIsADeadlock) {
  const Algorithm ring("ring");
  Connected connected(ring, split(8, 1));
  const auto plans = connected.plans(TUTTI_ALL_REDUCE, 0);
  ASSERT_TRUE(plans.ok());
  const TestCall test(*plans, false, 16, 1, kLayouts[2].layout);
  ProgramMachine::Options options{8, kLayouts[2].layout, true};
  options.leaves_gaps = true;
  EXPECT_THAT(ProgramMachine(options, {&test.call(), 1}).run(), HasSubstr("deadlock"));
}

TEST(Lower, FoldsInOrderOfRanks) {
  const Plan plan = write_plan(TUTTI_REDUCE, 5, 2, 1, [](PlanBuilder& to_build) {
    to_build.step().recv(0).recv(1).recv(3).own(Buffer::kInput, 0).send(1).send(3).send(4).send(0);
    to_build.step().recv(4).recv(3).own(Buffer::kInput, 0).send(1);
  });
  const auto program = program::lower(plan, false);
  ASSERT_TRUE(program.ok());
  EXPECT_EQ(program->steps[0].own_position, 2);
  EXPECT_EQ(program->steps[1].own_position, 0);
  std::vector<int> to;
  std::vector<int> numbers;
  for (uint32_t i = 0; i < program->peer_count; ++i) {
    const bool received = i < 3 || (i >= 7 && i < 9);
    if (!received) to.push_back(program->peers[i].rank);
    numbers.push_back(program->peers[i].message);
  }
  EXPECT_THAT(to, ElementsAre(3, 4, 0, 1, 1)) << "sends begin behind the own rank";
  EXPECT_THAT(numbers, ElementsAre(0, 0, 0, 0, 0, 0, 0, 1, 0, 1));
  EXPECT_EQ(program->messages, 2);
}

TEST(Lower, NamesBlocksOfTheScratchBuffer) {
  const Plan plan = write_plan(TUTTI_ALL_TO_ALL, 2, 0, 2, [](PlanBuilder& to_build) {
    to_build.scratch(7);
    to_build.step().own(Buffer::kInput, 1).to_scratch(5).scatter(1, 2).gather(1, 6).gather_to_scratch();
    to_build.step().own(Buffer::kScratch, 6).to_output(2).gather(1, 3);
  });
  const auto program = program::lower(plan, false);
  ASSERT_TRUE(program.ok()) << program.status().to_string();
  EXPECT_EQ(program->scratch_blocks, 4) << "the last block has one chunk";
  const tutti_cuda_step& first = program->steps[0];
  EXPECT_EQ(first.destination, TUTTI_BUFFER_SCRATCH);
  EXPECT_EQ(first.destination_block, 2);
  EXPECT_EQ(first.destination_chunk, 1);
  EXPECT_NE(first.flags & TUTTI_CUDA_STEP_TO_SCRATCH, 0);
  EXPECT_EQ(program->peers[first.recv_begin].block, 3);
  EXPECT_EQ(program->peers[first.recv_begin].chunk, 0);
  const tutti_cuda_step& second = program->steps[1];
  EXPECT_EQ(second.source, TUTTI_BUFFER_SCRATCH);
  EXPECT_EQ(second.flags & TUTTI_CUDA_STEP_TO_SCRATCH, 0);
  EXPECT_NE(second.flags & TUTTI_CUDA_STEP_AFTER, 0) << "it reads what the first step has received";
  EXPECT_NE(second.flags & TUTTI_CUDA_STEP_MEET, 0);
}

// --- Limits
// ------------------------------------------------------------------------------------------------------

std::string refusal(const Plan& plan) {
  const auto program = program::lower(plan, false);
  EXPECT_EQ(program.status().code(), Code::kUnsupported);
  return std::string(program.status().text());
}

TEST(Lower, RefusesWhatIsTooLarge) {
  EXPECT_EQ(refusal(write_plan(TUTTI_REDUCE, 65, 0, 1, [](PlanBuilder&) {})),
            "needs 65 ranks; this back end runs up to 64");
  EXPECT_EQ(refusal(write_plan(TUTTI_REDUCE, 2, 0, 256, [](PlanBuilder&) {})),
            "needs 256 chunks; this back end runs up to 255");
  const auto steps = [](PlanBuilder& plan) {
    for (int i = 0; i < 256; ++i) plan.step().own(Buffer::kInput, 0).to_output(0);
  };
  EXPECT_EQ(refusal(write_plan(TUTTI_ALL_REDUCE, 2, 0, 1, steps)), "needs 256 steps; this back end runs up to 255");
  // Peers that a plan stores once count as often as they are named.
  const auto peers = [](PlanBuilder& plan) {
    for (int i = 0; i < 64; ++i) plan.step().own(Buffer::kInput, 0).recv(1).recv(2).send(2).send(3);
  };
  EXPECT_EQ(refusal(write_plan(TUTTI_ALL_REDUCE, 4, 0, 1, peers)),
            "needs 256 sends and receives; this back end runs up to 255");
}

TEST(Lower, RefusesToCopyInputBesideAnExchangeOfAReduction) {
  const auto scatter = [](PlanBuilder& plan) {
    plan.step().own(Buffer::kInput, 0).to_output(0).scatter(1, 1);
    plan.step().recv(1).own(Buffer::kOutput, 0).final().to_output(0);
  };
  EXPECT_EQ(
      refusal(write_plan(TUTTI_REDUCE_SCATTER, 2, 0, 1, scatter)),
      "step 0 of a reduction copies its own input beside an exchange, which kernels do not do: make the copy a step "
      "of its own");
  const auto gather = [](PlanBuilder& plan) { plan.step().own(Buffer::kInput, 0).to_output(0).gather(1, 1); };
  EXPECT_TRUE(program::lower(write_plan(TUTTI_ALL_GATHER, 2, 0, 1, gather), false).ok());
}

TEST(Lower, TakesTheLargest) {
  const Plan plan = write_plan(TUTTI_ALL_GATHER, 64, 63, 255, [](PlanBuilder& to_build) {
    for (uint32_t i = 0; i < 127; ++i) to_build.step().recv(0).to_output(63 * 255 + 254).send(1);
    for (uint32_t i = 127; i < 255; ++i) to_build.step().own(Buffer::kInput, 0).to_output(0);
  });
  const auto program = program::lower(plan, false);
  ASSERT_TRUE(program.ok()) << program.status().to_string();
  EXPECT_EQ(program->step_count, 255);
  EXPECT_EQ(program->peer_count, 254);
  EXPECT_EQ(program->messages, 127);
  EXPECT_EQ(program->steps[126].destination_block, 63);
  EXPECT_EQ(program->steps[126].destination_chunk, 254);
  EXPECT_EQ(program->steps[126].send_begin, 253);
}

program::Program program_of(uint32_t chunks, uint32_t messages) {
  program::Program program{};
  program.chunks = static_cast<uint8_t>(chunks);
  program.messages = static_cast<uint8_t>(messages);
  program.stages = 1;
  return program;
}

/// As kernels go through a block: the range that each loop, chunk and slice of each CTA covers.
void check_cut(uint64_t bytes, uint32_t ctas, const program::Program& program, const tutti_slot_layout& layout) {
  const tutti_cuda_cut cut = program::cut(bytes, ctas, program, layout);
  const uint32_t chunks = program.chunks;
  EXPECT_EQ((cut.part | cut.chunk | cut.last_chunk | cut.slice) % 16, 0u);
  EXPECT_LE(cut.slice, layout.slot_bytes);
  EXPECT_LE(cut.slices, layout.chunk_slots);
  EXPECT_LE(cut.chunk, cut.slice * cut.slices);
  EXPECT_LE(cut.last_chunk, cut.chunk);
  EXPECT_EQ(cut.messages, (cut.loops + program.stages - 1) * cut.slices * program.messages);
  uint64_t next = 0;  // byte that is not covered yet
  for (uint32_t cta = 0; cta < ctas; ++cta) {
    const uint64_t part_begin = std::min(cta * cut.part, bytes);
    const uint64_t part_end = std::min(part_begin + cut.part, bytes);
    for (uint32_t loop = 0; loop < cut.loops; ++loop) {
      const uint64_t chunk_bytes = loop + 1 < cut.loops ? cut.chunk : cut.last_chunk;
      for (uint32_t chunk = 0; chunk < chunks; ++chunk) {
        const uint64_t begin = part_begin + uint64_t{loop} * chunks * cut.chunk + chunk * chunk_bytes;
        for (uint64_t at = 0; at < std::min(chunk_bytes, cut.slice * cut.slices); at += cut.slice) {
          const uint64_t end = std::min({begin + at + cut.slice, begin + chunk_bytes, part_end});
          if (begin + at >= end) continue;
          ASSERT_EQ(begin + at, next);
          next = end;
        }
      }
    }
  }
  EXPECT_EQ(next, bytes);
}

TEST(Cut, CoversEveryByteOnce) {
  std::mt19937_64 random(7);
  for (const Layout& layout : kLayouts) {
    for (const uint32_t ctas : {1u, 2u, 3u, 7u, 16u, 64u}) {
      for (const uint32_t chunks : {1u, 2u, 3u, 7u, 16u, 255u}) {
        std::vector<uint64_t> sizes = {1, 15, 16, 17, 127, 128, 129, 1000, 4096, 4097, 65536, 100003, 1000003};
        for (int i = 0; i < 10; ++i) sizes.push_back(1 + random() % (uint64_t{1} << (1 + random() % 22)));
        for (const uint64_t bytes : sizes) {
          SCOPED_TRACE(fmt::format("{}: {} bytes, {} CTAs, {} chunks", layout.name, bytes, ctas, chunks));
          check_cut(bytes, ctas, program_of(chunks, 3), layout.layout);
          if (testing::Test::HasFailure()) return;
        }
      }
    }
  }
}

TEST(Cut, IsEven) {
  const tutti_cuda_cut cut = program::cut(100 * 1024, 1, program_of(2, 2), layout_of(4, 16 * 1024, 2));
  EXPECT_EQ(cut.loops, 2u);
  EXPECT_EQ(cut.chunk, 25u * 1024);
  EXPECT_EQ(cut.last_chunk, 25u * 1024);
  EXPECT_EQ(cut.slices, 2u);
  EXPECT_EQ(cut.slice, 12u * 1024 + 512);
}

TEST(Cut, LoopsThatOverlapAreManyButNotSmall) {
  program::Program program = program_of(2, 2);
  program.stages = 3;
  program.lag = 1;
  const tutti_slot_layout layout = layout_of(16, 64 * 1024, 8, 1);
  const auto loops = [&](uint64_t kib) { return program::cut(kib << 10, 1, program, layout).loops; };
  EXPECT_EQ(loops(95), 1u);
  EXPECT_EQ(loops(192), 2u);
  EXPECT_EQ(loops(512), 5u);
  EXPECT_EQ(loops(4096), 16u);
  EXPECT_EQ(loops(32768), 64u) << "as few as slots allow: 512 KiB each";
  EXPECT_EQ(program::cut(512 << 10, 1, program, layout).chunk % 128, 0u);
  for (const uint64_t bytes : {1, 1000, 98304, 196608, 200001, 524288, 1000003, 5000001}) {
    SCOPED_TRACE(bytes);
    check_cut(bytes, 1, program, layout);
    check_cut(bytes, 7, program, layout);
    check_cut(bytes, 1, program, layout_of(16, 1000, 8, 1));  // no multiple of a line
  }
}

/// The two shots of an all-reduce: a loop waits for data that was sent one wave earlier.
TEST(Align, LetsLoopsOverlapWhereSlotsSuffice) {
  std::vector<Plan> plans;
  for (const uint32_t rank : {0u, 1u}) {
    plans.push_back(write_plan(TUTTI_ALL_REDUCE, 2, rank, 2, [&](PlanBuilder& plan) {
      plan.step().own(Buffer::kInput, rank).scatter(1 - rank, 1 - rank);
      plan.step().recv(1 - rank).own(Buffer::kInput, rank).final().to_output(rank).send(1 - rank);
      plan.step().gather(1 - rank, 1 - rank);
    }));
  }
  const auto programs = backend::lower_channels({plans}, false, false, layout_of(8, 1024, 2, 1));
  ASSERT_TRUE(programs.ok());
  const program::Program& program = programs->front().front();
  EXPECT_EQ(program.stages, 3);
  EXPECT_EQ(program.lag, 1);
  EXPECT_EQ(program.steps[0].stage, 0);
  EXPECT_EQ(program.steps[1].stage, 1);
  EXPECT_EQ(program.steps[2].recv_stage, 2);
  const tutti_cuda_cut cut = program::cut(1024 * 40, 1, program, layout_of(8, 1024, 2, 1));
  EXPECT_EQ(cut.slices, 2u);
  EXPECT_EQ(cut.messages, (cut.loops + 2) * 2 * 2);
  const auto narrow = backend::lower_channels({plans}, false, false, layout_of(2, 1024, 1, 1));
  ASSERT_TRUE(narrow.ok());
  EXPECT_EQ(narrow->front().front().stages, 1) << "two messages a loop, and another loop's: four slots";
  EXPECT_EQ(narrow->front().front().lag, 0);
}

}  // namespace
}  // namespace tutti::test
