// SPDX-License-Identifier: Apache-2.0
// Proofs over any number of ranks: by rotation, exactly, or not at all, with a reason.
#include "program/verify/prove.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <random>

#include "program/repeat.h"
#include "program/verify/rotation.h"
#include "program/verify/rotor.h"
#include "program/verify/sets.h"
#include "unit/plan_support.h"
#include "unit/required.h"

namespace tutti::test {
namespace {

using program::Plan;
using program::ProofLimits;
using program::prove;
using program::Verdict;
using sdk::Buffer;
using sdk::PlanBuilder;
using testing::HasSubstr;

/// No exact proof is within these limits.
constexpr ProofLimits kRotationOnly = {0, 0, uint64_t{1} << 26};

using Write = std::function<void(PlanBuilder&, uint32_t rank)>;

Plan written(uint32_t collective, uint32_t ranks, uint32_t rank, uint32_t chunks, const Write& write) {
  return write_plan(collective, ranks, rank, chunks, [&](PlanBuilder& plan) { write(plan, rank); });
}

Verdict proved(uint32_t collective, uint32_t ranks, uint32_t chunks, const Write& write,
               const program::VerifyOptions& options = {}, const ProofLimits& limits = {}) {
  return prove(
      ranks, [&](uint32_t rank) -> Result<Plan> { return written(collective, ranks, rank, chunks, write); }, options,
      limits);
}

/// A ring all-reduce in five steps. `change` changes the plan of a rank.
void ring(PlanBuilder& plan, uint32_t ranks, uint32_t rank) {
  const uint32_t next = (rank + 1) % ranks;
  const uint32_t previous = (rank + ranks - 1) % ranks;
  const auto before = [&](uint32_t distance) { return (rank + ranks - distance) % ranks; };
  plan.step().own(Buffer::kInput, rank).send(next);
  uint32_t first = plan.step_count();
  plan.step().recv(previous).own(Buffer::kInput, before(1)).send(next).grow({.own = -1});
  plan.repeat(first, ranks - 2);
  const uint32_t finished = before(ranks - 1);
  plan.step().recv(previous).own(Buffer::kInput, finished).final().to_output(finished).send(next);
  first = plan.step_count();
  plan.step().recv(previous).to_output(rank).send(next).grow({.to = -1});
  plan.repeat(first, ranks - 2);
  plan.step().recv(previous).to_output(before(ranks - 2));
}

TEST(Prove, RollsThePlansOfTheRingPlugin) {
  const Algorithm algorithm("ring");
  for (const uint32_t ranks : {3u, 16u, 17u, 33u}) {
    Connected connected(algorithm, split(ranks, 1));
    const auto plans = required(connected.plans(TUTTI_ALL_REDUCE, 0));
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      const Plan rolled =
          written(TUTTI_ALL_REDUCE, ranks, rank, ranks, [&](PlanBuilder& plan, uint32_t r) { ring(plan, ranks, r); });
      EXPECT_EQ(rolled.steps.size(), 5u);
      EXPECT_EQ(program::unrolled_steps(rolled), 2 * ranks - 1);
      EXPECT_EQ(required(program::unroll(rolled)), plans[rank]) << ranks << ' ' << rank;
    }
  }
}

TEST(Prove, FindsStepsOfRolledPlans) {
  const Plan rolled = written(TUTTI_ALL_REDUCE, 6, 2, 6, [](PlanBuilder& plan, uint32_t rank) { ring(plan, 6, rank); });
  const Plan plan = required(program::unroll(rolled));
  ASSERT_EQ(plan.steps.size(), 11u);
  for (uint32_t i = 0; i < 11; ++i) {
    const program::RolledStep place = program::rolled_step(rolled, i);
    EXPECT_EQ(place.step, i == 0 ? 0u : i < 5 ? 1u : i == 5 ? 2u : i < 10 ? 3u : 4u) << i;
    EXPECT_EQ(place.round, i > 0 && i < 5 ? i - 1 : i > 5 && i < 10 ? i - 6 : 0u) << i;
    EXPECT_EQ(program::in_round(rolled, place).step.source_chunk, plan.steps[i].source_chunk) << i;
    EXPECT_EQ(program::in_round(rolled, place).step.destination_chunk, plan.steps[i].destination_chunk) << i;
  }
}

TEST(Prove, ARingOf16384RanksByRotation) {
  constexpr uint32_t kRanks = 16384;
  const Write write = [](PlanBuilder& plan, uint32_t rank) { ring(plan, kRanks, rank); };
  for (const bool in_place : {false, true}) {
    const Verdict verdict = proved(TUTTI_ALL_REDUCE, kRanks, kRanks, write, {2, in_place});
    EXPECT_TRUE(verdict.status.ok()) << verdict.status.to_string();
    EXPECT_EQ(verdict.how, "by rotation");
  }
  const Verdict deadlock = proved(TUTTI_ALL_REDUCE, kRanks, kRanks, write, {1, false});
  EXPECT_TRUE(deadlock.decided);
  EXPECT_EQ(deadlock.status.text(),
            "with 1 slot(s): deadlock: rank 0 waits at step 1 for a slot to rank 1; so do all ranks");
}

/// Where the proof by rotation decides, it decides like the exact proof.
TEST(Prove, RotationAgreesWithTheExactProof) {
  std::map<std::string, int> decided;
  for (const Sample& sample : samples({2, 3, 4, 7, 8, 16, 17, 33}, false)) {
    for (const uint32_t slots : {1u, 2u}) {
      for (const bool in_place : {false, true}) {
        if (in_place && sample.plans[0].collective == Collective::kAllToAll) continue;
        const auto ranks = static_cast<uint32_t>(sample.plans.size());
        const Status exact = program::verify(sample.plans, {slots, in_place});
        const Verdict rotated = prove(ranks, program::source_of(sample.plans), {slots, in_place}, kRotationOnly);
        if (!rotated.decided) continue;
        ++decided[sample.name.substr(0, sample.name.find(','))];
        EXPECT_EQ(rotated.status.ok(), exact.ok())
            << sample.name << ": " << rotated.status.to_string() << "; " << exact.to_string();
      }
    }
  }
  for (const char* name : {"ring  all_reduce", "ring  reduce_scatter", "ring  all_gather", "direct two-shot all_reduce",
                           "direct one-shot all_reduce"}) {
    EXPECT_GT(decided[name], 8) << name;
  }
}

/// Small changes of all ranks alike, at random: a proof by rotation finds what the exact proof finds.
TEST(Prove, RotationFindsWhatTheExactProofFinds) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937 engine(seed);
  const auto random = [&] { return static_cast<uint32_t>(engine()); };
  int wrong = 0;
  for (int i = 0; i < 300; ++i) {
    const uint32_t ranks = 3 + random() % 9;
    const auto zero = required(program::unroll(written(
        TUTTI_ALL_REDUCE, ranks, 0, ranks, [&](PlanBuilder& plan, uint32_t rank) { ring(plan, ranks, rank); })));
    Plan changed = zero;
    tutti_plan_step& step = changed.steps[random() % changed.steps.size()];
    switch (random() % 4) {
      case 0:
        step.source_chunk = random() % ranks;
        break;
      case 1:
        step.flags ^= TUTTI_STEP_FINAL;
        break;
      case 2:
        step.send_count = 0;
        break;
      default:
        if (step.destination != 0) step.destination_chunk = random() % ranks;
    }
    if (!program::validate(changed.view()).ok()) continue;
    const auto rotation = required(program::rotation_of(changed, 1, 0));
    std::vector<Plan> plans;
    for (uint32_t rank = 0; rank < ranks; ++rank) plans.push_back(required(program::image(rotation, changed, rank)));
    const Status exact = program::verify(plans);
    const Verdict rotated = prove(ranks, program::source_of(plans), {}, kRotationOnly);
    ASSERT_TRUE(rotated.decided) << rotated.status.to_string();
    EXPECT_EQ(rotated.status.ok(), exact.ok()) << rotated.status.to_string() << "; " << exact.to_string();
    wrong += exact.ok() ? 0 : 1;
  }
  EXPECT_GT(wrong, 50);
}

