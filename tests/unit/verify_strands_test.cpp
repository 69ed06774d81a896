// SPDX-License-Identifier: Apache-2.0
// The verifier's verdict on plans with strands: races, circles of waits, and a comparison with runs on numbers, in
// which the strands advance in random order.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <map>
#include <random>

#include "program/describe.h"
#include "program/passes/order_strands.h"
#include "program/verify/prove.h"
#include "program/verify/races.h"
#include "program/verify/touches.h"
#include "program/verify/verify.h"
#include "unit/plan_mutator.h"
#include "unit/plan_reference.h"
#include "unit/plan_support.h"

namespace tutti::test {
namespace {

using program::Plan;
using program::verify;
using sdk::Buffer;
using sdk::PlanBuilder;
using testing::HasSubstr;

std::string refusal(const std::vector<Plan>& plans, const program::VerifyOptions& options = {}) {
  return std::string(verify(plans, options).text());
}

/// Copies an input chunk to scratch chunk 0 in one strand, and from there to the output in the other.
std::vector<Plan> through_scratch(bool waits, bool waits_back) {
  return write_plans(TUTTI_BROADCAST, 1, 1, [&](PlanBuilder& plan, uint32_t) {
    plan.scratch(1);
    plan.step().own(Buffer::kInput, 0).to_scratch(0);
    PlanBuilder::Step& last = plan.step();
    if (waits_back) last.after(2);
    plan.strand();
    PlanBuilder::Step& copy = plan.step().own(Buffer::kScratch, 0).to_output(0);
    if (waits) copy.after(0);
  });
}

TEST(VerifyStrands, RefusesARace) {
  EXPECT_EQ(refusal(through_scratch(true, true)), "");
  EXPECT_EQ(
      refusal(through_scratch(false, false)),
      "rank 0 step 2: reads scratch chunk 0, which step 0 of strand 0 writes; no wait puts the two steps in order");
}

/// Scratch chunks are used again in the next loop, which a strand may begin early.
TEST(VerifyStrands, RefusesARaceWithTheNextLoop) {
  EXPECT_EQ(
      refusal(through_scratch(true, false)),
      "rank 0 step 0: writes scratch chunk 0, which step 2 of strand 1 reads in the loop before; no wait puts the "
      "two steps in order");
}

TEST(VerifyStrands, RefusesARaceInPlace) {
  const auto plans = [](bool waits) {
    return write_plans(TUTTI_ALL_REDUCE, 2, 1, [&](PlanBuilder& plan, uint32_t rank) {
      plan.step().own(Buffer::kInput, 0).send(1 - rank);
      plan.strand();
      PlanBuilder::Step& fold = plan.step().recv(1 - rank).own(Buffer::kInput, 0).final().to_output(0);
      if (waits) fold.after(0);
    });
  };
  EXPECT_EQ(refusal(plans(false)), "");
  EXPECT_EQ(
      refusal(plans(false), {.slots = 2, .in_place = true}),
      "rank 0 step 1: writes output chunk 0, in place input chunk 0, which step 0 of strand 0 reads; no wait puts "
      "the two steps in order");
  EXPECT_EQ(refusal(plans(true), {.slots = 2, .in_place = true}), "");
}

/// A copy of a chunk to itself is no write, unless the collective reduces: then it may be scaled.
TEST(VerifyStrands, ACopyToItselfIsNoWrite) {
  const auto gather = write_plans(TUTTI_ALL_GATHER, 2, 1, [](PlanBuilder& plan, uint32_t rank) {
    plan.step().own(Buffer::kInput, 0).to_output(rank);
    plan.strand();
    plan.step().own(Buffer::kInput, 0).send(1 - rank).gather(1 - rank, 1 - rank);
  });
  EXPECT_EQ(refusal(gather, {.slots = 2, .in_place = true}), "");
  const auto reduce = write_plans(TUTTI_ALL_REDUCE, 1, 2, [](PlanBuilder& plan, uint32_t) {
    plan.step().own(Buffer::kInput, 0).final().to_output(0);
    plan.strand();
    plan.step().own(Buffer::kInput, 1).final().to_output(1);
    plan.strand();
    plan.scratch(2);
    plan.step().own(Buffer::kInput, 1).to_scratch(1);
  });
  EXPECT_EQ(refusal(reduce), "");
  EXPECT_THAT(refusal(reduce, {.slots = 2, .in_place = true}), HasSubstr("input chunk 1, in place output chunk 1"));
}

TEST(VerifyStrands, SeesAllChunksOfAStep) {
  const auto plans = [](uint32_t chunk) {
    return write_plans(TUTTI_ALL_TO_ALL, 2, 4, [&](PlanBuilder& plan, uint32_t rank) {
      plan.message_chunks(4).scratch(8);
      plan.step()
          .own(Buffer::kInput, 0)
          .scatter(1 - rank, (1 - rank) * 4)
          .gather(1 - rank, 0)
          .gather_to_scratch()
          .chunks(4);
      plan.step().own(Buffer::kInput, rank * 4).to_output(rank * 4).chunks(4);
      plan.step().own(Buffer::kScratch, 0).to_output((1 - rank) * 4).chunks(4);
      plan.strand();
      plan.step().own(Buffer::kInput, chunk).to_scratch(chunk);
    });
  };
  EXPECT_EQ(refusal(plans(4)), "");
  EXPECT_EQ(refusal(plans(3)),
            "rank 0 step 3: writes scratch chunk 3, which step 0 of strand 0 writes; no wait puts the two steps in "
            "order");
}

TEST(VerifyStrands, RefusesACircleOfWaits) {
  const auto plans = write_plans(TUTTI_SEND_RECV, 1, 1, [](PlanBuilder& plan, uint32_t) {
    plan.step().own(Buffer::kInput, 0).after(3);
    plan.strand();
    plan.step().own(Buffer::kInput, 0);
    plan.step().own(Buffer::kInput, 0).after(5);
    plan.step().own(Buffer::kInput, 0);
    plan.strand();
    plan.step().own(Buffer::kInput, 0).after(2);
    plan.step().own(Buffer::kInput, 0);
  });
  std::optional<program::StepPlace> place;
  EXPECT_EQ(verify(plans, {}, &place).text(),
            "rank 0: strands wait for each other: step 2 waits for step 5, step 4 waits for step 2");
  ASSERT_TRUE(place);
  EXPECT_EQ(place->step, 2u);
}

/// Strands may need an order of two ranks that no order of one rank's strands has: each rank's second strand must run
/// before its first.
TEST(VerifyStrands, FindsNoDeadlockWhereThereIsNone) {
  const auto plans = write_plans(TUTTI_ALL_GATHER, 2, 2, [](PlanBuilder& plan, uint32_t rank) {
    const uint32_t peer = 1 - rank;
    plan.step().recv(peer).to_output(peer * 2);
    plan.step().recv(peer).to_output(peer * 2 + 1);
    plan.strand();
    for (const uint32_t c : {0u, 1u}) plan.step().own(Buffer::kInput, c).to_output(rank * 2 + c).send(peer);
  });
  for (const uint32_t slots : {1u, 2u}) {
    EXPECT_EQ(refusal(plans, {.slots = slots}), "");
    EXPECT_EQ(refusal(plans, {.slots = slots, .in_place = true}), "");
  }
}

TEST(VerifyStrands, AllCounterExamplesNameEachPairOfStepsOnce) {
  const auto plans = write_plans(TUTTI_BROADCAST, 1, 4, [](PlanBuilder& plan, uint32_t) {
    plan.message_chunks(4).scratch(4);
    plan.step().own(Buffer::kInput, 0).to_scratch(0).chunks(4);
    plan.strand();
    plan.step().own(Buffer::kScratch, 0).to_output(0).chunks(2);
    plan.step().own(Buffer::kScratch, 2).to_output(2).chunks(2);
  });
  const auto found = program::races(plans[0], false);
  ASSERT_EQ(found.size(), 4u) << "and the same pairs the other way around, in the next loop";
  EXPECT_EQ(
      found[0].text,
      "rank 0 step 1: reads scratch chunk 0, which step 0 of strand 0 writes; no wait puts the two steps in order");
  EXPECT_EQ(
      found[1].text,
      "rank 0 step 2: reads scratch chunk 2, which step 0 of strand 0 writes; no wait puts the two steps in order");
  const auto all = program::counter_examples(plans, {});
  ASSERT_TRUE(all.ok());
  EXPECT_EQ(all->size(), 4u);
}

// --- Mutations

/// A random division of plans without strands. Steps that share a connection stay in one strand. Steps of different
/// strands that touch the same chunk wait for each other in the order of the plan. So the result is as right as the
/// plan, unless the next loop uses scratch chunks early.
class Divider {
 public:
  Divider(const Plan& plan, Mutator& random) : plan_(plan), random_(random) {}

