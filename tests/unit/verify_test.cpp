// SPDX-License-Identifier: Apache-2.0
// The verifier accepts right plans, refuses wrong plans, and names the place.
#include "program/verify/verify.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <functional>
#include <random>

#include "program/cache.h"
#include "program/describe.h"
#include "tutti/sdk/plan_builder.h"
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

/// Ring steps wait for a slot while their own is full, and so do two-shot's: they need two.
bool needs_two_slots(const std::string& variant, uint32_t collective, uint32_t ranks) {
  if (ranks == 1) return false;
  if (variant == "two-shot" || variant == "ring") return true;
  if (variant != "") return false;
  if (collective == TUTTI_ALL_REDUCE) return true;
  return ranks > 2 && (collective == TUTTI_REDUCE_SCATTER || collective == TUTTI_ALL_GATHER);
}

void verify_variant(Connected& connected, const Algorithm::Variant& variant, uint32_t index, uint32_t collective,
                    uint32_t root, uint32_t channel, uint32_t ranks, bool may_decline) {
  auto plans = connected.plans(collective, index, root, channel);
  if (may_decline && plans.status().code() == Code::kUnsupported) return;
  ASSERT_TRUE(plans.ok()) << plans.status().to_string();
  for (uint32_t slots : {1u, 2u, 8u}) {
    for (bool in_place : {false, true}) {
      if (in_place && !can_run_in_place(plans->front())) continue;
      const Status status = verify(*plans, {.slots = slots, .in_place = in_place});
      const bool expected = slots > 1 || !needs_two_slots(variant.name, collective, ranks);
      EXPECT_EQ(status.ok(), expected) << status.to_string() << "; " << ranks << " ranks, root " << root << ", slots "
                                       << slots << ", in place " << in_place;
      if (!expected) {
        EXPECT_THAT(status.text(), HasSubstr("deadlock"));
      }
    }
  }
}

void verify_algorithm(const std::string& name, const std::vector<uint32_t>& rank_counts,
                      const std::vector<uint32_t>& node_counts = {1, 2, 3}) {
  const Algorithm algorithm(name);
  const auto variants = algorithm.variants();
  for (uint32_t ranks : rank_counts) {
    for (uint32_t nodes : node_counts) {
      if (nodes > ranks) continue;
      Connected connected(algorithm, split(ranks, nodes), nodes > 1 ? 3 : 1);
      for (uint32_t channel = 0; channel < connected.channels(); ++channel) {
        for (uint32_t variant = 0; variant < variants.size(); ++variant) {
          for (uint32_t collective = 0; collective < TUTTI_COLLECTIVE_COUNT; ++collective) {
            if (!variants[variant].can(collective)) continue;
            const bool rooted = program::has_root(static_cast<Collective>(collective));
            for (uint32_t root = 0; root < (rooted ? ranks : 1); root += ranks < 9 ? 1 : 7) {
              verify_variant(connected, variants[variant], variant, collective, root, channel, ranks, name == "hier");
              if (testing::Test::HasFailure()) return;
            }
          }
        }
      }
    }
  }
}

const std::vector<uint32_t> kSmall = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
const std::vector<uint32_t> kLarge = {17, 23, 24, 31, 32, 33, 48, 57, 63, 64};

TEST(Verify, RingPlans) {
  verify_algorithm("ring", kSmall);
  verify_algorithm("ring", kLarge);
}
TEST(Verify, TreePlans) {
  verify_algorithm("tree", kSmall);
  verify_algorithm("tree", {24, 33, 64});
}
TEST(Verify, DirectPlans) {
  verify_algorithm("direct", kSmall);
  verify_algorithm("direct", kLarge);
}

TEST(Verify, HierarchicalPlans) {
  verify_algorithm("hier", kSmall, {1, 2, 3, 4, 5, 8});
  verify_algorithm("hier", {18, 24, 32, 33, 64}, {2, 3, 4, 6, 8, 16});
}

TEST(Verify, RingOf256) {
  const Algorithm ring("ring");
  Connected connected(ring, split(256, 32));
  auto plans = connected.plans(TUTTI_ALL_REDUCE, 0);
  ASSERT_TRUE(plans.ok()) << plans.status().to_string();
  EXPECT_TRUE(verify(*plans).ok());
}

