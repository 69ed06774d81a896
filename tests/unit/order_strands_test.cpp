// SPDX-License-Identifier: Apache-2.0
// The pass order_strands: the list of steps keeps the waits, deadlocks for no reason of its own, and is not slow.
#include "program/passes/order_strands.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>

#include "program/describe.h"
#include "program/in_one_strand.h"
#include "program/repeat.h"
#include "program/verify/prove.h"
#include "unit/plan_support.h"
#include "unit/required.h"

namespace tutti::test {
namespace {

using program::Plan;
using sdk::Buffer;
using sdk::PlanBuilder;
using testing::ElementsAre;
using testing::HasSubstr;

/// The list of a rank as the steps of its plan with strands.
std::vector<uint32_t> list_of(const std::vector<Plan>& plans, uint32_t rank) {
  return required(program::in_one_strand(plans)).numbers[rank];
}

TEST(OrderStrands, SendsBeforeTheReceiveThatNeedsIt) {
  const auto plans = write_plans(TUTTI_SEND_RECV, 2, 1, [](PlanBuilder& plan, uint32_t rank) {
    plan.step().recv(1 - rank).to_output(0);
    plan.strand();
    plan.step().own(Buffer::kInput, 0).send(1 - rank);
  });
  EXPECT_THAT(list_of(plans, 0), ElementsAre(1, 0));
  EXPECT_THAT(list_of(plans, 1), ElementsAre(1, 0));
  EXPECT_TRUE(program::verify(plans).ok());
}

/// Two rings in opposite directions take turns.
TEST(OrderStrands, TakesTurns) {
  const auto plans = write_plans(TUTTI_SEND_RECV, 4, 1, [](PlanBuilder& plan, uint32_t rank) {
    for (const uint32_t distance : {1u, 3u}) {
      plan.strand();
      plan.step().own(Buffer::kInput, 0).send((rank + distance) % 4);
      plan.step().relay(0).recv((rank + 4 - distance) % 4).send((rank + distance) % 4);
      plan.step().recv((rank + 4 - distance) % 4);
    }
  });
  for (uint32_t rank = 0; rank < 4; ++rank) EXPECT_THAT(list_of(plans, rank), ElementsAre(0, 3, 1, 4, 2, 5));
}

TEST(OrderStrands, KeepsWaits) {
  const auto plans = write_plans(TUTTI_SEND_RECV, 1, 1, [](PlanBuilder& plan, uint32_t) {
    plan.step().own(Buffer::kInput, 0).after(3);
    plan.step().own(Buffer::kInput, 0);
    plan.strand();
    plan.step().own(Buffer::kInput, 0);
    plan.step().own(Buffer::kInput, 0).after(4);
    plan.strand();
    plan.step().own(Buffer::kInput, 0);
  });
  EXPECT_THAT(list_of(plans, 0), ElementsAre(2, 4, 3, 0, 1));
}

/// A chain of ranks: while results travel back, a rank goes on to reduce the next chunks. The list of the first strand
/// and then the second would send no result before all chunks are reduced.
TEST(OrderStrands, KeepsAPipelineFilled) {
  const auto plans = write_plans(TUTTI_ALL_REDUCE, 3, 6, [](PlanBuilder& plan, uint32_t rank) {
    for (uint32_t c = 0; c < 6; ++c) {
      PlanBuilder::Step& step = plan.step().own(Buffer::kInput, c);
      if (rank < 2) step.recv(rank + 1);
      if (rank > 0) step.send(rank - 1);
      if (rank == 0) step.final().to_output(c);
    }
    plan.strand();
    for (uint32_t c = 0; c < 6; ++c) {
      PlanBuilder::Step& step = plan.step().after(c);
      if (rank == 0) step.own(Buffer::kOutput, c);
      if (rank > 0) step.recv(rank - 1).to_output(c);
      if (rank < 2) step.send(rank + 1);
    }
  });
  EXPECT_TRUE(program::verify(plans).ok());
  EXPECT_TRUE(program::verify(plans, {.slots = 2, .in_place = true}).ok());
  // Chunk 0 is back at rank 1 four units of time after rank 1 has sent it, and rank 1 has reduced chunks 1 and 2.
  const auto list = list_of(plans, 1);
  EXPECT_EQ(std::find(list.begin(), list.end(), 6u) - list.begin(), 2) << testing::PrintToString(list);
  for (uint32_t c = 1; c < 5; ++c) {
    const auto result = std::find(list.begin(), list.end(), 6 + c) - list.begin();
    const auto next = std::find(list.begin(), list.end(), c + 1) - list.begin();
    EXPECT_LT(next, result) << testing::PrintToString(list);
  }
}

/// The message of rank 0's gather step goes around all ranks, through the second strand of rank 0, and back to the
/// step.
TEST(OrderStrands, DividesAStepThatAnotherStrandMustInterrupt) {
  const auto made = write_plans(TUTTI_SEND_RECV, 3, 1, [](PlanBuilder& plan, uint32_t rank) {
    plan.scratch(2);
    if (rank == 0) {
      plan.step().own(Buffer::kInput, 0).send(1).gather(1, 0).gather_to_scratch();
      plan.strand();
      plan.step().recv(2).to_scratch(1).send(2);
    } else if (rank == 1) {
      plan.step().relay(0).recv(0).send(2);
      plan.step().relay(0).recv(2).send(0);
    } else {
      plan.step().relay(0).recv(1).send(0);
      plan.step().relay(0).recv(0).send(1);
    }
  });
  const auto set = required(program::in_one_strand(made));
  EXPECT_THAT(set.numbers[0], ElementsAre(0, 1, 0));
  const Plan& zero = set.plans[0];
  EXPECT_TRUE(program::validate(zero.view()).ok());
  EXPECT_EQ(program::step_text(zero, zero.steps[0]), "input[0] -> rank 1");
  EXPECT_EQ(program::step_text(zero, zero.steps[2]), "rank 1 -> scratch[0]");
  EXPECT_TRUE(program::verify(made).ok()) << program::verify(made).to_string();
}

TEST(OrderStrands, JoinsTheHalvesOfAStep) {
  const auto plans = write_plans(TUTTI_ALL_GATHER, 3, 1, [](PlanBuilder& plan, uint32_t rank) {
    for (const uint32_t distance : {1u, 2u}) {
      const uint32_t peer = (rank + distance) % 3;
      plan.strand();
      plan.step().own(Buffer::kInput, 0).send(peer).gather(peer, peer);
    }
    plan.strand();
    plan.step().own(Buffer::kInput, 0).to_output(rank);
  });
  const auto set = required(program::in_one_strand(plans));
  for (const Plan& plan : set.plans) EXPECT_LE(plan.steps.size(), 5u);
  EXPECT_TRUE(program::verify(plans).ok());
  EXPECT_TRUE(program::verify(plans, {.slots = 1, .in_place = true}).ok());
}

TEST(OrderStrands, ListsOfChunksKeepTheirStrides) {
  const auto plans = write_plans(TUTTI_ALL_TO_ALL, 2, 4, [](PlanBuilder& plan, uint32_t rank) {
    const uint32_t peer = 1 - rank;
    plan.message_chunks(2);
    plan.step()
        .own(Buffer::kInput, rank * 4)
        .to_output(rank * 4)
        .chunks(2)
        .scatter(peer, peer * 4)
        .gather(peer, peer * 4);
    plan.strand();
    plan.step().own(Buffer::kInput, rank * 4 + 2).to_output(rank * 4 + 2).chunks(2);
  });
  const auto orders = required(program::order_strands(plans));
  ASSERT_EQ(orders[0].parts.size(), 3u) << "the copy is done while the step waits for its message";
  const auto one = required(program::in_order(plans[0], orders[0]));
  ASSERT_EQ(one.plan.ranges.size(), 3u);
  EXPECT_EQ(one.plan.ranges[0].source_stride, 1u);
  EXPECT_EQ(one.plan.ranges[0].destination_stride, 1u);
  EXPECT_EQ(one.plan.ranges[2].source_stride, 0u);
  EXPECT_EQ(one.plan.ranges[2].destination_stride, 1u);
  EXPECT_THAT(one.numbers, ElementsAre(0, 1, 0));
}

TEST(OrderStrands, AHalfThatOnlySendsHasNoStrideToWrite) {
  const auto plans = write_plans(TUTTI_ALL_GATHER, 2, 2, [](PlanBuilder& plan, uint32_t rank) {
    const uint32_t peer = 1 - rank;
    plan.message_chunks(2);
    plan.step().own(Buffer::kInput, 0).send(peer).gather(peer, peer * 2).chunks(2);
    plan.strand();
    plan.step().own(Buffer::kInput, 0).to_output(rank * 2).chunks(2);
  });
  const auto set = required(program::in_one_strand(plans));
  EXPECT_THAT(set.numbers[0], ElementsAre(0, 1, 0));
  EXPECT_TRUE(program::verify(plans).ok()) << program::verify(plans).to_string();
}

TEST(OrderStrands, NamesADeadlock) {
  const auto plans = write_plans(TUTTI_SEND_RECV, 2, 1, [](PlanBuilder& plan, uint32_t rank) {
    plan.step().recv(1 - rank);
    plan.strand();
    plan.step().own(Buffer::kInput, 0).send(1 - rank).after(0);
  });
  std::optional<program::StepPlace> place;
  EXPECT_EQ(
      program::order_strands(plans, &place).status().text(),
      "deadlock: rank 0 waits at step 0 for a message from rank 1; rank 1 waits at step 1 for step 0; rank 1 waits "
      "at step 0 for a message from rank 0; rank 0 waits at step 1 for step 0");
  ASSERT_TRUE(place);
  EXPECT_EQ(place->rank, 0u);
  EXPECT_EQ(place->step, 0u);
  EXPECT_EQ(program::order_strands_of_rotation(plans[0]).status().text(),
            "deadlock: rank 0 waits at step 0 for a message from rank 1; so do all ranks");
}

TEST(OrderStrands, NamesAMessageThatNoRankSends) {
  auto plans = write_plans(TUTTI_SEND_RECV, 2, 1, [](PlanBuilder& plan, uint32_t rank) {
    if (rank == 0) plan.step().recv(1);
    plan.strand();
    plan.step().own(Buffer::kInput, 0);
  });
  EXPECT_EQ(program::order_strands(plans).status().text(),
            "deadlock: rank 0 waits at step 0 for a message from rank 1; rank 1 sends no more");
}

/// A strand sends five messages before the other strand receives one.
TEST(OrderStrands, TakesAsManySlotsAsNeeded) {
  const auto plans = write_plans(TUTTI_SEND_RECV, 2, 1, [](PlanBuilder& plan, uint32_t rank) {
    for (uint32_t i = 0; i < 5; ++i) plan.step().own(Buffer::kInput, 0).send(1 - rank);
    plan.strand();
    for (uint32_t i = 0; i < 5; ++i) {
      PlanBuilder::Step& step = plan.step().recv(1 - rank);
      if (i == 0) step.after(4);
    }
  });
  EXPECT_TRUE(program::verify(plans, {.slots = 8}).ok());
  EXPECT_EQ(
      program::verify(plans, {.slots = 4}).text(),
      "with 4 slot(s): deadlock: rank 0 waits at step 4 for a slot to rank 1; rank 1 waits at step 4 for a slot to "
      "rank 0");
}

/// What all ranks do alike, rank 0 alone tells.
TEST(OrderStrands, ARotationGivesTheSameOrder) {
  const uint32_t ranks = 7;
  const auto plans = write_plans(TUTTI_ALL_GATHER, ranks, 2, [&](PlanBuilder& plan, uint32_t rank) {
    for (uint32_t strand = 0; strand < 2; ++strand) {
      const uint32_t next = (rank + (strand == 0 ? 1 : ranks - 1)) % ranks;
      const uint32_t previous = (rank + (strand == 0 ? ranks - 1 : 1)) % ranks;
      plan.strand();
      plan.step().own(Buffer::kInput, strand).to_output(rank * 2 + strand).send(next);
      const uint32_t first = plan.step_count();
      plan.step().recv(previous).to_output(previous * 2 + strand).send(next).grow({.to = strand == 0 ? -2 : 2});
      plan.repeat(first, ranks - 2);
      plan.step().recv(previous).to_output(next * 2 + strand);
    }
  });
  std::vector<Plan> written_out;
  for (const Plan& plan : plans) written_out.push_back(required(program::unroll(plan)));
  const auto exact = required(program::order_strands(written_out));
  const auto rotated = required(program::order_strands_of_rotation(written_out[0]));
  for (const auto& order : exact) {
    ASSERT_EQ(order.parts.size(), rotated.parts.size());
    for (size_t i = 0; i < order.parts.size(); ++i) {
      EXPECT_EQ(order.parts[i].step, rotated.parts[i].step);
      EXPECT_EQ(order.parts[i].time, rotated.parts[i].time);
    }
  }
  const auto source = program::source_of(plans);
  const program::ProofLimits small = {0, 0, 1u << 16};  // too small for an exact proof
  EXPECT_EQ(program::prove(ranks, source, {}, small).how, "by rotation");
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    EXPECT_EQ(required(program::in_one_strand(ranks, source, rank)),
              required(program::in_one_strand(ranks, source, rank, small)));
  }
}

/// Ranks that do not ascend along the ring.
TEST(OrderStrands, ARingInAnyOrderGivesTheSameOrder) {
  const std::vector<uint32_t> ring = {0, 1, 3, 2, 4};
  const auto plans = write_plans(TUTTI_ALL_GATHER, 5, 1, [&](PlanBuilder& plan, uint32_t rank) {
    const auto at = static_cast<uint32_t>(std::find(ring.begin(), ring.end(), rank) - ring.begin());
    const auto behind = [&](uint32_t distance) { return ring[(at + 5 - distance) % 5]; };
    plan.step().own(Buffer::kInput, 0).send(behind(4));
    for (uint32_t i = 1; i < 4; ++i) plan.step().recv(behind(1)).to_output(behind(i)).send(behind(4));
    plan.step().recv(behind(1)).to_output(behind(4));
    plan.strand();
    plan.step().own(Buffer::kInput, 0).to_output(rank);
  });
  const auto source = program::source_of(plans);
  const program::ProofLimits small = {0, 0, 1u << 16};
  EXPECT_EQ(program::prove(5, source, {}, small).how, "by rotation along a ring");
  EXPECT_EQ(program::prove(5, source, {}).how, "exactly");
  for (uint32_t rank = 0; rank < 5; ++rank) {
    EXPECT_EQ(required(program::in_one_strand(5, source, rank)),
              required(program::in_one_strand(5, source, rank, small)));
  }
}

/// The plans of all ranks together are those that each rank gets, for a number of questions that grows with the ranks.
TEST(OrderStrands, AsksForTheOrderOfAllRanksOnce) {
  const auto questions = [](uint32_t ranks, const program::ProofLimits& limits) {
    const auto plans = write_plans(TUTTI_ALL_GATHER, ranks, 1, [&](PlanBuilder& plan, uint32_t rank) {
      plan.step().own(Buffer::kInput, 0).send((rank + 1) % ranks);
      plan.step().recv((rank + ranks - 1) % ranks).to_output((rank + ranks - 1) % ranks);
      plan.strand();
      plan.step().own(Buffer::kInput, 0).to_output(rank);
    });
    uint32_t asked = 0;
    const program::PlanSource source = [&](uint32_t rank) -> Result<Plan> {
      ++asked;
      return plans[rank];
    };
    const auto all = required(program::all_in_one_strand(ranks, source, limits));
    const uint32_t of_all = asked;
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      EXPECT_EQ(all[rank], required(program::in_one_strand(ranks, source, rank, limits))) << ranks << " ranks";
    }
    return of_all;
  };
  EXPECT_LE(questions(8, {}), 5u * 8);
  EXPECT_LE(questions(32, {}), 5u * 32);
  const program::ProofLimits small = {0, 0, 1u << 16};
  EXPECT_LE(questions(32, small), 5u * 32) << "by rotation";
}

TEST(OrderStrands, RefusesPlansThatAreTooLarge) {
  const auto plans = write_plans(TUTTI_SEND_RECV, 3, 1, [](PlanBuilder& plan, uint32_t rank) {
    if (rank == 2) return;
    plan.step().recv(1 - rank);
    plan.strand();
    plan.step().own(Buffer::kInput, 0).send(1 - rank);
  });
  const auto source = program::source_of(plans);
  EXPECT_TRUE(program::in_one_strand(3, source, 0).ok());
  const auto refused = program::in_one_strand(3, source, 0, {1, 1, 1u << 16});
  EXPECT_EQ(refused.status().code(), Code::kUnsupported);
  EXPECT_THAT(
      refused.status().text(),
      HasSubstr("the strands cannot be put in order: an exact proof handles up to 1 sends and receives "
                "of all ranks, and there are more; rank 1 step 0: the list of its senders is not that of rank 0"));
  EXPECT_TRUE(program::in_one_strand(3, source, 2, {1, 1, 1}).ok()) << "a plan without strands";
}

}  // namespace
}  // namespace tutti::test
