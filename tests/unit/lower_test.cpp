// SPDX-License-Identifier: Apache-2.0
// Plans lowered to programs of GPU kernels: each says what its plan says, and both ends of a connection agree.
#include "program/lower.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <functional>
#include <map>
#include <random>
#include <set>
#include <tuple>

#include "backend/cuda/launch_builder.h"
#include "program/verify/verify.h"
#include "tutti/sdk/plan_builder.h"
#include "unit/plan_support.h"
#include "unit/program_calls.h"

namespace tutti::test {
namespace {

using program::exchanges;
using program::Plan;
using sdk::Buffer;
using sdk::PlanBuilder;
using testing::ElementsAre;
using testing::SizeIs;
using testing::UnorderedElementsAreArray;

/// A program with all that its plan says. Each step of the plan has one chunk.
void check_steps(const Plan& plan, const program::Program& program) {
  const auto number = [&](uint32_t block, uint32_t chunk) { return block * program.chunks + chunk; };
  const auto chunks = [&](std::span<const tutti_program_peer> peers) {
    std::vector<std::pair<uint32_t, uint32_t>> of;
    for (const tutti_program_peer& peer : peers) of.emplace_back(peer.rank, number(peer.block, peer.chunk));
    return of;
  };
  const auto planned = [](std::span<const tutti_plan_peer> peers) {
    std::vector<std::pair<uint32_t, uint32_t>> of;
    for (const tutti_plan_peer& peer : peers) of.emplace_back(peer.rank, peer.chunk);
    return of;
  };
  ASSERT_TRUE(plan.ranges.empty());
  ASSERT_EQ(program.steps.size(), plan.steps.size());
  EXPECT_EQ(program.scratch_chunks, plan.scratch_chunks);
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    SCOPED_TRACE(fmt::format("step {}", i));
    const tutti_plan_step& step = plan.steps[i];
    const tutti_program_step& lowered = program.steps[i];
    constexpr uint32_t kKinds = TUTTI_STEP_GATHER | TUTTI_STEP_SCATTER | TUTTI_STEP_FINAL;
    EXPECT_EQ(lowered.flags & kKinds, step.flags & kKinds);
    EXPECT_EQ((lowered.flags & TUTTI_STEP_TO_SCRATCH) != 0, step.gather_buffer == TUTTI_BUFFER_SCRATCH);
    EXPECT_EQ(lowered.source, step.source);
    EXPECT_EQ(lowered.destination, step.destination);
    EXPECT_EQ(number(lowered.source_block, lowered.source_chunk), step.source_chunk);
    EXPECT_EQ(number(lowered.destination_block, lowered.destination_chunk), step.destination_chunk);
    EXPECT_EQ(chunks(program.recv(lowered)), planned(plan.recv(step)));
    EXPECT_THAT(chunks(program.send(lowered)), UnorderedElementsAreArray(planned(plan.send(step))));
    if (exchanges(lowered)) continue;
    const auto from = plan.recv(step);
    EXPECT_EQ(lowered.own_position, std::count_if(from.begin(), from.end(),
                                                  [&](const tutti_plan_peer& peer) { return peer.rank < plan.rank; }));
  }
}

/// What steps do with one chunk of each of their lists, as texts in no order.
using Moves = std::multiset<std::string>;

/// A fold of a chunk. `from` and `to`: ranks, in any order.
std::string fold_of(uint32_t flags, std::pair<uint32_t, uint32_t> source, std::pair<uint32_t, uint32_t> destination,
                    const std::set<uint32_t>& from, const std::set<uint32_t>& to) {
  return fmt::format("fold {} and ranks {} to {} and ranks {}, final {}", source, from, destination, to,
                     (flags & TUTTI_STEP_FINAL) != 0);
}

Moves moves_of(const Plan& plan) {
  const auto ranks = [](std::span<const tutti_plan_peer> peers) {
    std::set<uint32_t> of;
    for (const tutti_plan_peer& peer : peers) of.insert(peer.rank);
    return of;
  };
  Moves moves;
  for (const tutti_plan_step& step : plan.steps) {
    const tutti_plan_range range = plan.range(step);
    for (uint32_t i = 0; i < range.count; ++i) {
      const auto source_at = [&](uint32_t first) {
        return std::pair(uint32_t{step.source}, plan.chunk_at(step.source, first, range.source_stride, i));
      };
      const auto written_at = [&](uint32_t buffer, uint32_t first) {
        if (buffer == TUTTI_BUFFER_NONE) return std::pair(buffer, 0u);
        return std::pair(buffer, plan.chunk_at(buffer, first, range.destination_stride, i));
      };
      const auto source = source_at(step.source_chunk);
      const auto destination = written_at(step.destination, step.destination_chunk);
      if ((step.flags & (TUTTI_STEP_GATHER | TUTTI_STEP_SCATTER)) == 0) {
        moves.insert(fold_of(step.flags, source, destination, ranks(plan.recv(step)), ranks(plan.send(step))));
        continue;
      }
      const bool copies = step.source != TUTTI_BUFFER_NONE && step.destination != TUTTI_BUFFER_NONE;
      if (copies) moves.insert(fmt::format("copy {} to {}", source, destination));
      for (const tutti_plan_peer& to : plan.send(step)) {
        const bool scatters = (step.flags & TUTTI_STEP_SCATTER) != 0;
        moves.insert(fmt::format("send {} to rank {}", scatters ? source_at(to.chunk) : source, to.rank));
      }
      for (const tutti_plan_peer& from : plan.recv(step)) {
        moves.insert(
            fmt::format("receive {} from rank {}", written_at(program::gather_buffer_of(step), from.chunk), from.rank));
      }
    }
  }
  return moves;
}

Moves moves_of(const program::Program& program) {
  const auto place = [&](uint32_t buffer, uint32_t block, uint32_t chunk) {
    return std::pair(buffer, block * program.chunks + chunk);
  };
  const auto ranks = [](std::span<const tutti_program_peer> peers) {
    std::set<uint32_t> of;
    for (const tutti_program_peer& peer : peers) of.insert(peer.rank);
    return of;
  };
  Moves moves;
  for (const tutti_program_step& step : program.steps) {
    const std::span<const tutti_program_peer> from_peers = program.recv(step);
    const std::span<const tutti_program_peer> to_peers = program.send(step);
    const auto source = place(step.source, step.source_block, step.source_chunk);
    const auto destination = place(step.destination, step.destination_block, step.destination_chunk);
    if (!exchanges(step)) {
      moves.insert(fold_of(step.flags, source, destination, ranks(from_peers), ranks(to_peers)));
      continue;
    }
    const bool copies = step.source != TUTTI_BUFFER_NONE && step.destination != TUTTI_BUFFER_NONE;
    if (copies) moves.insert(fmt::format("copy {} to {}", source, destination));
    for (const tutti_program_peer& to : to_peers) {
      const bool scatters = (step.flags & TUTTI_STEP_SCATTER) != 0;
      moves.insert(
          fmt::format("send {} to rank {}", scatters ? place(step.source, to.block, to.chunk) : source, to.rank));
    }
    const bool to_scratch = (step.flags & TUTTI_STEP_TO_SCRATCH) != 0;
    for (const tutti_program_peer& from : from_peers) {
      const uint32_t buffer = to_scratch ? TUTTI_BUFFER_SCRATCH : TUTTI_BUFFER_OUTPUT;
      moves.insert(fmt::format("receive {} from rank {}", place(buffer, from.block, from.chunk), from.rank));
    }
  }
  return moves;
}

/// One message of a loop, as one end of its connection sees it.
struct End {
  uint32_t number;
  uint32_t chunk;  ///< which decides on the length
  int wave;        ///< after that of the loop's first step: in its sequence numbers
  bool operator==(const End&) const = default;
};
void PrintTo(const End& end, std::ostream* out) {
  *out << fmt::format("message {} of chunk {}, wave {}", end.number, end.chunk, end.wave);
}
using Ends = std::map<std::pair<uint32_t, uint32_t>, std::vector<End>>;  // by sender and receiver, in order of steps

void add_ends(uint32_t rank, const program::Program& program, Ends& sent, Ends& received) {
  for (const tutti_program_step& step : program.steps) {
    const bool by_source = step.source != TUTTI_BUFFER_NONE || step.destination == TUTTI_BUFFER_NONE;
    const uint32_t own = by_source ? step.source_chunk : step.destination_chunk;
    for (const tutti_program_peer& to : program.send(step)) {
      const uint32_t chunk = (step.flags & TUTTI_STEP_SCATTER) != 0 ? to.chunk
                             : exchanges(step)                      ? step.source_chunk
                                                                    : own;
      sent[{rank, to.rank}].push_back({to.message, chunk, static_cast<int>(step.stage - to.lag)});
    }
    for (const tutti_program_peer& from : program.recv(step)) {
      const uint32_t chunk = exchanges(step) ? from.chunk : own;
      const uint32_t stage = exchanges(step) ? step.recv_stage : step.stage;
      received[{from.rank, rank}].push_back({from.message, chunk, static_cast<int>(stage - from.lag)});
      EXPECT_LE(from.lag, program.lag);
    }
  }
}

/// Both ends of each connection see the same messages. Their numbers ascend, so a receiver that has read a message has
/// read all before it. No number belongs to the next call.
void check_connections(const std::vector<program::Program>& programs) {
  Ends sent, received;
  for (uint32_t rank = 0; rank < programs.size(); ++rank) add_ends(rank, programs[rank], sent, received);
  EXPECT_EQ(sent, received);
  for (const auto& [connection, messages] : sent) {
    SCOPED_TRACE(fmt::format("rank {} to rank {}", connection.first, connection.second));
    EXPECT_LE(messages.size(), programs[0].messages);
    for (uint32_t i = 0; i < messages.size(); ++i) {
      EXPECT_EQ(messages[i].number, i);
      EXPECT_GE(messages[i].wave, 0);
      EXPECT_LT(messages[i].wave, static_cast<int>(programs[0].stages));
    }
  }
  for (uint32_t rank = 0; rank < programs.size(); ++rank) {
    std::map<uint32_t, std::set<uint32_t>> lags;  // by sender
    for (const tutti_program_step& step : programs[rank].steps) {
      for (const tutti_program_peer& from : programs[rank].recv(step)) lags[from.rank].insert(from.lag);
    }
    for (const auto& [sender, of_sender] : lags) EXPECT_THAT(of_sender, SizeIs(1)) << sender << " to " << rank;
  }
}

/// For slots that let loops overlap, for few of them, and for none.
const std::vector<tutti_slot_layout> kLayouts = {layout_of(8, 4096, 1), layout_of(4, 57344, 2),
                                                 layout_of(8, 49152, 2, 1), layout_of(4, 32, 2, 1),
                                                 layout_of(16, 32, 8, 1)};

/// How many sets of programs were checked.
struct Checked {
  size_t all = 0;
  size_t overlapping = 0;  ///< their loops overlap
  size_t split = 0;        ///< from messages of several chunks
};

/// Messages of several chunks become messages of one chunk, in another order of steps.
void check_split(const std::vector<Plan>& plans, bool in_place, const backend::KernelPlans& fit,
                 const std::vector<program::Program>& programs) {
  const Status proof = program::verify(fit.plans.front(), {fit.slots, in_place});
  EXPECT_TRUE(proof.ok()) << proof.to_string();
  for (size_t rank = 0; rank < plans.size(); ++rank) EXPECT_EQ(moves_of(plans[rank]), moves_of(programs[rank]));
}

void check_programs(const std::vector<Plan>& plans, bool in_place, Checked& checked) {
  for (const tutti_slot_layout& layout : kLayouts) {
    const auto fit = backend::fit_kernels({plans}, layout);
    if (!fit.ok()) continue;
    for (const bool registered : {false, true}) {
      const auto programs = backend::lower_channels(fit->plans, in_place, registered, fit->layout);
      if (!programs.ok()) continue;
      SCOPED_TRACE(fmt::format("in place {}, {} slots, overlaps {}, registered {}", in_place, layout.slot_count,
                               layout.overlaps, registered));
      for (size_t rank = 0; rank < plans.size(); ++rank) {
        SCOPED_TRACE(fmt::format("rank {}", rank));
        check_steps(fit->plans.front()[rank], programs->front()[rank]);
      }
      if (fit->has_changed) check_split(plans, in_place, *fit, programs->front());
      check_connections(programs->front());
      ++checked.all;
      checked.overlapping += programs->front()[0].stages > 1 ? 1 : 0;
      checked.split += fit->has_changed ? 1 : 0;
    }
  }
}

/// The kernels' own code runs these programs in lowered_kernels_test.cpp.
TEST(LoweredPrograms, SayWhatTheirPlansSay) {
  Checked checked;
  for (const Sample& sample : samples({1, 2, 3, 4, 5, 6, 7, 8, 16}, true)) {
    SCOPED_TRACE(sample.name);
    for (const bool in_place : {false, true}) {
      if (!in_place || can_run_in_place(sample.plans[0])) check_programs(sample.plans, in_place, checked);
    }
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(checked.overlapping, 100u);
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

TEST(LoweredPrograms, OfUnevenConnectionsSayWhatTheirPlansSay) {
  Checked checked;
  check_programs(uneven_connections(), false, checked);
  check_programs(uneven_waits(), false, checked);
  EXPECT_EQ(checked.all, 2 * 2 * kLayouts.size());
}

TEST(LoweredPrograms, OfMessagesOfSeveralChunksSayWhatTheirPlansSay) {
  const auto halving = write_plans(TUTTI_ALL_REDUCE, 2, 4, [](PlanBuilder& of, uint32_t rank) {
    const uint32_t peer = 1 - rank;
    of.scratch(8).message_chunks(2);
    of.step().own(Buffer::kInput, 2 * peer).chunks(2).send(peer);
    of.step().recv(peer).own(Buffer::kInput, 2 * rank).to_scratch(4 + 2 * rank).chunks(2);
    of.step().own(Buffer::kScratch, 4 + 2 * rank).final().to_output(2 * rank).chunks(2).send(peer);
    of.step().recv(peer).to_output(2 * peer).chunks(2);
  });
  const auto exchange = write_plans(TUTTI_ALL_TO_ALL, 3, 2, [](PlanBuilder& of, uint32_t rank) {
    of.scratch(6).message_chunks(2);
    auto&& step = of.step().own(Buffer::kInput, 2 * rank).to_scratch(2 * rank).chunks(2);
    for (const uint32_t peer : {(rank + 1) % 3, (rank + 2) % 3}) step.scatter(peer, 2 * peer).gather(peer, 2 * peer);
    step.gather_to_scratch();
    for (const uint32_t block : {0u, 1u, 2u}) of.step().own(Buffer::kScratch, 2 * block).to_output(2 * block).chunks(2);
  });
  Checked checked;
  for (const bool in_place : {false, true}) check_programs(halving, in_place, checked);
  check_programs(exchange, false, checked);
  EXPECT_EQ(checked.split, 3 * 2 * kLayouts.size());
}

TEST(Lower, FoldsInOrderOfRanks) {
  const Plan plan = write_plan(TUTTI_REDUCE, 5, 2, 1, [](PlanBuilder& to_build) {
    to_build.step().recv(0).recv(1).recv(3).own(Buffer::kInput, 0).send(1).send(3).send(4).send(0);
    to_build.step().recv(4).recv(3).own(Buffer::kInput, 0).send(1);
  });
  const auto program = program::lower(plan, false);
  ASSERT_TRUE(program.ok());
  EXPECT_EQ(program->steps[0].own_position, 2u);
  EXPECT_EQ(program->steps[1].own_position, 0u);
  std::vector<uint32_t> to;
  std::vector<uint32_t> numbers;
  for (uint32_t i = 0; i < program->peers.size(); ++i) {
    const bool received = i < 3 || (i >= 7 && i < 9);
    if (!received) to.push_back(program->peers[i].rank);
    numbers.push_back(program->peers[i].message);
  }
  EXPECT_THAT(to, ElementsAre(3, 4, 0, 1, 1)) << "sends begin behind the own rank";
  EXPECT_THAT(numbers, ElementsAre(0, 0, 0, 0, 0, 0, 0, 1, 0, 1));
  EXPECT_EQ(program->messages, 2u);
}

TEST(Lower, NamesBlocksOfTheScratchBuffer) {
  const Plan plan = write_plan(TUTTI_ALL_TO_ALL, 2, 0, 2, [](PlanBuilder& to_build) {
    to_build.scratch(7);
    to_build.step().own(Buffer::kInput, 1).to_scratch(5).scatter(1, 2).gather(1, 6).gather_to_scratch();
    to_build.step().own(Buffer::kScratch, 6).to_output(2).gather(1, 3);
  });
  const auto program = program::lower(plan, false);
  ASSERT_TRUE(program.ok()) << program.status().to_string();
  EXPECT_EQ(program->scratch_chunks, 7u);
  const tutti_program_step& first = program->steps[0];
  EXPECT_EQ(first.destination, TUTTI_BUFFER_SCRATCH);
  EXPECT_EQ(first.destination_block, 2u);
  EXPECT_EQ(first.destination_chunk, 1u);
  EXPECT_NE(first.flags & TUTTI_STEP_TO_SCRATCH, 0);
  EXPECT_EQ(program->peers[first.recv_begin].block, 3u);
  EXPECT_EQ(program->peers[first.recv_begin].chunk, 0u);
  const tutti_program_step& second = program->steps[1];
  EXPECT_EQ(second.source, TUTTI_BUFFER_SCRATCH);
  EXPECT_EQ(second.flags & TUTTI_STEP_TO_SCRATCH, 0);
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
  EXPECT_EQ(refusal(write_plan(TUTTI_REDUCE, TUTTI_CUDA_MAX_RANKS + 1, 0, 1, [](PlanBuilder&) {})),
            fmt::format("needs {} ranks; this back end runs up to {}", TUTTI_CUDA_MAX_RANKS + 1, TUTTI_CUDA_MAX_RANKS));
  EXPECT_EQ(refusal(write_plan(TUTTI_REDUCE, 2, 0, 65536, [](PlanBuilder&) {})),
            "needs 65536 chunks; this back end runs up to 65535");
  const auto steps = [](PlanBuilder& plan) {
    for (int i = 0; i < 65536; ++i) plan.step().own(Buffer::kInput, 0).to_output(0);
  };
  EXPECT_EQ(refusal(write_plan(TUTTI_ALL_REDUCE, 2, 0, 1, steps)), "needs 65536 steps; this back end runs up to 65535");
  // Peers that a plan stores once count as often as they are named.
  const auto peers = [](PlanBuilder& plan) {
    for (int i = 0; i < 16384; ++i) plan.step().own(Buffer::kInput, 0).recv(1).recv(2).send(2).send(3);
  };
  EXPECT_EQ(refusal(write_plan(TUTTI_ALL_REDUCE, 4, 0, 1, peers)),
            "needs 65536 sends and receives; this back end runs up to 65535");
  const auto strands = [](PlanBuilder& plan) {
    for (int i = 0; i < 255; ++i) plan.step().own(Buffer::kInput, 0).to_output(0);
    plan.strand();
    plan.step().own(Buffer::kInput, 1).to_output(1);
  };
  EXPECT_EQ(refusal(write_plan(TUTTI_ALL_REDUCE, 2, 0, 2, strands)),
            "needs 256 steps in strands; this back end runs up to 255");
}

TEST(Lower, RefusesMoreConnectionsThanKernelsHave) {
  const auto sends_to = [](uint32_t ranks, uint32_t peers) {
    return write_plan(TUTTI_BROADCAST, ranks, 0, 1, [&](PlanBuilder& plan) {
      for (uint32_t peer = 1; peer <= peers; ++peer) {
        for (int times = 0; times < 2; ++times) plan.step().own(Buffer::kInput, 0).send(ranks - peer);
      }
    });
  };
  EXPECT_TRUE(program::lower(sends_to(64, 63), false).ok());
  EXPECT_TRUE(program::lower(sends_to(1000, 63), false).ok());
  EXPECT_EQ(refusal(sends_to(1000, 64)), "needs 64 connections; this back end runs up to 63");
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
  constexpr uint32_t kLast = 63;
  const Plan plan = write_plan(TUTTI_ALL_GATHER, 64, kLast, 65535, [](PlanBuilder& to_build) {
    for (uint32_t i = 0; i < 32767; ++i) to_build.step().recv(0).to_output(kLast * 65535 + 65534).send(1);
    for (uint32_t i = 32767; i < 65535; ++i) to_build.step().own(Buffer::kInput, 0).to_output(0);
  });
  const auto program = program::lower(plan, false);
  ASSERT_TRUE(program.ok()) << program.status().to_string();
  EXPECT_EQ(program->steps.size(), 65535u);
  EXPECT_EQ(program->peers.size(), 65534u);
  EXPECT_EQ(program->messages, 32767u);
  EXPECT_EQ(program->steps[32766].destination_block, kLast);
  EXPECT_EQ(program->steps[32766].destination_chunk, 65534u);
  EXPECT_EQ(program->steps[32766].send_begin, 65533u);
}

program::Program program_of(uint32_t chunks, uint32_t messages) {
  program::Program program;
  program.chunks = chunks;
  program.messages = messages;
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
  for (const tutti_slot_layout& layout : kLayouts) {
    for (const uint32_t ctas : {1u, 2u, 3u, 7u, 16u, 64u}) {
      for (const uint32_t chunks : {1u, 2u, 3u, 7u, 16u, 255u}) {
        std::vector<uint64_t> sizes = {1, 15, 16, 17, 127, 128, 129, 1000, 4096, 4097, 65536, 100003, 1000003};
        for (int i = 0; i < 10; ++i) sizes.push_back(1 + random() % (uint64_t{1} << (1 + random() % 22)));
        for (const uint64_t bytes : sizes) {
          SCOPED_TRACE(
              fmt::format("slots of {}: {} bytes, {} CTAs, {} chunks", layout.slot_bytes, bytes, ctas, chunks));
          check_cut(bytes, ctas, program_of(chunks, 3), layout);
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
  EXPECT_EQ(program.stages, 3u);
  EXPECT_EQ(program.lag, 1u);
  EXPECT_EQ(program.steps[0].stage, 0u);
  EXPECT_EQ(program.steps[1].stage, 1u);
  EXPECT_EQ(program.steps[2].recv_stage, 2u);
  const tutti_cuda_cut cut = program::cut(1024 * 40, 1, program, layout_of(8, 1024, 2, 1));
  EXPECT_EQ(cut.slices, 2u);
  EXPECT_EQ(cut.messages, (cut.loops + 2) * 2 * 2);
  const auto narrow = backend::lower_channels({plans}, false, false, layout_of(2, 1024, 1, 1));
  ASSERT_TRUE(narrow.ok());
  EXPECT_EQ(narrow->front().front().stages, 1u) << "two messages a loop, and another loop's: four slots";
  EXPECT_EQ(narrow->front().front().lag, 0u);
}

}  // namespace
}  // namespace tutti::test