// --- Counter-examples

std::string refusal(const std::vector<Plan>& plans, const program::VerifyOptions& options = {}) {
  const Status status = verify(plans, options);
  return std::string(status.text());
}

TEST(VerifyRefuses, ReadBeforeWrite) {
  const auto plans = write_plans(TUTTI_ALL_REDUCE, 2, 1, [](PlanBuilder& plan, uint32_t rank) {
    plan.step().own(Buffer::kOutput, 0).send(1 - rank);
    plan.step().recv(1 - rank).own(Buffer::kInput, 0).final().to_output(0);
  });
  EXPECT_THAT(refusal(plans), HasSubstr("step 0: reads output chunk 0 before it is written"));
}

TEST(VerifyRefuses, MissingContribution) {
  const auto plans = write_plans(TUTTI_ALL_REDUCE, 2, 1, [](PlanBuilder& plan, uint32_t rank) {
    plan.step().own(Buffer::kInput, 0).send(1 - rank);
    PlanBuilder::Step& step = plan.step().recv(1 - rank).final().to_output(0);
    if (rank == 0) step.own(Buffer::kInput, 0);
  });
  EXPECT_EQ(refusal(plans), "rank 1 output chunk 0: lacks rank 1");
}

TEST(VerifyRefuses, ContributionTwice) {
  const auto plans = write_plans(TUTTI_ALL_REDUCE, 2, 1, [](PlanBuilder& plan, uint32_t rank) {
    plan.step().own(Buffer::kInput, 0).send(1 - rank);
    plan.step().recv(1 - rank).own(Buffer::kInput, 0).send(1 - rank);
    plan.step().recv(1 - rank).own(Buffer::kInput, 0).final().to_output(0);
  });
  EXPECT_EQ(refusal(plans), "rank 0 output chunk 0: holds rank 0 twice, folded by rank 0 step 2");
}

TEST(VerifyRefuses, FinalMissingOrTwice) {
  const auto none = write_plans(TUTTI_ALL_REDUCE, 1, 1,
                                [](PlanBuilder& plan, uint32_t) { plan.step().own(Buffer::kInput, 0).to_output(0); });
  EXPECT_EQ(refusal(none), "rank 0 output chunk 0: was never made final: mark its last step as final");
  const auto twice = write_plans(TUTTI_ALL_REDUCE, 1, 1, [](PlanBuilder& plan, uint32_t) {
    plan.step().own(Buffer::kInput, 0).final().to_output(0);
    plan.step().own(Buffer::kOutput, 0).final().to_output(0);
  });
  EXPECT_EQ(refusal(twice), "rank 0 output chunk 0: was made final twice, at last by rank 0 step 1");
}

TEST(VerifyRefuses, RanksThatAddInDifferentOrders) {
  // Each rank takes the values of all ranks in order, beginning with its own.
  const auto plans = write_plans(TUTTI_ALL_REDUCE, 3, 1, [](PlanBuilder& plan, uint32_t rank) {
    const uint32_t next = (rank + 1) % 3;
    const uint32_t previous = (rank + 2) % 3;
    plan.step().own(Buffer::kInput, 0).send(next).send(previous);
    plan.step().recv(next).own(Buffer::kInput, 0).to_output(0);
    plan.step().recv(previous).own(Buffer::kOutput, 0).final().to_output(0);
  });
  EXPECT_THAT(refusal(plans), HasSubstr("is folded in another order than on rank 0"));
}

TEST(VerifyRefuses, DeadlockOfReceivesFirst) {
  const auto plans = write_plans(TUTTI_ALL_REDUCE, 2, 1, [](PlanBuilder& plan, uint32_t rank) {
    plan.step().recv(1 - rank).own(Buffer::kInput, 0).final().to_output(0).send(1 - rank);
  });
  EXPECT_EQ(refusal(plans),
            "deadlock: rank 0 waits at step 0 for a message from rank 1; rank 1 waits at step 0 for a message from "
            "rank 0");
}

// Messages go in parts, and an exchange receives a part before it sends the next part.