TEST(Prove, NamesTheFaultOfAllRanks) {
  constexpr uint32_t kRanks = 100;
  const Verdict dropped = proved(TUTTI_ALL_REDUCE, kRanks, 1, [](PlanBuilder& plan, uint32_t rank) {
    plan.step().own(Buffer::kInput, 0).send((rank + 1) % kRanks);
    plan.step().recv((rank + kRanks - 1) % kRanks).own(Buffer::kInput, 0).final().to_output(0);
  });
  EXPECT_TRUE(dropped.decided);
  EXPECT_EQ(dropped.status.text(), "rank 0 output chunk 0: lacks rank 1");
  const Verdict twice = proved(TUTTI_REDUCE_SCATTER, kRanks, 1, [](PlanBuilder& plan, uint32_t rank) {
    const uint32_t next = (rank + 1) % kRanks;
    plan.step().own(Buffer::kInput, next).send(next);
    plan.step().recv((rank + kRanks - 1) % kRanks).own(Buffer::kInput, rank).to_scratch(0);
    plan.step().own(Buffer::kScratch, 0).send(next);
    plan.step().recv((rank + kRanks - 1) % kRanks).own(Buffer::kScratch, 0).final().to_output(0);
    plan.scratch(1);
  });
  EXPECT_TRUE(twice.decided);
  EXPECT_THAT(std::string(twice.status.text()),
              HasSubstr("rank 0 output chunk 0: mixes input chunks 0 and 99, folded by rank 0 step 3"));
}

