// SPDX-License-Identifier: Apache-2.0
// The barriers of a kernel's threads: a step has one if it touches memory that different threads touched, and no other
// step has one. In folding steps, a place of a chunk always belongs to the same thread; in exchanges (GATHER, SCATTER)
// any thread may touch it. Also the steps that run after all earlier steps, for any threads.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <functional>

#include "program/lower.h"
#include "tutti/sdk/plan_builder.h"
#include "unit/plan_support.h"

namespace tutti::test {
namespace {

using program::Plan;
using sdk::Buffer;
using sdk::PlanBuilder;
using testing::ElementsAre;

constexpr auto kInput = Buffer::kInput;
constexpr auto kOutput = Buffer::kOutput;

/// Which steps of a plan have a flag.
std::vector<size_t> flagged(const Plan& plan, bool in_place, uint32_t flag = TUTTI_CUDA_STEP_MEET) {
  const auto program = program::lower(plan, in_place);
  EXPECT_TRUE(program.ok()) << program.status().to_string();
  std::vector<size_t> result;
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    if ((program->steps[i].flags & flag) != 0) result.push_back(i);
  }
  return result;
}

std::vector<size_t> meetings(uint32_t collective, uint32_t rank, uint32_t chunks, bool in_place,
                             const std::function<void(PlanBuilder&)>& write, uint32_t flag = TUTTI_CUDA_STEP_MEET) {
  const tutti_plan_request request = {sizeof(request), collective, rank, 0, 0, 0};
  PlanBuilder builder(request, 3, chunks);
  write(builder);
  const auto plan = program::collect([&](const tutti_plan_sink* sink) { return builder.emit(*sink); });
  EXPECT_TRUE(plan.ok()) << plan.status().to_string();
  return flagged(*plan, in_place, flag);
}

TEST(Meet, NotBetweenFolds) {
  const auto folds = [](PlanBuilder& plan) {
    plan.step().own(kInput, 0).to_output(0).send(1);
    plan.step().recv(1).own(kOutput, 0).to_output(0);
    plan.step().own(kOutput, 0).send(2);
    plan.step().recv(2).final().to_output(0);
  };
  EXPECT_THAT(meetings(TUTTI_ALL_REDUCE, 0, 1, false, folds), ElementsAre());
  EXPECT_THAT(meetings(TUTTI_ALL_REDUCE, 0, 1, true, folds), ElementsAre());
  EXPECT_THAT(meetings(TUTTI_ALL_REDUCE, 0, 1, false, folds, TUTTI_CUDA_STEP_AFTER), ElementsAre(1, 2, 3));
}

TEST(Meet, NotWhereAllRead) {
  const auto reads = [](PlanBuilder& plan) {
    plan.step().own(kInput, 0).send(1);
    plan.step().own(kInput, 0).scatter(1, 0).scatter(2, 0);
    plan.step().own(kInput, 0).send(2);
  };
  EXPECT_THAT(meetings(TUTTI_ALL_REDUCE, 0, 1, true, reads), ElementsAre());
}

TEST(Meet, WhereAFoldWroteWhatAnExchangeReads) {
  const auto steps = [](PlanBuilder& plan) {
    plan.step().recv(1).to_output(1);
    plan.step().own(kOutput, 0).scatter(2, 0);
    plan.step().own(kOutput, 0).scatter(2, 1);
  };
  EXPECT_THAT(meetings(TUTTI_BROADCAST, 0, 2, false, steps), ElementsAre(2));
}

TEST(Meet, WhereAnExchangeWroteWhatAFoldTouches) {
  const auto reads = [](PlanBuilder& plan) {
    plan.step().gather(1, 1);
    plan.step().own(kOutput, 0).send(2);
    plan.step().own(kOutput, 1).send(2);
  };
  EXPECT_THAT(meetings(TUTTI_BROADCAST, 0, 2, false, reads), ElementsAre(2));
  const auto writes = [](PlanBuilder& plan) {
    plan.step().own(kOutput, 0).scatter(1, 1);
    plan.step().recv(2).to_output(0);
    plan.step().recv(2).to_output(1);
  };
  EXPECT_THAT(meetings(TUTTI_BROADCAST, 0, 2, false, writes), ElementsAre(2));
}

TEST(Meet, BetweenExchanges) {
  const auto steps = [](PlanBuilder& plan) {
    plan.step().gather(1, 0).gather(2, 1);
    plan.step().own(kOutput, 0).scatter(1, 0);
  };
  EXPECT_THAT(meetings(TUTTI_BROADCAST, 0, 2, false, steps), ElementsAre(1));
}

TEST(Meet, OnceForAllBefore) {
  const auto steps = [](PlanBuilder& plan) {
    plan.step().gather(1, 0).gather(2, 1);
    plan.step().own(kOutput, 0).send(1);
    plan.step().own(kOutput, 1).send(1);  // written before threads met
    plan.step().gather(1, 0);             // read since
    plan.step().own(kOutput, 0).send(2);
  };
  EXPECT_THAT(meetings(TUTTI_BROADCAST, 0, 2, false, steps), ElementsAre(1, 3, 4));
}

TEST(Meet, AnExchangeThatCopies) {
  const auto steps = [](PlanBuilder& plan) {
    plan.step().own(kInput, 0).to_output(0).gather(1, 1);
    plan.step().own(kOutput, 0).send(2);
  };
  EXPECT_THAT(meetings(TUTTI_ALL_GATHER, 0, 1, false, steps), ElementsAre(1));
  EXPECT_THAT(meetings(TUTTI_ALL_GATHER, 0, 1, true, steps), ElementsAre()) << "onto itself: it does not copy";
}

/// The two shots of an all-reduce. Rank 0's first step names no chunk of its own.
TEST(Meet, TwoShots) {
  const auto steps = [](PlanBuilder& plan) {
    plan.step().own(kInput, 0).scatter(1, 1).scatter(2, 2);
    plan.step().recv(1).recv(2).own(kInput, 0).final().to_output(0).send(1).send(2);
    plan.step().gather(1, 1).gather(2, 2);
  };
  EXPECT_THAT(meetings(TUTTI_ALL_REDUCE, 0, 3, false, steps), ElementsAre());
  EXPECT_THAT(meetings(TUTTI_ALL_REDUCE, 0, 3, true, steps), ElementsAre(2)) << "outputs lie where inputs were read";
}

TEST(Meet, WhereBuffersOverlapInPlace) {
  const auto gather = [](PlanBuilder& plan) {
    plan.step().own(kInput, 1).send(2);
    plan.step().gather(0, 0 + 1).gather(2, 4 + 1);
    plan.step().gather(0, 2 + 0);
    plan.step().gather(0, 2 + 1);  // the input's second chunk
  };
  EXPECT_THAT(meetings(TUTTI_ALL_GATHER, 1, 2, false, gather), ElementsAre());
  EXPECT_THAT(meetings(TUTTI_ALL_GATHER, 1, 2, true, gather), ElementsAre(3));
  const auto scatter = [](PlanBuilder& plan) {
    plan.step().own(kInput, 0).scatter(0, 0 + 1).scatter(2, 2 + 1);
    plan.step().recv(0).own(kInput, 0 + 1).to_output(1);  // the output is the input's second block
    plan.step().recv(0).own(kInput, 0 + 0).to_output(0);
  };
  EXPECT_THAT(meetings(TUTTI_REDUCE_SCATTER, 1, 2, false, scatter), ElementsAre());
  EXPECT_THAT(meetings(TUTTI_REDUCE_SCATTER, 1, 2, true, scatter), ElementsAre(1));
}

// --- All plans
// ------------------------------------------------------------------------------------------------------

/// By addresses, in chunks: the chunks that a step reads and writes.
struct Touched {
  bool folds;
  std::vector<uint32_t> reads;
  std::vector<uint32_t> writes;
};

Touched touched(const Plan& plan, const tutti_plan_step& step, bool in_place) {
  const uint32_t own = plan.rank * plan.chunks;
  const uint32_t input_at = !in_place ? plan.output_chunks() : plan.input_blocks < plan.output_blocks ? own : 0;
  const uint32_t output_at = in_place && plan.output_blocks < plan.input_blocks ? own : 0;
  const bool scatters = (step.flags & TUTTI_STEP_SCATTER) != 0;
  const bool gathers = (step.flags & TUTTI_STEP_GATHER) != 0;
  const uint32_t source_at = step.source == TUTTI_BUFFER_INPUT ? input_at : output_at;
  Touched touched{!scatters && !gathers, {}, {}};
  const uint32_t from = source_at + step.source_chunk;
  const uint32_t to = output_at + step.destination_chunk;
  const bool reads = step.source != TUTTI_BUFFER_NONE;
  const bool writes = step.destination != TUTTI_BUFFER_NONE && (touched.folds || !reads || from != to);
  if (writes) touched.writes.push_back(to);
  if (reads && (writes || touched.folds || (!scatters && step.send_count > 0))) touched.reads.push_back(from);
  for (const tutti_plan_peer& peer : plan.send(step)) {
    if (scatters) touched.reads.push_back(source_at + peer.chunk);
  }
  for (const tutti_plan_peer& peer : plan.recv(step)) {
    if (gathers) touched.writes.push_back(output_at + peer.chunk);
  }
  return touched;
}

bool conflict(const Touched& a, const Touched& b, bool folds_too) {
  if (a.folds && b.folds && !folds_too) return false;
  const auto common = [](const std::vector<uint32_t>& some, const std::vector<uint32_t>& others) {
    return std::find_first_of(some.begin(), some.end(), others.begin(), others.end()) != some.end();
  };
  return common(a.writes, b.writes) || common(a.writes, b.reads) || common(a.reads, b.writes);
}

/// The steps that need a flag if all that have one are a border.
std::vector<size_t> needed(const Plan& plan, bool in_place, bool folds_too) {
  std::vector<size_t> steps;
  std::vector<Touched> since;
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    const Touched now = touched(plan, plan.steps[i], in_place);
    const auto conflicts = [&](const Touched& one) { return conflict(one, now, folds_too); };
    if (std::any_of(since.begin(), since.end(), conflicts)) {
      steps.push_back(i);
      since.clear();
    }
    since.push_back(now);
  }
  return steps;
}

TEST(Meet, InAllPlansWhereNeededAndNowhereElse) {
  size_t count = 0;
  for (const Sample& sample : samples({1, 2, 3, 4, 5, 8, 16}, false)) {
    for (const Plan& plan : sample.plans) {
      for (const bool in_place : {false, true}) {
        if (in_place && plan.collective == Collective::kAllToAll) continue;
        if (!program::lower(plan, in_place).ok()) continue;
        SCOPED_TRACE(fmt::format("{}, rank {}, in place {}", sample.name, plan.rank, in_place));
        const auto meet = flagged(plan, in_place, TUTTI_CUDA_STEP_MEET);
        EXPECT_EQ(meet, needed(plan, in_place, false));
        EXPECT_EQ(flagged(plan, in_place, TUTTI_CUDA_STEP_AFTER), needed(plan, in_place, true));
        count += meet.size();
      }
    }
  }
  EXPECT_GT(count, 0u);
}

}  // namespace
}  // namespace tutti::test