TEST(VerifyRefuses, DeadlockOfAnExchangeWithAWholeMessage) {
  const auto plans = write_plans(TUTTI_ALL_GATHER, 2, 1, [](PlanBuilder& plan, uint32_t rank) {
    if (rank == 0) {
      plan.step().own(Buffer::kInput, 0).to_output(0).send(1).gather(1, 1);
    } else {
      plan.step().recv(0).to_output(0);
      plan.step().own(Buffer::kInput, 0).to_output(1).send(0);
    }
  });
  EXPECT_EQ(refusal(plans, {.slots = 8}),
            "deadlock: rank 0 waits at step 0 for a message from rank 1; rank 1 waits at step 0 for the rest of a "
            "message from rank 0");
}

/// Exchanges of neighbours, of which each waits for the exchange of the next rank: rank 3 needs the whole message.
TEST(VerifyRefuses, DeadlockOfAChainOfExchanges) {
  const auto plans = write_plans(TUTTI_ALL_TO_ALL, 4, 1, [](PlanBuilder& plan, uint32_t rank) {
    const uint32_t next = (rank + 1) % 4;
    const uint32_t previous = (rank + 3) % 4;
    if (rank == 3) {
      plan.step().gather(previous, previous);
      plan.step().own(Buffer::kInput, next).send(next);
    } else {
      plan.step().own(Buffer::kInput, next).send(next).gather(previous, previous);
    }
  });
  EXPECT_THAT(refusal(plans), HasSubstr("rank 3 waits at step 0 for the rest of a message from rank 2"));
}

TEST(Verify, ExchangesInStep) {
  const auto plans = write_plans(TUTTI_ALL_GATHER, 5, 1, [](PlanBuilder& plan, uint32_t rank) {
    for (uint32_t d = 1; d < 5; ++d) {
      const uint32_t to = (rank + d) % 5;
      const uint32_t from = (rank + 5 - d) % 5;
      plan.step().own(Buffer::kInput, 0).send(to).gather(from, from);
    }
    plan.step().own(Buffer::kInput, 0).to_output(rank);
  });
  EXPECT_EQ(refusal(plans, {.slots = 1}), "");
}

/// Rank 1 passes each part on before rank 0 sends the next one.
TEST(Verify, ExchangeOverAFold) {
  const auto plans = write_plans(TUTTI_BROADCAST, 3, 1, [](PlanBuilder& plan, uint32_t rank) {
    if (rank == 0) plan.step().own(Buffer::kInput, 0).send(1).gather(2, 0);
    if (rank == 1) plan.step().recv(0).to_output(0).send(2);
    if (rank == 2) plan.step().recv(1).to_output(0).send(0);
  });
  EXPECT_EQ(refusal(plans, {.slots = 1}), "");
}

TEST(VerifyRefuses, DeadlockForSlots) {
  const auto plans = write_plans(TUTTI_ALL_GATHER, 2, 4, [](PlanBuilder& plan, uint32_t rank) {
    const uint32_t peer = 1 - rank;
    for (uint32_t c = 0; c < 4; ++c) plan.step().own(Buffer::kInput, c).to_output(rank * 4 + c).send(peer);
    for (uint32_t c = 0; c < 4; ++c) plan.step().recv(peer).to_output(peer * 4 + c);
  });
  EXPECT_THAT(refusal(plans, {.slots = 3}), HasSubstr("with 3 slot(s): deadlock: rank 0 waits at step 3 for a slot"));
  EXPECT_EQ(refusal(plans, {.slots = 4}), "");
}

TEST(VerifyRefuses, MessageLeftOver) {
  const auto plans = write_plans(TUTTI_BROADCAST, 2, 1, [](PlanBuilder& plan, uint32_t rank) {
    if (rank == 0) {
      plan.step().own(Buffer::kInput, 0).to_output(0).send(1);
      plan.step().own(Buffer::kInput, 0).send(1);
    } else {
      plan.step().recv(0).to_output(0);
    }
  });
  EXPECT_EQ(refusal(plans),
            "rank 1 never receives 1 of the messages that rank 0 sends it, first the message of step 1");
}

TEST(VerifyRefuses, ChunksOfDifferentSize) {
  const auto plans = write_plans(TUTTI_BROADCAST, 2, 2, [](PlanBuilder& plan, uint32_t rank) {
    for (uint32_t c : {0u, 1u}) {
      if (rank == 0) {
        plan.step().own(Buffer::kInput, c).to_output(c).send(1);
      } else {
        plan.step().recv(0).to_output(1 - c);
      }
    }
  });
  EXPECT_THAT(refusal(plans), HasSubstr("rank 1 step 0: takes what rank 0 sent in its step 0"));
}