/// Every rank folds its own value first, so that ranks get different bits.
TEST(Prove, SeesThatRanksFoldInOtherOrders) {
  constexpr uint32_t kRanks = 72;
  const Verdict verdict = proved(TUTTI_ALL_REDUCE, kRanks, 1, [](PlanBuilder& plan, uint32_t rank) {
    plan.scratch(1);
    PlanBuilder::Step& first = plan.step().own(Buffer::kInput, 0);
    for (uint32_t peer = 0; peer < kRanks; ++peer) {
      if (peer != rank) first.send(peer);
    }
    for (uint32_t i = 1; i < kRanks; ++i) {
      PlanBuilder::Step& step = plan.step().recv((rank + i) % kRanks);
      i == 1 ? step.own(Buffer::kInput, 0) : step.own(Buffer::kScratch, 0);
      i + 1 == kRanks ? step.final().to_output(0) : step.to_scratch(0);
    }
  });
  EXPECT_TRUE(verdict.decided);
  EXPECT_EQ(verdict.status.text(),
            "rank 0 output chunk 0: is folded in another order than on rank 1, so that bits may differ");
}

TEST(Prove, ARankThatDiffersLeavesTheExactProof) {
  constexpr uint32_t kRanks = 90;
  const Write write = [](PlanBuilder& plan, uint32_t rank) {
    ring(plan, kRanks, rank);
    if (rank == 41) plan.step().own(Buffer::kOutput, 0).to_output(0);
  };
  const Verdict exact = proved(TUTTI_ALL_REDUCE, kRanks, kRanks, write);
  EXPECT_TRUE(exact.status.ok()) << exact.status.to_string();
  EXPECT_EQ(exact.how, "exactly");
  const Verdict none = proved(TUTTI_ALL_REDUCE, kRanks, kRanks, write, {}, kRotationOnly);
  EXPECT_FALSE(none.decided);
  EXPECT_EQ(none.status.text(),
            "an exact proof handles up to 0 sends and receives of all ranks, and there are more; rank 41: has 6 steps, "
            "but rank 0 has 5");
}

TEST(Prove, ARankWithTooManyStepsHasNoProofByRotation) {
  program::ProofLimits limits = kRotationOnly;
  limits.messages_of_rank = 100;
  const auto write = [](uint32_t ranks) {
    return [ranks](PlanBuilder& plan, uint32_t rank) { ring(plan, ranks, rank); };
  };
  EXPECT_TRUE(proved(TUTTI_ALL_REDUCE, 16, 16, write(16), {}, limits).decided);
  const Verdict none = proved(TUTTI_ALL_REDUCE, 96, 96, write(96), {}, limits);
  EXPECT_FALSE(none.decided);
  EXPECT_THAT(
      std::string(none.status.text()),
      HasSubstr("a proof by rotation handles up to 100 sends, receives and steps of a rank, and there are more"));
}