  Plan run(bool in_place) {
    const std::vector<uint32_t> groups = groups_of_steps();
    std::vector<LooseStep> steps = take_apart(plan_);
    std::map<uint32_t, uint32_t> strand_of_group;
    for (size_t i = 0; i < steps.size(); ++i) {
      const auto drawn = static_cast<uint32_t>(random_.below(3));
      steps[i].strand = strand_of_group.try_emplace(groups[i], drawn).first->second;
    }
    for (uint32_t later = 0; later < steps.size(); ++later) {
      for (uint32_t earlier = 0; earlier < later; ++earlier) {
        if (steps[later].strand != steps[earlier].strand && conflict(earlier, later, in_place)) {
          steps[later].after.push_back(earlier);
        }
      }
    }
    std::stable_sort(steps.begin(), steps.end(), [](const auto& a, const auto& b) { return a.strand < b.strand; });
    Plan divided = plan_;
    put_together(steps, divided);
    return divided;
  }

 private:
  bool conflict(uint32_t a, uint32_t b, bool in_place) const {
    const auto later = program::touches(plan_, plan_.steps[b], in_place);
    for (const program::Touch& touch : program::touches(plan_, plan_.steps[a], in_place)) {
      const auto meets = [&](const program::Touch& other) {
        return touch.place == other.place && (touch.writes || other.writes);
      };
      if (std::any_of(later.begin(), later.end(), meets)) return true;
    }
    return false;
  }

