// SPDX-License-Identifier: Apache-2.0
// Strands in plans: their rules, their form in files, their text, and their steps with repeats written out.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "program/cache.h"
#include "program/describe.h"
#include "program/file/file.h"
#include "program/lower.h"
#include "program/repeat.h"
#include "unit/plan_support.h"
#include "unit/required.h"

namespace tutti::test {
namespace {

using program::Plan;
using sdk::Buffer;
using sdk::PlanBuilder;
using testing::ElementsAre;
using testing::FieldsAre;
using testing::HasSubstr;

/// Rank 1 of 3 of an all-reduce along a chain: one strand reduces, the other sends the results back.
Plan chain() {
  return write_plan(TUTTI_ALL_REDUCE, 3, 1, 2, [](PlanBuilder& plan) {
    plan.strand();
    plan.step().recv(2).own(Buffer::kInput, 0).send(0).grow({.own = 1});
    plan.repeat(0, 2);
    plan.strand();
    plan.step().recv(0).to_output(0).send(2).grow({.to = 1}).after(0).after(0);
    plan.repeat(1, 2);
  });
}

std::string refusal(const std::function<void(Plan&)>& change, std::optional<uint32_t>* at = nullptr) {
  Plan plan = chain();
  change(plan);
  if (at != nullptr) static_cast<void>(program::validate_strands(plan.view(), at));
  return std::string(program::validate(plan.view()).text());
}

TEST(Strands, BuilderDividesTheSteps) {
  const Plan plan = chain();
  EXPECT_THAT(plan.strands, ElementsAre(FieldsAre(0, 1), FieldsAre(1, 1)));
  EXPECT_THAT(plan.waits, ElementsAre(FieldsAre(1, 0)));
  EXPECT_EQ(plan.strand_of(0), 0u);
  EXPECT_EQ(plan.strand_of(1), 1u);
  EXPECT_TRUE(plan.waits_of(0).empty());
  EXPECT_EQ(plan.waits_of(1).size(), 1u);
}

TEST(Strands, OneStrandIsNone) {
  const auto write = [](bool strands) {
    return write_plan(TUTTI_ALL_REDUCE, 1, 0, 1, [&](PlanBuilder& plan) {
      if (strands) plan.strand().strand();
      plan.step().own(Buffer::kInput, 0).final().to_output(0);
      if (strands) plan.strand();
    });
  };
  EXPECT_EQ(write(true), write(false));
  Plan plan = write(false);
  plan.strands = {{0, 1}};
  EXPECT_EQ(required(program::copy(plan.view())), write(false));
}

TEST(Strands, KeepTheRules) {
  EXPECT_EQ(refusal([](Plan&) {}), "");
  EXPECT_EQ(refusal([](Plan& plan) { plan.strands[1].first_step = 0; }), "strand 1: begins at step 0, not at step 1");
  EXPECT_EQ(refusal([](Plan& plan) { plan.strands[1].step_count = 0; }), "strand 1: has no step");
  EXPECT_EQ(refusal([](Plan& plan) { plan.strands[1].step_count = 2; }), "strand 1: ends at step 3 of only 2");
  EXPECT_EQ(refusal([](Plan& plan) { plan.strands.pop_back(); }), "strands: have 1 steps of 2");
  EXPECT_EQ(refusal([](Plan& plan) { plan.strands.resize(65, {0, 1}); }), "strand_count: 65 is not below 65");
  EXPECT_EQ(refusal([](Plan& plan) {
              plan.repeats = {{0, 2, 2, 0}};
            }),
            "repeat 0: the body has steps of strands 0 and 1");
  tutti_plan view = chain().view();
  view.strands = nullptr;
  EXPECT_EQ(program::validate_strands(view).text(), "strands: null, but strand_count is not 0");
  view = chain().view();
  view.waits = nullptr;
  EXPECT_EQ(program::validate_strands(view).text(), "waits: null, but wait_count is not 0");
}

TEST(Strands, WaitsKeepTheRules) {
  std::optional<uint32_t> at;
  EXPECT_EQ(refusal([](Plan& plan) { plan.waits[0].step = 2; }, &at), "wait 0: step 2 is not below 2");
  EXPECT_EQ(at, std::nullopt);
  EXPECT_EQ(refusal([](Plan& plan) { plan.waits[0].after = 2; }, &at), "step 1: after: step 2 is not below 2");
  EXPECT_EQ(at, 1u);
  EXPECT_EQ(refusal([](Plan& plan) { plan.waits[0].after = 1; }), "step 1: after: step 1 is of the same strand");
  EXPECT_EQ(refusal([](Plan& plan) { plan.strands.clear(); }), "step 1: after: step 0 is of the same strand");
  EXPECT_EQ(refusal([](Plan& plan) { plan.waits.push_back(plan.waits[0]); }),
            "step 1: after: step 0 follows step 0 of step 1; waits must ascend");
  EXPECT_EQ(refusal([](Plan& plan) { plan.repeats[1].rounds = 3; }),
            "step 1: after: step 0 has 2 rounds, and the step that waits has 3");
  EXPECT_EQ(refusal([](Plan& plan) {
              plan.repeats = {{0, 1, program::kMaxSteps / 2, 0}, {1, 1, program::kMaxSteps / 2, 0}};
              plan.strands = {{0, 1}, {1, 1}};
            }),
            "")
      << "as many waits as there may be";
}

/// Rank 0 of `ranks` with two strands, whose steps are written by `first` and `second`.
Status two_strands(uint32_t ranks, const std::function<void(PlanBuilder&)>& first,
                   const std::function<void(PlanBuilder&)>& second) {
  const tutti_plan_request request = {sizeof(request), TUTTI_SEND_RECV, 0, 0, 0, 0};
  PlanBuilder builder(request, ranks, 1);
  first(builder);
  builder.strand();
  second(builder);
  return program::collect([&](const tutti_plan_sink* sink) { return builder.emit(*sink); }).status();
}

TEST(Strands, ShareNoConnection) {
  const auto send = [](uint32_t rank) {
    return [rank](PlanBuilder& plan) { plan.step().own(Buffer::kInput, 0).send(rank); };
  };
  const auto receive = [](uint32_t rank) { return [rank](PlanBuilder& plan) { plan.step().recv(rank); }; };
  EXPECT_TRUE(two_strands(3, send(1), send(2)).ok());
  EXPECT_TRUE(two_strands(3, send(1), receive(1)).ok());
  EXPECT_EQ(two_strands(3, send(1), send(1)).text(),
            "step 1: send: strand 1 sends to rank 1, and strand 0 does, too (step 0); one strand sends all messages to "
            "a rank");
  EXPECT_EQ(two_strands(3, receive(2), receive(2)).text(),
            "step 1: recv: strand 1 receives from rank 2, and strand 0 does, too (step 0); one strand receives all "
            "messages from a rank");
}

/// A peer that grows meets the peer of another strand in some round, or in none.
TEST(Strands, ShareNoConnectionInAnyRound) {
  for (uint32_t ranks = 3; ranks <= 9; ++ranks) {
    for (uint32_t growth = 1; growth < ranks; ++growth) {
      for (uint32_t rounds = 1; rounds <= 4; ++rounds) {
        std::vector<uint32_t> visited;
        for (uint32_t round = 0; round < rounds; ++round) visited.push_back((1 + round * growth) % ranks);
        if (std::count(visited.begin(), visited.end(), 0u) > 0) continue;  // the own rank
        const Status status = two_strands(
            ranks,
            [&](PlanBuilder& plan) {
              plan.step().own(Buffer::kInput, 0).send(1).grow({.send = growth});
              plan.repeat(0, rounds);
            },
            [&](PlanBuilder& plan) { plan.step().own(Buffer::kInput, 0).send(2); });
        EXPECT_EQ(status.ok(), std::count(visited.begin(), visited.end(), 2u) == 0)
            << ranks << ' ' << growth << ' ' << rounds << ' ' << status.to_string();
      }
    }
  }
}

TEST(Strands, WaitsOfRoundsAreWrittenOut) {
  const Plan rolled = write_plan(TUTTI_ALL_REDUCE, 3, 1, 2, [](PlanBuilder& plan) {
    plan.step().own(Buffer::kInput, 0);
    plan.step().recv(2).own(Buffer::kInput, 0).send(0).after(4);
    plan.step().own(Buffer::kInput, 0);
    plan.repeat(1, 3);
    plan.step().own(Buffer::kInput, 0);
    plan.strand();
    plan.step().own(Buffer::kInput, 1);
    plan.step().recv(0).to_output(0).send(2).after(2);
    plan.repeat(5, 3);
    plan.step().own(Buffer::kInput, 1).after(1);
  });
  const Plan plan = required(program::unroll(rolled));
  EXPECT_TRUE(program::validate(plan.view()).ok());
  EXPECT_THAT(plan.strands, ElementsAre(FieldsAre(0, 8), FieldsAre(8, 5)));
  // Round 0 of step 1 waits for step 4, which is 8; round k of step 5 for round k of step 2; step 6 for the last round.
  EXPECT_THAT(plan.waits,
              ElementsAre(FieldsAre(1, 8), FieldsAre(9, 2), FieldsAre(10, 4), FieldsAre(11, 6), FieldsAre(12, 5)));
  const std::string text = program::to_text(rolled);
  EXPECT_THAT(text, HasSubstr("       strand 0:\n    0  nothing "));
  EXPECT_THAT(text, HasSubstr("    1    recvReduceSend      input[0] + rank 2 -> rank 0   after 8\n"));
  EXPECT_THAT(text, HasSubstr("       strand 1:\n    8  nothing "));
  EXPECT_THAT(text, HasSubstr("    9    recvCopySend        rank 0 -> output[0], rank 2   after 2\n"));
  EXPECT_THAT(text, HasSubstr("   12  nothing                after 5\n"));
}

TEST(Strands, AreAPartOfThePlan) {
  const Plan plan = chain();
  Plan other = plan;
  EXPECT_EQ(plan, other);
  other.waits.clear();
  EXPECT_FALSE(plan == other);
  const auto print = [](const Plan& of) { return program::fingerprint(std::span(&of, 1), {}); };
  EXPECT_FALSE(print(plan) == print(other));
  const Plan without_waits = other;
  other.strands.clear();
  EXPECT_FALSE(without_waits == other);
  EXPECT_FALSE(print(without_waits) == print(other));
  EXPECT_EQ(program::size_bytes(plan) - program::size_bytes(other),
            2 * sizeof(tutti_plan_strand) + sizeof(tutti_plan_wait));
}

TEST(Strands, AreLimitedInKernels) {
  EXPECT_EQ(program::check_kernel_limits(required(program::unroll(chain()))).text(), "");
  const Plan plan = write_plan(TUTTI_ALL_REDUCE, 2, 0, 1, [](sdk::PlanBuilder& of) {
    for (int i = 0; i < 9; ++i) of.strand().step().own(sdk::Buffer::kInput, 0);
  });
  EXPECT_EQ(program::check_kernel_limits(plan).text(), "needs 9 strands; this back end runs up to 8");
}

// --- Files

const std::string kHead = "version: 2\ncollective: all_gather\nalgorithm: pair\nranks: 2\nchunks: 1\nplans:\n";
const std::string kPlans =
    "  - rank: 0\n"
    "    strands:\n"
    "      - steps:\n"
    "          - {own: input 0, to: output 0}\n"
    "          - {recv: [1], to: output 1, after: [2]}\n"
    "      - steps:\n"
    "          - {own: output 0, send: [1], after: [0]}\n"
    "  - rank: 1\n"
    "    steps:\n"
    "      - {own: input 0, to: output 1, send: [0]}\n"
    "      - {recv: [0], to: output 0}\n";

TEST(StrandsFile, RoundTrip) {
  EXPECT_EQ(fault(kHead + kPlans), "");
  const auto file = required(program::parse_file(kHead + kPlans, "p"));
  EXPECT_THAT(file.plans[0].strands, ElementsAre(FieldsAre(0, 2), FieldsAre(2, 1)));
  EXPECT_THAT(file.plans[0].waits, ElementsAre(FieldsAre(1, 2), FieldsAre(2, 0)));
  EXPECT_TRUE(file.plans[1].strands.empty());
  EXPECT_EQ(required(program::parse_file(program::to_yaml(file), "y")), file);
  EXPECT_EQ(required(program::parse_file(program::to_json(file), "j")), file);
  EXPECT_THAT(program::to_yaml(file), HasSubstr("    strands:\n      - steps:\n"));
  EXPECT_THAT(program::to_yaml(file), HasSubstr("          - {recv: [1], to: output 1, after: [2]}\n"));
}

TEST(StrandsFile, RoundTripWithRepeats) {
  program::PlanFile file{"chain", "", {}};
  for (uint32_t rank = 0; rank < 2; ++rank) {
    file.plans.push_back(write_plan(TUTTI_ALL_REDUCE, 2, rank, 2, [&](PlanBuilder& plan) {
      plan.step().own(Buffer::kInput, 0).grow({.own = 1});
      plan.repeat(0, 2);
      plan.step().own(Buffer::kInput, 0).send(1 - rank);
      plan.strand();
      plan.step().own(Buffer::kInput, 0).after(1);
      plan.step().recv(1 - rank).grow({.recv = 0}).after(0);
      plan.step().own(Buffer::kInput, 0);
      plan.repeat(3, 2);
      plan.step().own(Buffer::kInput, 1);
      plan.strand();
      plan.step().own(Buffer::kInput, 1);
      plan.repeat(6, 7);
    }));
  }
  EXPECT_EQ(required(program::parse_file(program::to_yaml(file), "y")), file);
  EXPECT_EQ(required(program::parse_file(program::to_json(file), "j")), file);
}

TEST(StrandsFile, RefusesWithThePlace) {
  const auto with = [](const std::string& from, const std::string& to) {
    return fault(replaced(kHead + kPlans, from, to));
  };
  EXPECT_EQ(with("version: 2", "version: 1"), "p:9:7: 'strands' needs 'version: 2'");
  EXPECT_EQ(with("after: [2]", "after: [3]"), "p:11:13: step 1: after: step 3 is not below 3");
  EXPECT_EQ(with("after: [2]", "after: [0]"), "p:11:13: step 1: after: step 0 is of the same strand");
  EXPECT_EQ(with("after: [2]", "after: [2, 2]"), "p:11:46: 'after' names step 2 twice");
  EXPECT_EQ(with("after: [2]", "after: 2"), "p:11:46: 'after' must be a list");
  EXPECT_EQ(with("after: [2]", "after: [x]"), "p:11:47: 'after' must be a whole number from 0 to 1048576");
  EXPECT_EQ(
      with("own: output 0, send", "recv: [1], send"),
      "p:13:13: step 2: recv: strand 1 receives from rank 1, and strand 0 does, too (step 1); one strand receives "
      "all messages from a rank");
  EXPECT_EQ(with("to: output 0}\n          -", "to: output 4}\n          -"),
            "p:10:13: step 0: destination chunk: 4 is not below 2");
  EXPECT_EQ(with("recv: [0], to: output 0}", "recv: [0], to: output 0, after: [0]}"),
            "p:17:42: 'after' stands in a plan without 'strands'");
}

TEST(StrandsFile, RefusesWrongForms) {
  const auto with = [](const std::string& from, const std::string& to) {
    return fault(replaced(kHead + kPlans, from, to));
  };
  EXPECT_EQ(with("    steps:\n      - {own", "    other:\n      - {own"),
            "p:15:5: unknown key 'other'; allowed in a plan: rank, scratch, steps, strands");
  EXPECT_EQ(
      with("    steps:\n      - {own: input 0, to: output 1, send: [0]}\n      - {recv: [0], to: output 0}\n", ""),
      "p:14:5: a plan lacks the key 'steps'");
  EXPECT_EQ(with("    strands:\n", "    steps: []\n    strands:\n"), "p:10:7: 'strands' stands beside 'steps'");
  EXPECT_EQ(
      with("      - steps:\n          - {own: output", "      - steps: []\n      - steps:\n          - {own: output"),
      "p:12:16: 'steps' of a strand is empty");
  const std::string cut = kPlans.substr(kPlans.find("  - rank: 1"));
  EXPECT_EQ(fault(kHead + "  - rank: 0\n    strands: []\n" + cut),
            "p:8:14: 'strands' holds 0 strands; allowed: 1 to 64");
  EXPECT_EQ(fault(kHead + "  - rank: 0\n    strands: 3\n" + cut), "p:8:14: 'strands' must be a list");
  EXPECT_THAT(fault(kHead + "  - rank: 0\n    strands: [4]\n" + cut), HasSubstr("p:8:15: a strand must be a map"));
}

TEST(StrandsFile, NamesTheLineOfACounterExample) {
  EXPECT_EQ(fault(replaced(kHead + kPlans, "send: [1], after: [0]", "send: [1]")),
            "p:13: rank 0 step 2: reads output chunk 0, which step 0 of strand 0 writes; no wait puts the two steps in "
            "order");
}

}  // namespace
}  // namespace tutti::test