TEST(Prove, FewRanksExactly) {
  for (const uint32_t ranks : {33u, program::kExactRanks, program::kExactRanks + 1}) {
    const Verdict verdict =
        proved(TUTTI_ALL_REDUCE, ranks, ranks, [&](PlanBuilder& plan, uint32_t rank) { ring(plan, ranks, rank); });
    EXPECT_TRUE(verdict.status.ok()) << verdict.status.to_string();
    EXPECT_EQ(verdict.how, ranks <= program::kExactRanks ? "exactly" : "by rotation") << ranks;
  }
}

TEST(Prove, RootsHaveNoRotation) {
  constexpr uint32_t kRanks = 2000;
  const Write chain = [](PlanBuilder& plan, uint32_t rank) {
    PlanBuilder::Step& step = plan.step().to_output(0);
    rank == 0 ? step.own(Buffer::kInput, 0) : step.recv(rank - 1);
    if (rank + 1 < kRanks) step.send(rank + 1);
  };
  const Verdict exact = proved(TUTTI_BROADCAST, kRanks, 1, chain);
  EXPECT_TRUE(exact.status.ok()) << exact.status.to_string();
  EXPECT_EQ(exact.how, "exactly");
  EXPECT_THAT(std::string(proved(TUTTI_BROADCAST, kRanks, 1, chain, {}, kRotationOnly).status.text()),
              HasSubstr("a collective with a root has no rotation"));
}

/// The ring visits the ranks in an order that no rotation gives.
TEST(Prove, RingsInAnyOrder) {
  constexpr uint32_t kRanks = 96;
  std::vector<uint32_t> order;
  for (uint32_t node = 0; node < kRanks / 4; ++node) {
    for (const uint32_t local : {0u, 2u, 1u, 3u}) order.push_back(node * 4 + local);
  }
  const Write gather = [&](PlanBuilder& plan, uint32_t rank) {
    const auto at = static_cast<uint32_t>(std::find(order.begin(), order.end(), rank) - order.begin());
    const auto before = [&](uint32_t distance) { return order[(at + kRanks - distance) % kRanks]; };
    plan.step().own(Buffer::kInput, 0).to_output(rank).send(before(kRanks - 1));
    for (uint32_t k = 1; k < kRanks - 1; ++k) plan.step().recv(before(1)).to_output(before(k)).send(before(kRanks - 1));
    plan.step().recv(before(1)).to_output(before(kRanks - 1));
  };
  for (const bool in_place : {false, true}) {
    const Verdict verdict = proved(TUTTI_ALL_GATHER, kRanks, 1, gather, {2, in_place}, kRotationOnly);
    EXPECT_TRUE(verdict.status.ok()) << verdict.status.to_string();
    EXPECT_EQ(verdict.how, "by rotation along a ring");
  }
  const Verdict wrong = proved(TUTTI_ALL_GATHER, kRanks, 1, [&](PlanBuilder& plan, uint32_t rank) {
    gather(plan, rank);
    plan.step().own(Buffer::kOutput, rank).to_output(order[0]);
  });
  EXPECT_TRUE(wrong.decided);
  EXPECT_THAT(std::string(wrong.status.text()), HasSubstr("output chunk 0: holds input chunk 0 of rank"));
}

TEST(Prove, ListsEveryCounterExample) {
  std::vector<Plan> plans;
  for (uint32_t rank = 0; rank < 3; ++rank) {
    plans.push_back(written(TUTTI_ALL_REDUCE, 3, rank, 3, [](PlanBuilder& plan, uint32_t r) { ring(plan, 3, r); }));
  }
  EXPECT_TRUE(required(program::counter_examples(plans, {})).empty());
  plans[1].steps[1].source = 0;  // rank 1 forwards chunk 0 without its own contribution
  plans[1].growths[1].source_chunk = 0;
  const auto faults = required(program::counter_examples(plans, {}));
  std::vector<std::string> texts;
  for (const auto& fault : faults) texts.push_back(fault.text);
  EXPECT_THAT(texts, testing::ElementsAre("rank 0 output chunk 0: lacks rank 1, whose input chunk 0 no step reads; "
                                          "the same on rank(s) 1, 2"));
}