  /// By step: the first step that it shares a connection with, directly or through other steps.
  std::vector<uint32_t> groups_of_steps() const {
    std::vector<uint32_t> groups(plan_.steps.size());
    for (uint32_t i = 0; i < groups.size(); ++i) groups[i] = i;
    std::map<std::pair<bool, uint32_t>, uint32_t> first_user;
    const auto join = [&](uint32_t step, bool sends, std::span<const tutti_plan_peer> peers) {
      for (const tutti_plan_peer& peer : peers) {
        const auto [user, is_new] = first_user.try_emplace({sends, peer.rank}, step);
        if (!is_new) std::replace(groups.begin(), groups.end(), groups[step], groups[user->second]);
      }
    };
    for (uint32_t i = 0; i < groups.size(); ++i) {
      join(i, true, plan_.send(plan_.steps[i]));
      join(i, false, plan_.recv(plan_.steps[i]));
    }
    return groups;
  }

  const Plan& plan_;
  Mutator& random_;
};

/// Sets of plans with strands: right, or wrong in one respect.
std::vector<Sample> handmade() {
  std::vector<Sample> sets;
  for (const uint32_t ranks : {2u, 3u, 4u}) {
    sets.push_back({"chain", write_plans(TUTTI_ALL_REDUCE, ranks, 3, [&](PlanBuilder& plan, uint32_t rank) {
                      for (uint32_t c = 0; c < 3; ++c) {
                        PlanBuilder::Step& step = plan.step().own(Buffer::kInput, c);
                        if (rank + 1 < ranks) step.recv(rank + 1);
                        if (rank > 0) step.send(rank - 1);
                        if (rank == 0) step.final().to_output(c);
                      }
                      plan.strand();
                      for (uint32_t c = 0; c < 3; ++c) {
                        PlanBuilder::Step& step = plan.step().after(c);
                        if (rank == 0) step.own(Buffer::kOutput, c);
                        if (rank > 0) step.recv(rank - 1).to_output(c);
                        if (rank + 1 < ranks) step.send(rank + 1);
                      }
                    })});
    sets.push_back({"exchanges", write_plans(TUTTI_ALL_TO_ALL, ranks, 1, [&](PlanBuilder& plan, uint32_t rank) {
                      plan.step().own(Buffer::kInput, rank).to_output(rank);
                      for (uint32_t distance = 1; distance < ranks; ++distance) {
                        const uint32_t peer = (rank + distance) % ranks;
                        plan.strand();
                        plan.step().own(Buffer::kInput, 0).scatter(peer, peer).gather(peer, peer);
                      }
                    })});
    for (const bool waits : {false, true}) {
      sets.push_back({"scratch", write_plans(TUTTI_ALL_REDUCE, ranks, 2, [&](PlanBuilder& plan, uint32_t rank) {
                        const uint32_t next = (rank + 1) % ranks;
                        const uint32_t previous = (rank + ranks - 1) % ranks;
                        plan.scratch(2);
                        // One strand reduces a chunk around the ring, the other sends it on.
                        for (const uint32_t c : {0u, 1u}) {
                          PlanBuilder::Step& fold = plan.step().own(Buffer::kInput, c).to_scratch(c);
                          if (rank > 0) fold.recv(previous);
                          if (rank == ranks - 1) fold.final();
                        }
                        for (const uint32_t c : {0u, 1u}) {
                          if (rank < ranks - 1) plan.step().recv(previous).to_output(c);
                          if (rank == ranks - 1) plan.step().own(Buffer::kScratch, c).to_output(c);
                        }
                        PlanBuilder::Step& last = plan.step();
                        if (waits) last.after(plan.step_count() + 1);  // the next strand's second step
                        plan.strand();
                        for (const uint32_t c : {0u, 1u}) plan.step().own(Buffer::kScratch, c).send(next).after(c);
                        if (rank < ranks - 2) {
                          for (const uint32_t c : {0u, 1u}) plan.step().own(Buffer::kOutput, c).send(next).after(2 + c);
                        }
                        if (waits) plan.step();
                      })});
    }
  }
  return sets;
}

/// Runs the strands, which only GPUs do. If the run ends well, runs the lists that hosts run: the parts of messages may
/// let exchanges of a list wait for each other, where strands do not.
std::string outcome_of(const std::vector<Plan>& plans, Reference::Options options, Mutator& mutator) {
  if (!program::any_strands(plans)) return Reference(plans, options, mutator.seed()).run();
  options.in_parts = false;
  std::string outcome = Reference(plans, options, mutator.seed()).run();
  if (!outcome.empty()) return outcome;
  const auto listed = program::in_one_strand(plans);
  EXPECT_TRUE(listed.ok()) << listed.status().to_string();
  options.in_parts = true;
  return listed.ok() ? Reference(listed->plans, options, mutator.seed()).run() : "no list";
}

/// The verifier follows one list of steps. The reference runs strands in random order.
TEST(VerifyStrandsMutations, AgreeWithRunningOnNumbers) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  Mutator mutator(seed);
  const auto made = handmade();
  const auto emitted = samples({2, 3, 4}, true);
  std::map<std::string, uint32_t> outcomes;
  for (int i = 0; i < 20000; ++i) {
    const auto& originals = mutator.below(2) == 0 ? made : emitted;
    const Sample& original = originals[mutator.below(originals.size())];
    std::vector<Plan> plans = original.plans;
    const bool in_place = can_run_in_place(plans[0]) && mutator.below(2) == 0;
    if (&originals == &emitted) {
      for (Plan& plan : plans) plan = Divider(plan, mutator).run(in_place);
    }
    const size_t mutations = mutator.below(3);
    for (size_t count = mutations; count > 0; --count) mutator.mutate(plans);
    const uint32_t slots = std::array{1u, 2u, 8u}[mutator.below(3)];
    const Status verdict = verify(plans, {.slots = slots, .in_place = in_place});
    const std::string outcome = outcome_of(plans, {slots, in_place}, mutator);
    ASSERT_EQ(verdict.ok(), outcome.empty())
        << original.name << ", slots " << slots << ", in place " << in_place << "\nverifier: " << verdict.to_string()
        << "\nrun on numbers: " << outcome << '\n'
        << listing(plans);
    const bool scratch = std::any_of(plans.begin(), plans.end(), [](const Plan& p) { return p.scratch_chunks > 0; });
    if (&originals == &emitted && mutations == 0 && slots > 1 && !scratch) {
      ASSERT_TRUE(outcome.empty() || outcome == "deadlock of parts") << original.name << ": " << outcome << '\n'
                                                                     << listing(plans);
    }
    ++outcomes[outcome];
  }
  EXPECT_GE(outcomes[""], 2000u);
  EXPECT_GE(outcomes["race"], 500u);
  EXPECT_GE(outcomes["deadlock"], 200u);
  EXPECT_GE(outcomes["strands wait for each other"], 20u);
  EXPECT_GE(outcomes["two strands share a connection"], 100u);
}

}  // namespace
}  // namespace tutti::test