TEST(VerifyRefuses, BuffersOnlyTheRootHas) {
  const auto reads = write_plans(TUTTI_BROADCAST, 2, 1,
                                 [](PlanBuilder& plan, uint32_t) { plan.step().own(Buffer::kInput, 0).to_output(0); });
  EXPECT_EQ(refusal(reads), "rank 1 step 0: reads the input, which only the root, rank 0, has");
  const auto writes = write_plans(TUTTI_REDUCE, 2, 1, [](PlanBuilder& plan, uint32_t rank) {
    plan.step().own(Buffer::kInput, 0).to_output(0).send(1 - rank);
    plan.step().recv(1 - rank).own(Buffer::kInput, 0).final().to_output(0);
  });
  EXPECT_THAT(refusal(writes), HasSubstr("writes the output, which only the root, rank 0, has"));
}

TEST(VerifyRefuses, InputOverwrittenInPlace) {
  const auto plans = write_plans(TUTTI_ALL_REDUCE, 2, 1, [](PlanBuilder& plan, uint32_t rank) {
    plan.step().own(Buffer::kInput, 0).send(1 - rank);
    plan.step().recv(1 - rank).to_output(0);
    plan.step().own(Buffer::kOutput, 0).send(1 - rank);
    plan.step().recv(1 - rank);
    if (rank == 0) {
      plan.step().own(Buffer::kInput, 0).send(1);
      plan.step().recv(1).own(Buffer::kInput, 0).final().to_output(0);
    } else {
      plan.step().own(Buffer::kInput, 0).send(0);
      plan.step().recv(0).own(Buffer::kInput, 0).final().to_output(0);
    }
  });
  EXPECT_EQ(refusal(plans), "");
  EXPECT_THAT(refusal(plans, {.in_place = true}), HasSubstr("reads input chunk 0 after step 1 has overwritten it"));
}

TEST(VerifyRefuses, OverlapInOneStep) {
  const auto plans = write_plans(TUTTI_ALL_GATHER, 2, 1, [](PlanBuilder& plan, uint32_t rank) {
    plan.step().own(Buffer::kInput, 0).to_output(rank).send(1 - rank).gather(1 - rank, rank);
  });
  EXPECT_EQ(refusal(plans), "rank 0 step 0: writes output chunk 0 twice");
}

TEST(VerifyRefuses, SetsThatDoNotBelongTogether) {
  auto plans = samples({3}, false)[0].plans;
  std::swap(plans[0], plans[1]);
  EXPECT_EQ(refusal(plans), "plan 0: rank is 1, expected 0");
  plans.pop_back();
  EXPECT_EQ(refusal(plans), "plan 0: rank_count is 3, expected 2");
  EXPECT_EQ(verify({}).code(), Code::kInvalidArgument);
}

TEST(VerifyRefuses, AllToAllInPlace) {
  for (const Sample& sample : samples({4}, false)) {
    if (can_run_in_place(sample.plans[0])) continue;
    EXPECT_EQ(verify(sample.plans, {.in_place = true}).code(), Code::kUnsupported);
  }
}

TEST(VerifyCache, ProvesEachSetOnce) {
  program::VerifyCache cache;
  std::vector<Sample> distinct;
  for (const Sample& sample : samples({2, 3, 4}, true)) {
    const auto known = [&](const Sample& other) { return other.plans == sample.plans; };
    if (std::none_of(distinct.begin(), distinct.end(), known)) distinct.push_back(sample);
    EXPECT_TRUE(cache.verify(sample.plans).ok()) << sample.name;
    EXPECT_EQ(cache.size(), distinct.size()) << sample.name;
  }
  EXPECT_TRUE(cache.verify(distinct[0].plans, {.slots = 8}).ok());
  EXPECT_EQ(cache.size(), distinct.size() + 1) << "options count";
  std::swap(distinct[0].plans[0], distinct[0].plans[1]);
  EXPECT_FALSE(cache.verify(distinct[0].plans).ok());
  EXPECT_EQ(cache.size(), distinct.size() + 1) << "failures are not remembered";
}