TEST(Prove, NamesBothEndsOfAMessageToAWrongRank) {
  std::vector<Plan> plans;
  for (uint32_t rank = 0; rank < 3; ++rank) {
    plans.push_back(written(TUTTI_BROADCAST, 3, rank, 1, [](PlanBuilder& plan, uint32_t r) {
      if (r == 0) plan.step().own(Buffer::kInput, 0).to_output(0).send(2);
      if (r == 1) plan.step().recv(0).to_output(0);
      if (r == 2) plan.step().own(Buffer::kInput, 0).to_output(0);
    }));
  }
  const auto faults = required(program::counter_examples(plans, {}));
  ASSERT_GE(faults.size(), 2u);
  EXPECT_EQ(faults[0].text,
            "rank 2 never receives 1 of the messages that rank 0 sends it, first the message of step 0");
  EXPECT_EQ(faults[0].place->rank, 0u);
  EXPECT_EQ(faults[1].text, "rank 1 waits in 1 receives for messages that rank 0 never sends it, first in step 0");
  EXPECT_EQ(faults[1].place->rank, 1u);
}

TEST(Prove, NamesTheEndOfADroppedContribution) {
  std::vector<Plan> plans;
  for (uint32_t rank = 0; rank < 2; ++rank) {
    plans.push_back(written(TUTTI_ALL_REDUCE, 2, rank, 1, [](PlanBuilder& plan, uint32_t r) {
      plan.step().own(Buffer::kInput, 0).send(1 - r);
      if (r == 0) plan.step().recv(1).own(Buffer::kInput, 0).final().to_output(0);
      if (r == 1) plan.step().recv(0).final().to_output(0);
    }));
  }
  const auto faults = required(program::counter_examples(plans, {}));
  ASSERT_EQ(faults.size(), 1u);
  EXPECT_EQ(faults[0].text, "rank 1 output chunk 0: lacks rank 1");
  EXPECT_EQ(faults[0].place->rank, 1u);
  EXPECT_EQ(faults[0].place->step, 1u);
}

// --- Parts
// ----------------------------------------------------------------------------------------------------

TEST(RankSets, MoveAndUnite) {
  program::RankSets sets(10);
  const auto eight = sets.single(8);
  const auto moved = sets.moved(eight, 5);
  EXPECT_TRUE(sets.has(moved, 3));
  EXPECT_FALSE(sets.has(moved, 8));
  std::optional<uint32_t> twice;
  std::vector<program::RankSets::Id> parts;
  for (const uint32_t rank : {9u, 0u, 8u}) parts.push_back(sets.single(rank));
  const auto three = sets.united(parts, twice);
  EXPECT_FALSE(twice);
  EXPECT_EQ(sets.first_lacking(three), 1u);
  const auto turned = sets.moved(three, 2);
  EXPECT_EQ(sets.first_lacking(turned), 3u) << "0, 1 and 2";
  const auto over_the_end = sets.moved(three, 1);
  EXPECT_TRUE(sets.has(over_the_end, 9));
  EXPECT_EQ(sets.first_lacking(over_the_end), 2u) << "9, 0 and 1";
  const std::vector<program::RankSets::Id> both = {three, turned};
  const auto united = sets.united(both, twice);
  EXPECT_EQ(twice, 0u);
  EXPECT_EQ(sets.first_lacking(united), 3u);
  std::vector<program::RankSets::Id> all;
  for (uint32_t rank = 0; rank < 10; ++rank) all.push_back(sets.single(rank));
  twice.reset();
  const auto full = sets.united(all, twice);
  EXPECT_FALSE(twice);
  EXPECT_FALSE(sets.first_lacking(full));
  EXPECT_EQ(sets.moved(full, 3), full);
  const std::vector<program::RankSets::Id> nested = {full, eight};
  EXPECT_FALSE(sets.first_lacking(sets.united(nested, twice)));
  EXPECT_EQ(twice, 8u);
}

