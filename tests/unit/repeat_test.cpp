// SPDX-License-Identifier: Apache-2.0
// Repeats in plans: their rules, their form in files, and their text.
#include "program/repeat.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <tuple>

#include "program/describe.h"
#include "program/file/affine.h"
#include "program/file/file.h"
#include "program/lower.h"
#include "unit/plan_support.h"
#include "unit/required.h"

namespace tutti::test {
namespace {

using program::Plan;
using sdk::Buffer;
using sdk::PlanBuilder;
using testing::HasSubstr;

/// Rank 1 of 4 of an all-gather around a ring.
Plan ring_gather(uint32_t rounds = 2) {
  return write_plan(TUTTI_ALL_GATHER, 4, 1, 1, [&](PlanBuilder& plan) {
    plan.step().own(Buffer::kInput, 0).to_output(1).send(2);
    const uint32_t first = plan.step_count();
    plan.step().recv(0).to_output(0).send(2).grow({.to = -1});
    plan.repeat(first, rounds);
    plan.step().recv(0).to_output(2);
  });
}

std::string refusal(const std::function<void(Plan&)>& change) {
  Plan plan = ring_gather();
  change(plan);
  return std::string(program::validate(plan.view()).text());
}

TEST(Repeat, KeepsTheRules) {
  EXPECT_EQ(refusal([](Plan&) {}), "");
  EXPECT_EQ(refusal([](Plan& plan) { plan.repeats[0].rounds = 0; }), "repeat 0: there is no round");
  EXPECT_EQ(refusal([](Plan& plan) { plan.repeats[0].step_count = 0; }), "repeat 0: the body has no step");
  EXPECT_EQ(refusal([](Plan& plan) { plan.repeats[0].reserved = 1; }), "repeat 0: reserved must be 0");
  EXPECT_EQ(refusal([](Plan& plan) { plan.repeats[0].step_count = 3; }), "repeat 0: ends at step 4 of only 3");
  EXPECT_EQ(refusal([](Plan& plan) {
              plan.repeats.push_back({1, 1, 1, 0});
            }),
            "repeat 1: begins at step 1, before step 2");
  EXPECT_EQ(refusal([](Plan& plan) { plan.repeats[0].rounds = program::kMaxSteps; }),
            "repeat 0: the rounds have more than 1048576 steps");
  EXPECT_EQ(refusal([](Plan& plan) { plan.growths.clear(); }), "growths: null, but repeat_count is not 0");
  EXPECT_EQ(refusal([](Plan& plan) { plan.growths[0].source_chunk = 1; }),
            "step 0: growth of the source chunk: the step is in no repeat");
  EXPECT_EQ(refusal([](Plan& plan) { plan.growths[1].source_chunk = 1; }),
            "step 1: growth of the source chunk: the step has none");
  EXPECT_EQ(refusal([](Plan& plan) { plan.growths[1].recv_chunk = 1; }),
            "step 1: growth of the recv chunks: the step has none");
  EXPECT_EQ(refusal([](Plan& plan) { plan.growths[1].destination_chunk = 4; }),
            "step 1: growth of the destination chunk: 4 is not below 4");
  EXPECT_EQ(refusal([](Plan& plan) { plan.growths[1].send_rank = 3; }),
            "step 1: send: in round 1, rank 1 is this plan's own rank");
  EXPECT_EQ(refusal([](Plan& plan) { plan.growths[1].recv_rank = 3; }), "") << "0 and 3";
  EXPECT_EQ(refusal([](Plan& plan) { plan.growths[1].recv_rank = 1; }),
            "step 1: recv: in round 1, rank 1 is this plan's own rank");
}

/// Every round that the closed form finds is the first that a search finds.
TEST(Repeat, FindsTheRoundOfTheOwnRank) {
  for (uint32_t ranks = 2; ranks <= 12; ++ranks) {
    for (uint32_t peer = 1; peer < ranks; ++peer) {
      for (uint32_t growth = 1; growth < ranks; ++growth) {
        Plan plan = write_plan(TUTTI_SEND_RECV, ranks, 0, 1,
                               [&](PlanBuilder& builder) { builder.step().own(Buffer::kInput, 0).send(peer); });
        plan.repeats = {{0, 1, 5, 0}};
        plan.growths.resize(1);
        plan.growths[0].send_rank = growth;
        uint32_t round = 0;
        while (round < 5 && (peer + round * growth) % ranks != 0) ++round;
        const std::string expected =
            round == 5 ? "" : fmt::format("step 0: send: in round {}, rank 0 is this plan's own rank", round);
        EXPECT_EQ(program::validate(plan.view()).text(), expected) << ranks << ' ' << peer << ' ' << growth;
      }
    }
  }
}

TEST(Repeat, ChunksKeepTheirSizesInEachRound) {
  Plan plan = write_plan(TUTTI_ALL_REDUCE, 2, 0, 4, [](PlanBuilder& builder) {
    builder.scratch(6);
    builder.step().own(Buffer::kInput, 0).to_scratch(0).grow({.own = 1, .to = 1});
    builder.repeat(0, 4);
  });
  plan.repeats[0].rounds = 7;
  EXPECT_EQ(program::validate(plan.view()).text(),
            "step 0: in round 6, source chunk 2 and destination chunk 0 differ in size (in c % 4)");
  plan.repeats[0].rounds = 6;
  EXPECT_TRUE(program::validate(plan.view()).ok());
}

TEST(Repeat, PeersOfAFoldAscendInEachRound) {
  const Plan rolled = write_plan(TUTTI_REDUCE_SCATTER, 8, 0, 1, [](PlanBuilder& plan) {
    plan.scratch(1);
    plan.step().recv(1).recv(6).own(Buffer::kInput, 0).to_scratch(0).grow({.recv = 1});
    plan.repeat(0, 2);
    plan.step().recv(1).recv(7).own(Buffer::kInput, 0).to_scratch(0).grow({.recv = 2});
    plan.repeat(1, 1);
  });
  const Plan plan = required(program::unroll(rolled));
  ASSERT_EQ(plan.steps.size(), 3u);
  EXPECT_EQ(plan.recv(plan.steps[1])[0].rank, 2u);
  EXPECT_EQ(plan.recv(plan.steps[1])[1].rank, 7u);
  EXPECT_TRUE(plan.repeats.empty());
  EXPECT_TRUE(plan.growths.empty());
  EXPECT_TRUE(program::validate(plan.view()).ok());

  const Plan wraps = write_plan(TUTTI_REDUCE_SCATTER, 8, 4, 1, [](PlanBuilder& builder) {
    builder.step().recv(1).recv(7).own(Buffer::kInput, 0).to_output(0).grow({.recv = 1});
    builder.repeat(0, 2);
  });
  const Plan second = required(program::unroll(wraps));
  EXPECT_EQ(second.recv(second.steps[1])[0].rank, 0u);
  EXPECT_EQ(second.recv(second.steps[1])[1].rank, 2u);
}

TEST(Repeat, FirstStepsOfThePlanWithoutRepeats) {
  const Plan rolled = ring_gather(2);
  const Plan whole = required(program::unroll(rolled));
  ASSERT_EQ(whole.steps.size(), 4u);
  EXPECT_EQ(required(program::unroll_first(rolled, 4)), whole);
  EXPECT_EQ(required(program::unroll_first(rolled, 9)), whole);
  const Plan first = required(program::unroll_first(rolled, 2));
  EXPECT_TRUE(first.repeats.empty());
  EXPECT_THAT(program::to_text(first), testing::EndsWith("    0  copySend            input[0] -> output[1], rank 2\n"
                                                         "    1  recvCopySend        rank 0 -> output[0], rank 2\n"));
}

TEST(Repeat, KernelsRunThePlanWithoutRepeats) {
  const Plan rolled = ring_gather();
  EXPECT_EQ(program::check_kernel_limits(rolled).text(), "needs repeats; this back end runs none");
  EXPECT_TRUE(program::check_kernel_limits(required(program::unroll(rolled))).ok());
}

TEST(Repeat, TextAndSize) {
  const Plan plan = ring_gather();
  EXPECT_EQ(program::size_bytes(plan), sizeof(tutti_plan) + 3 * sizeof(tutti_plan_step) + 2 * sizeof(tutti_plan_peer) +
                                           sizeof(tutti_plan_repeat) + 3 * sizeof(tutti_plan_growth));
  EXPECT_EQ(program::to_text(plan),
            fmt::format("all_gather, rank 1 of 4, channel 0, 1 chunk(s) per block, 3 steps in {} bytes, 4 steps with "
                        "the repeats written out\n"
                        "    0  copySend            input[0] -> output[1], rank 2\n"
                        "       2 time(s), k from 0 to 1:\n"
                        "    1    recvCopySend        rank 0 -> output[0 - k], rank 2\n"
                        "    3  recv                rank 0 -> output[2]\n",
                        program::size_bytes(plan)));
}

TEST(Affine, ReadsAndWrites) {
  const std::vector<std::tuple<const char*, uint32_t, int64_t>> right = {
      {"3", 3, 0},         {"3 + k", 3, 1}, {"3+k", 3, 1},         {"0 - k", 0, -1},
      {"12 - 4k", 12, -4}, {"7 +2k", 7, 2}, {"4294967295", ~0u, 0}};
  for (const auto& [text, first, growth] : right) {
    const auto number = program::parse_affine(text);
    ASSERT_TRUE(number) << text;
    EXPECT_EQ(number->first, first) << text;
    EXPECT_EQ(number->growth, growth) << text;
  }
  for (const char* text :
       {"", "k", "3k", "3 +", "3 + 2", "3 + k ", "3 * k", "-3", "3 + -k", "4294967296", "3 + 2kk", " 3"}) {
    EXPECT_FALSE(program::parse_affine(text)) << text;
  }
  EXPECT_EQ(program::affine_text(3, 0, 8), "3");
  EXPECT_EQ(program::affine_text(3, 1, 8), "3 + k");
  EXPECT_EQ(program::affine_text(3, 4, 8), "3 + 4k");
  EXPECT_EQ(program::affine_text(3, 7, 8), "3 - k");
  EXPECT_EQ(program::affine_text(3, 5, 8), "3 - 3k");
}

// --- Files
// ----------------------------------------------------------------------------------------------------

const std::string kHead = "version: 2\ncollective: all_reduce\nalgorithm: ring\nranks: 4\nchunks: 4\nplans:\n";
const std::string kSteps =
    "    steps:\n"
    "      - {own: input 0, send: [1]}\n"
    "      - repeat: 2\n"
    "        steps:\n"
    "          - {recv: [3], own: input 3 - k, send: [1]}\n"
    "      - {recv: [3], own: input 1, final: true, to: output 1, send: [1]}\n"
    "      - repeat: 2\n"
    "        steps:\n"
    "          - {recv: [3], to: output 0 - k, send: [1]}\n"
    "      - {recv: [3], to: output 2}\n";
const std::string kRing = kHead + "  - rank: all\n    chunk_shift: 1\n" + kSteps;

TEST(RepeatFile, OnePlanStandsForAllRanks) {
  const auto file = required(program::parse_file(kRing, "p"));
  ASSERT_EQ(file.plans.size(), 4u);
  const auto ring = plans_of("ring  all_reduce", 4);
  std::vector<Plan> written_out;
  for (const Plan& plan : file.plans) written_out.push_back(required(program::unroll(plan)));
  EXPECT_EQ(fault(kRing), "");
  EXPECT_EQ(written_out[0].steps.size(), 7u);
  EXPECT_EQ(written_out[0].steps.size(), ring[0].steps.size());
  EXPECT_EQ(required(program::parse_file(program::to_yaml(file), "y")), file);
  EXPECT_EQ(required(program::parse_file(program::to_json(file), "j")), file);
  EXPECT_THAT(program::to_yaml(file), HasSubstr("  - rank: all\n    chunk_shift: 1\n"));
  EXPECT_THAT(program::to_yaml(file), HasSubstr("{recv: [3], own: input 3 - k, send: [1]}"));
}

TEST(RepeatFile, RefusesWithThePlace) {
  const auto with = [](const std::string& from, const std::string& to) { return fault(replaced(kRing, from, to)); };
  EXPECT_EQ(with("version: 2", "version: 1"), "p:7:11: 'rank' needs 'version: 2'");
  EXPECT_EQ(with("repeat: 2", "repeat: 0"), "p:11:17: 'repeat' is 0; allowed: 1 to 1048576");
  EXPECT_EQ(with("input 0, send", "input 0 + k, send"), "p:10:15: 'own' grows outside a repeat");
  EXPECT_EQ(with("3 - k", "3 - 4k"), "p:13:13: 'own' grows by -4 in each round; allowed is less than 4");
  EXPECT_EQ(with("input 3 - k", "input 3 - j"),
            "p:13:30: 'own' must be 'input', 'output' or 'scratch' and a chunk, for example 'input 3'");
  EXPECT_EQ(with("send: [1]}\n      - {recv", "send: [3 + k]}\n      - {recv"),
            "p:13:13: step 1: send: in round 1, rank 0 is this plan's own rank");
}

TEST(RepeatFile, RefusesWrongForms) {
  const auto with = [](const std::string& from, const std::string& to) { return fault(replaced(kRing, from, to)); };
  EXPECT_EQ(with("chunk_shift: 1", "chunk_shift: 4"),
            "p:7:5: chunks of a block move by less than the number of chunks");
  EXPECT_THAT(with("chunks: 4", "chunks: 3"), HasSubstr("4 ranks times 1 chunks are no multiple of the 3 chunks"));
  EXPECT_EQ(fault(replaced(replaced(kRing, "all_reduce", "broadcast"), "    chunk_shift: 1\n", "")),
            "p:7:11: 'rank: all' needs a collective without a root");
  EXPECT_EQ(with("ranks: 4", "ranks: 70000"), "p:7:11: 'rank: all' stands for up to 65536 ranks");
  EXPECT_EQ(with("      - {recv: [3], to: output 2}\n", "      - repeat: 2\n        steps: []\n"),
            "p:19:16: 'steps' of a repeat is empty");
  EXPECT_EQ(
      with("          - {recv: [3], to", "          - repeat: 2\n            steps: []\n          - {recv: [3], to"),
      "p:17:21: a repeat stands in a repeat");
}

TEST(RepeatFile, RefusesMoreStepsThanAPlanMayHave) {
  const std::string step = "          - {recv: [3], own: input 3 - k, send: [1]}\n";
  const std::string many = replaced(replaced(kRing, step, step + step), "repeat: 2", "repeat: 600000");
  EXPECT_THAT(fault(many), HasSubstr("p:11:9: 600000 rounds of 2 steps are more than 1048576 steps"));
}

TEST(RepeatFile, NamesTheLineOfAStepInARepeat) {
  EXPECT_EQ(fault(replaced(kRing, "input 3 - k", "input 2 - k")),
            "p:13: rank 1 step 1: takes what rank 0 sent in its step 0 as chunk 3 of a block, but it was chunk 0");
}

TEST(RepeatFile, ListsFaultsInBothPlaces) {
  const auto right = required(program::parse_file(kRing, "p"));
  EXPECT_TRUE(required(program::all_faults(right, "p", 2)).empty());
  const auto file = required(program::parse_file(replaced(kRing, "final: true, to: output 1", "to: output 1"), "p"));
  const auto faults = required(program::all_faults(file, "p", 2));
  ASSERT_EQ(faults.size(), 4u) << "4 chunks that are not final";
  EXPECT_EQ(faults.front(),
            "p:17: channel 0, out of place and in place: rank 0 output chunk 0: was never made final: mark its last "
            "step as final; the same on rank(s) 1, 2, 3");
}

}  // namespace
}  // namespace tutti::test