TEST(VerifyCache, ProvesChannelsWithEqualPlansOnce) {
  program::VerifyCache cache;
  std::vector<Plan> plans = plans_of("direct two-shot all_reduce", 4);
  EXPECT_TRUE(cache.verify(plans).ok());
  for (Plan& plan : plans) plan.channel = 7;
  EXPECT_TRUE(cache.verify(plans).ok());
  EXPECT_EQ(cache.size(), 1u);
  plans[2].channel = 0;
  EXPECT_FALSE(cache.verify(plans).ok()) << "plans of two channels are no set";
}

// --- Many ranks

TEST(VerifyManyRanks, AcceptsAndRefuses) {
  constexpr uint32_t kRanks = 200;  // no multiple of the size of a word of a set
  for (Sample& sample : samples({kRanks}, false)) {
    const Status right = verify(sample.plans);
    EXPECT_TRUE(right.ok()) << sample.name << ": " << right.to_string();
    Plan& damaged = sample.plans[kRanks - 1];
    if (damaged.steps.empty()) continue;
    damaged.steps.pop_back();
    EXPECT_FALSE(verify(sample.plans).ok()) << sample.name;
  }
}

TEST(VerifyManyRanks, NamesTheRankThatIsMissing) {
  constexpr uint32_t kRanks = 200;
  std::vector<Plan> plans;
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    plans.push_back(write_plan(TUTTI_REDUCE, kRanks, rank, 1, [&](PlanBuilder& plan) {
      if (rank == 150) return;
      PlanBuilder::Step& step = plan.step().own(Buffer::kInput, 0);
      if (rank > 0) {
        step.send(0);
        return;
      }
      step.final().to_output(0);
      for (uint32_t peer = 1; peer < kRanks; ++peer) {
        if (peer != 150) step.recv(peer);
      }
    }));
  }
  EXPECT_EQ(verify(plans).text(), "rank 0 output chunk 0: lacks rank 150, whose input chunk 0 no step reads");
}

// --- Mutations

/// Whether two sets say the same, however they store their peers.
bool same(const std::vector<Plan>& a, const std::vector<Plan>& b) {
  for (size_t rank = 0; rank < a.size(); ++rank) {
    const auto copy = program::copy(a[rank].view());
    if (!copy.ok() || *copy != b[rank]) return false;
  }
  return true;
}

