// SPDX-License-Identifier: Apache-2.0
// Which messages may go straight to registered outputs, and where to.
#include "program/passes/direct_store.h"

#include <gmock/gmock.h>

#include "backend/cuda/launch_builder.h"
#include "program/lower.h"
#include "unit/plan_support.h"
#include "unit/program_calls.h"

namespace tutti::test {
namespace {

using program::Plan;
using sdk::Buffer;
using sdk::PlanBuilder;
using testing::ElementsAre;

const tutti_slot_layout kLayout = layout_of(16, 4096, 8, 1);

std::vector<program::Program> mark(const std::vector<Plan>& plans) {
  auto programs = backend::lower_channels({plans}, false, true, kLayout);
  EXPECT_TRUE(programs.ok()) << programs.status().to_string();
  return programs.ok() ? programs->front() : std::vector<program::Program>();
}

/// By step: how many of its messages are marked.
std::vector<int> marked(const program::Program& program, bool sent) {
  std::vector<int> counts;
  for (const tutti_program_step& step : program.steps) {
    int& count = counts.emplace_back(0);
    for (const tutti_program_peer& peer : sent ? program.send(step) : program.recv(step)) count += peer.to_output != 0;
  }
  return counts;
}

TEST(ToOutputs, RanksThatWaitForEachOtherAreAnError) {
  std::vector<Plan> plans;
  for (uint32_t rank = 0; rank < 3; ++rank) {
    plans.push_back(write_plan(TUTTI_ALL_REDUCE, 3, rank, 1, [&](PlanBuilder& plan) {
      plan.step().recv((rank + 2) % 3).to_output(0);
      plan.step().own(Buffer::kInput, 0).send((rank + 1) % 3);
    }));
  }
  const auto programs = backend::lower_channels({plans}, false, true, kLayout);
  ASSERT_FALSE(programs.ok());
  EXPECT_EQ(programs.status().code(), Code::kInvalidArgument);
  EXPECT_THAT(std::string(programs.status().text()),
              testing::HasSubstr("deadlock: rank 0 waits for a message that rank 2 sends after this wait"));
}

TEST(ToOutputs, TheSecondOfTwoShots) {
  for (const auto& program : mark(plans_of("direct two-shot all_reduce", 4))) {
    EXPECT_THAT(marked(program, true), ElementsAre(0, 3, 0));
    EXPECT_THAT(marked(program, false), ElementsAre(0, 0, 3));
    const tutti_program_step& fold = program.steps[1];
    for (const tutti_program_peer& to : program.send(fold)) {
      EXPECT_EQ(to.output_block, fold.destination_block);
      EXPECT_EQ(to.output_chunk, fold.destination_chunk) << "where the receiver would put it";
    }
  }
}

TEST(ToOutputs, BlocksThatAreSentElsewhere) {
  const auto programs = mark(plans_of("direct shifted all_to_all", 3));
  for (uint32_t rank = 0; rank < programs.size(); ++rank) {
    const program::Program& program = programs[rank];
    for (const tutti_program_step& step : program.steps) {
      for (const tutti_program_peer& to : program.send(step)) {
        EXPECT_EQ(to.to_output, 1u);
        EXPECT_EQ(to.block, to.rank);
        EXPECT_EQ(to.output_block, rank);
      }
    }
  }
}

/// Every message that its receiver only puts down, of all plans there are: none of them needs its place before.
TEST(ToOutputs, AllThatIsOnlyPutDown) {
  int count = 0;
  for (const Sample& sample : samples({2, 3, 5, 8}, true)) {
    const auto programs = mark(sample.plans);
    if (programs.empty()) continue;
    for (const program::Program& program : programs) {
      const auto counts = marked(program, false);
      for (uint32_t s = 0; s < program.steps.size(); ++s) {
        const tutti_program_step& step = program.steps[s];
        const bool keeps = step.destination == TUTTI_BUFFER_OUTPUT && (step.flags & TUTTI_STEP_FINAL) == 0;
        const bool puts_down =
            program::exchanges(step) || (step.recv_count == 1 && step.source == TUTTI_BUFFER_NONE && keeps);
        EXPECT_EQ(counts[s], puts_down ? static_cast<int>(step.recv_count) : 0) << sample.name << ", step " << s;
        count += counts[s];
      }
    }
  }
  EXPECT_GT(count, 1000);
}

// --- Places that are in use
// ----------------------------------------------------------------------------------------------

/// Rank 1 receives two messages in the same chunk of its output; `answers`: it says in between that it has the first.
std::vector<Plan> twice(bool answers) {
  std::vector<Plan> plans;
  for (const uint32_t rank : {0u, 1u}) {
    plans.push_back(write_plan(TUTTI_BROADCAST, 2, rank, 1, [&](PlanBuilder& plan) {
      if (rank == 0) {
        plan.step().own(Buffer::kInput, 0).send(1);
        if (answers) plan.step().recv(1).to_output(0);
        plan.step().own(Buffer::kInput, 0).send(1);
      } else {
        plan.step().recv(0).to_output(0);
        if (answers) plan.step().own(Buffer::kOutput, 0).send(0);
        plan.step().recv(0).to_output(0);
      }
    }));
  }
  return plans;
}

TEST(ToOutputs, NotWhileItsReceiverUsesThePlace) {
  const auto programs = mark(twice(false));
  EXPECT_THAT(marked(programs[0], true), ElementsAre(1, 0)) << "nothing tells rank 0 that the first was put down";
  EXPECT_THAT(marked(programs[1], false), ElementsAre(1, 0));
}

TEST(ToOutputs, OnceItsReceiverIsThroughWithThePlace) {
  const auto programs = mark(twice(true));
  EXPECT_THAT(marked(programs[0], true), ElementsAre(1, 0, 1));
  EXPECT_THAT(marked(programs[0], false), ElementsAre(0, 1, 0)) << "the answer tells that its input was sent";
}

/// In place, rank 1 still has to send the data that rank 0's message would overwrite.
TEST(ToOutputs, NotBeforeTheInputThereWasRead) {
  for (const bool waits : {false, true}) {
    std::vector<Plan> plans;
    for (const uint32_t rank : {0u, 1u}) {
      plans.push_back(write_plan(TUTTI_ALL_REDUCE, 2, rank, 1, [&](PlanBuilder& plan) {
        if (rank == 1) plan.step().own(Buffer::kInput, 0).send(0);
        if (rank == 1) return static_cast<void>(plan.step().recv(0).to_output(0));
        if (!waits) plan.step().own(Buffer::kInput, 0).send(1);
        plan.step().recv(1).own(Buffer::kInput, 0).final().to_output(0);
        if (waits) plan.step().own(Buffer::kOutput, 0).send(1);
      }));
    }
    const auto programs = mark(plans);
    EXPECT_THAT(marked(programs[1], false), ElementsAre(0, waits ? 1 : 0));
  }
}

/// If a block has data for one chunk only, messages of the second chunk are empty, and signal nothing.
TEST(ToOutputs, NotForWordOfALaterChunk) {
  std::vector<Plan> plans;
  for (const uint32_t rank : {0u, 1u, 2u}) {
    plans.push_back(write_plan(TUTTI_ALL_REDUCE, 3, rank, 2, [&](PlanBuilder& plan) {
      if (rank == 1) {
        plan.step().own(Buffer::kInput, 0).send(0);
        plan.step().own(Buffer::kInput, 0).send(2);
        plan.step().own(Buffer::kInput, 1).send(0);
        plan.step().recv(0).to_output(0);
        plan.step().recv(0).to_output(1);
      } else if (rank == 0) {
        for (const uint32_t chunk : {0u, 1u}) plan.step().recv(1).own(Buffer::kInput, chunk).final().to_output(chunk);
        for (const uint32_t chunk : {0u, 1u}) plan.step().own(Buffer::kOutput, chunk).send(1);
      } else {
        plan.step().recv(1).own(Buffer::kInput, 0).final().to_output(0);
      }
    }));
  }
  const auto programs = mark(plans);
  EXPECT_THAT(marked(programs[1], false), ElementsAre(0, 0, 0, 0, 1)) << "that rank 1 has sent its chunk 0 to rank 2";
}

/// A signal that reaches a rank through a different rank counts, too.
TEST(ToOutputs, WordTravels) {
  std::vector<Plan> plans;
  for (const uint32_t rank : {0u, 1u, 2u}) {
    plans.push_back(write_plan(TUTTI_ALL_REDUCE, 3, rank, 1, [&](PlanBuilder& plan) {
      if (rank == 2) plan.step().own(Buffer::kInput, 0).send(1);
      if (rank == 1) plan.step().recv(2).own(Buffer::kInput, 0).send(0);
      if (rank == 0) plan.step().recv(1).own(Buffer::kInput, 0).final().to_output(0).send(1).send(2);
      if (rank != 0) plan.step().recv(0).to_output(0);
    }));
  }
  const auto programs = mark(plans);
  EXPECT_THAT(marked(programs[0], true), ElementsAre(2));
  EXPECT_THAT(marked(programs[2], false), ElementsAre(0, 1));
}

// --- Peers that need slots
// ----------------------------------------------------------------------------------------------

TEST(ToOutputs, LeaveSlotsToTheOtherMessages) {
  for (const auto& program : mark(plans_of("direct shifted all_to_all", 3))) {
    const program::SlotPeers peers = program::slot_peers(program);
    EXPECT_TRUE(peers.senders.empty()) << "all messages go straight to outputs";
    EXPECT_TRUE(peers.receivers.empty());
  }
  const auto programs = mark(twice(false));
  const std::set<uint32_t> zero = {0};
  const std::set<uint32_t> one = {1};
  EXPECT_EQ(program::slot_peers(programs[0]).receivers, one) << "the second message goes by a slot of rank 1";
  EXPECT_TRUE(program::slot_peers(programs[0]).senders.empty());
  EXPECT_EQ(program::slot_peers(programs[1]).senders, zero);
}

/// A message for the scratch buffer goes through a slot. Its chunk number is none of the output.
TEST(ToOutputs, NoMessageForTheScratchBuffer) {
  const auto plans = write_plans(TUTTI_ALL_TO_ALL, 2, 1, [](PlanBuilder& plan, uint32_t rank) {
    plan.scratch(2);
    PlanBuilder::Step& step = plan.step().own(Buffer::kInput, rank).to_output(rank).scatter(1 - rank, 1 - rank);
    step.gather(1 - rank, 1 - rank).gather_to_scratch();
    plan.step().own(Buffer::kScratch, 1 - rank).to_output(1 - rank);
  });
  for (const program::Program& program : mark(plans)) EXPECT_FALSE(program::uses_outputs(program));
}

}  // namespace
}  // namespace tutti::test