TEST(Rotation, BlocksMoveWithTheirRanks) {
  program::Rotation rotation;
  rotation.rank_count = rotation.output_blocks = 3;
  rotation.chunks = 2;
  EXPECT_EQ(rotation.chunk(TUTTI_BUFFER_OUTPUT, 1, 2), 5u);
  EXPECT_EQ(rotation.chunk(TUTTI_BUFFER_OUTPUT, 3, 2), 1u);
  EXPECT_EQ(rotation.chunk(TUTTI_BUFFER_INPUT, 1, 2), 1u) << "the input has one block";
}

TEST(Rotation, NamesTheFirstDifference) {
  constexpr uint32_t kRanks = 4;
  const Plan zero = written(TUTTI_ALL_REDUCE, kRanks, 0, kRanks, [](PlanBuilder& plan, uint32_t rank) {
    plan.step().own(Buffer::kInput, rank).send(1);
    plan.step().recv(3).own(Buffer::kInput, 3).to_output(3);
  });
  const program::Rotation rotation = required(program::rotation_of(zero, 1, 0));
  const Plan two = required(program::image(rotation, zero, 2));
  EXPECT_EQ(program::differs_from_image(rotation, zero, two), "");
  Plan changed = two;
  changed.steps[0].source_chunk = 1;
  EXPECT_THAT(program::differs_from_image(rotation, zero, changed), HasSubstr("step 0: its source chunk"));
  changed = two;
  changed.peers[changed.steps[1].recv_begin].rank = 0;
  EXPECT_THAT(program::differs_from_image(rotation, zero, changed), HasSubstr("step 1: the list of its senders"));
}

TEST(Rotation, OfAllRanksMustBeNone) {
  const Plan plan = written(TUTTI_ALL_REDUCE, 3, 0, 4, [](PlanBuilder&, uint32_t) {});
  EXPECT_EQ(program::rotation_of(plan, 1, 0).status().text(),
            "3 ranks times 1 chunks are no multiple of the 4 chunks of a block");
  EXPECT_TRUE(program::rotation_of(plan, 0, 0).ok());
}

TEST(Rotor, FoldsMoveWithTheirOperands) {
  for (const uint32_t ranks : {1u, 2u, 3u, 12u, 16384u, 65521u}) {
    const program::Rotor rotor(ranks);
    const uint32_t d = ranks / 3;
    const uint64_t a = rotor.input(7, 0);
    const uint64_t b = rotor.input(7, 1 % ranks);
    EXPECT_EQ(rotor.moved(a, ranks), a) << ranks;
    EXPECT_EQ(rotor.fold(a, b), rotor.fold(b, a));
    EXPECT_EQ(rotor.moved(rotor.fold(a, b), d), rotor.fold(rotor.moved(a, d), rotor.moved(b, d))) << ranks;
    const uint64_t c = rotor.input(9, 2 % ranks);
    EXPECT_NE(rotor.fold(rotor.fold(a, b), c), rotor.fold(a, rotor.fold(b, c)));
    const std::vector<uint64_t> three = {a, b, c};
    const std::vector<uint64_t> three_moved = {rotor.moved(a, d), rotor.moved(b, d), rotor.moved(c, d)};
    const std::vector<uint32_t> at = {0, 1 % ranks, 2 % ranks};
    const std::vector<uint32_t> at_moved = {d % ranks, (1 + d) % ranks, (2 + d) % ranks};
    EXPECT_EQ(rotor.moved(rotor.fold(three, at), d), rotor.fold(three_moved, at_moved)) << ranks;
    EXPECT_EQ(rotor.moved(rotor.finalize(a), d), rotor.finalize(rotor.moved(a, d)));
    EXPECT_NE(rotor.finalize(a), a);
  }
  const program::Rotor rotor(5);
  for (uint32_t d = 1; d < 5; ++d) EXPECT_NE(rotor.moved(rotor.input(3, 0), d), rotor.input(3, 0));
}

}  // namespace
}  // namespace tutti::test