/// Sets of plans with features that the plugins' plans do not use: some are right, some are wrong in one respect only.
std::vector<Sample> handmade() {
  const auto input = Buffer::kInput;
  const auto output = Buffer::kOutput;
  std::vector<Sample> sets;
  sets.push_back({"doubling", write_plans(TUTTI_ALL_REDUCE, 4, 1, [&](PlanBuilder& plan, uint32_t rank) {
                    plan.step().own(input, 0).send(rank ^ 1);
                    plan.step().recv(rank ^ 1).own(input, 0).to_output(0).send(rank ^ 2);
                    plan.step().recv(rank ^ 2).own(output, 0).final().to_output(0);
                  })});
  // Rank 1 adds rank 0's contribution, which it kept, to its own, which rank 0 sent back.
  sets.push_back({"crossed", write_plans(TUTTI_ALL_REDUCE, 2, 1, [&](PlanBuilder& plan, uint32_t rank) {
                    plan.step().own(input, 0).send(1 - rank);
                    if (rank == 0) {
                      plan.step().relay(0).recv(1).send(1);
                      plan.step().recv(1).own(input, 0).final().to_output(0);
                    } else {
                      plan.step().recv(0).to_output(0);
                      plan.step().own(input, 0).send(0);
                      plan.step().recv(0).own(output, 0).final().to_output(0);
                    }
                  })});
  sets.push_back({"own first", write_plans(TUTTI_ALL_REDUCE, 3, 1, [&](PlanBuilder& plan, uint32_t rank) {
                    plan.step().own(input, 0).send((rank + 1) % 3).send((rank + 2) % 3);
                    plan.step().recv((rank + 1) % 3).own(input, 0).to_output(0);
                    plan.step().recv((rank + 2) % 3).own(output, 0).final().to_output(0);
                  })});
  for (const bool early : {false, true}) {
    sets.push_back({"late final", write_plans(TUTTI_ALL_REDUCE, 2, 2, [&](PlanBuilder& plan, uint32_t rank) {
                      for (uint32_t c : {0u, 1u}) {
                        plan.step().own(input, c).send(1 - rank);
                        PlanBuilder::Step& fold = plan.step().recv(1 - rank).own(input, c).to_output(c);
                        if (early && c == 1) fold.final();
                        plan.step().own(output, c).final().to_output(c);
                      }
                    })});
  }
  sets.push_back({"own twice", write_plans(TUTTI_REDUCE, 2, 1, [&](PlanBuilder& plan, uint32_t rank) {
                    if (rank == 1) {
                      plan.step().own(input, 0).send(0);
                      plan.step().recv(0).own(input, 0).send(0);
                    } else {
                      plan.step().recv(1).own(input, 0).send(1);
                      plan.step().recv(1).final().to_output(0);
                    }
                  })});
  sets.push_back({"relay", write_plans(TUTTI_BROADCAST, 3, 2, [&](PlanBuilder& plan, uint32_t rank) {
                    for (uint32_t c : {0u, 1u}) {
                      if (rank == 0) {
                        plan.step().own(input, c).to_output(c).send(1);
                        plan.step().own(output, c).send(1);
                      } else if (rank == 1) {
                        plan.step().recv(0).to_output(c);
                        plan.step().relay(c).recv(0).send(2);
                      } else {
                        plan.step().recv(1).to_output(c);
                      }
                    }
                  })});
  for (const bool touches : {false, true}) {
    sets.push_back({"copy first", write_plans(TUTTI_BROADCAST, 2, 1, [&](PlanBuilder& plan, uint32_t rank) {
                      if (rank == 0 || touches) plan.step().own(input, 0).to_output(0);
                      if (rank == 0) plan.step().own(output, 0).send(1);
                      if (rank == 1) plan.step().recv(0).to_output(0);
                    })});
    sets.push_back({"send unwritten", write_plans(TUTTI_BROADCAST, 2, 1, [&](PlanBuilder& plan, uint32_t rank) {
                      if (rank == 1) plan.step().recv(0).to_output(0);
                      if (rank == 1 && touches) plan.step().own(output, 0).send(0);
                      if (rank == 0 && !touches) plan.step().own(input, 0).to_output(0);
                      if (rank == 0) plan.step().own(input, 0).send(1);
                      if (rank == 0 && touches) plan.step().own(output, 0).send(1);
                      if (rank == 0 && touches) plan.step().recv(1).to_output(0);
                      if (rank == 1 && touches) plan.step().recv(0).to_output(0);
                    })});
  }
  return sets;
}

TEST(VerifyMutations, AgreeWithRunningOnNumbers) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  Mutator mutator(seed);
  const auto made = handmade();
  const auto emitted = samples({1, 2, 3, 4, 5}, true);
  uint32_t right = 0;
  uint32_t wrong = 0;
  for (int i = 0; i < 60000; ++i) {
    const auto& originals = mutator.below(3) == 0 ? made : emitted;
    const Sample& original = originals[mutator.below(originals.size())];
    std::vector<Plan> plans = original.plans;
    for (size_t count = mutator.below(3); count > 0; --count) mutator.mutate(plans);
    if (&originals == &emitted && same(plans, original.plans)) continue;
    const uint32_t slots = std::array{1u, 2u, 8u}[mutator.below(3)];
    const bool in_place = can_run_in_place(plans[0]) && mutator.below(2) == 0;
    const Status verdict = verify(plans, {.slots = slots, .in_place = in_place});
    const std::string outcome = Reference(plans, {slots, in_place}, mutator.seed()).run();
    ASSERT_EQ(verdict.ok(), outcome.empty())
        << original.name << ", slots " << slots << ", in place " << in_place << "\nverifier: " << verdict.to_string()
        << "\nrun on numbers: " << outcome << '\n'
        << listing(plans);
    ++(outcome.empty() ? right : wrong);
  }
  EXPECT_GE(right, 2000u);
  EXPECT_GE(wrong, 10000u);
  RecordProperty("right", static_cast<int>(right));
  RecordProperty("wrong", static_cast<int>(wrong));
}

}  // namespace
}  // namespace tutti::test
