// SPDX-License-Identifier: Apache-2.0
// Plans as the host takes, lists, writes and reads them.
#include "program/plan.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <unistd.h>

#include <cstddef>

#include <filesystem>
#include <fstream>
#include <functional>
#include <random>

#include "program/describe.h"
#include "program/file/file.h"
#include "program/verify/verify.h"
#include "tutti/sdk/plan_builder.h"
#include "unit/plan_support.h"
#include "unit/required.h"

namespace tutti::test {
namespace {

using program::Plan;
using program::PlanFile;
using sdk::Buffer;
using sdk::PlanBuilder;
using testing::HasSubstr;

Result<Plan> build(uint32_t collective, uint32_t ranks, uint32_t chunks,
                   const std::function<void(PlanBuilder&)>& write) {
  const tutti_plan_request request = {sizeof(request), collective, 0, 0, 0, 0};
  PlanBuilder builder(request, ranks, chunks);
  write(builder);
  return program::collect([&](const tutti_plan_sink* sink) { return builder.emit(*sink); });
}

/// The text with which collecting an all-reduce of 4 ranks and 4 chunks is refused.
std::string refusal(const std::function<void(PlanBuilder&)>& write, uint32_t collective = TUTTI_ALL_REDUCE) {
  const auto plan = build(collective, 4, collective == TUTTI_ALL_REDUCE ? 4 : 1, write);
  return std::string(plan.status().text());
}

TEST(PlanBuilder, ReadsLikeThePaper) {
  const auto plan = build(TUTTI_ALL_REDUCE, 4, 4, [](PlanBuilder& ring) {
    ring.step().own(Buffer::kInput, 0).send(1);
    ring.step().recv(3).own(Buffer::kInput, 3).send(1);
    ring.step().recv(3).own(Buffer::kInput, 1).final().to_output(1).send(1);
    ring.step().recv(3).to_output(0).send(1);
    ring.step().recv(3).to_output(2);
  });
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  EXPECT_EQ(plan->peers.size(), 2u) << "equal ranges of peers are stored once";
  EXPECT_EQ(program::to_text(*plan),
            "all_reduce, rank 0 of 4, channel 0, 4 chunk(s) per block\n"
            "    0  send                input[0] -> rank 1\n"
            "    1  recvReduceSend      input[3] + rank 3 -> rank 1\n"
            "    2  recvReduceCopySend  input[1] + rank 3 -> output[1], rank 1   final\n"
            "    3  recvCopySend        rank 3 -> output[0], rank 1\n"
            "    4  recv                rank 3 -> output[2]\n");
}

TEST(PlanBuilder, SortsPeersThatAreFoldedAndKeepsTheOrderOfOthers) {
  const auto fold = build(TUTTI_ALL_REDUCE, 4, 1, [](PlanBuilder& plan) {
    plan.step().recv(3).recv(1).recv(2).own(Buffer::kInput, 0).final().to_output(0);
  });
  ASSERT_TRUE(fold.ok()) << fold.status().to_string();
  EXPECT_EQ(fold->peers[0].rank, 1u);
  const auto gather =
      build(TUTTI_ALL_GATHER, 4, 1, [](PlanBuilder& plan) { plan.step().gather(3, 3).gather(1, 1).gather(2, 2); });
  ASSERT_TRUE(gather.ok()) << gather.status().to_string();
  EXPECT_EQ(gather->peers[0].rank, 3u);
}

TEST(PlanBuilder, TakesTheRootOfCollectivesThatHaveOne) {
  const auto root_of = [](uint32_t collective) {
    tutti_plan_request request{};
    request.struct_size = sizeof request;
    request.collective = collective;
    request.root = 2;
    PlanBuilder builder(request, 3, 1);
    const auto plan = program::collect([&](const tutti_plan_sink* sink) { return builder.emit(*sink); });
    EXPECT_TRUE(plan.ok()) << plan.status().to_string();
    return plan.ok() ? plan->root : ~0u;
  };
  for (const uint32_t rooted : {TUTTI_BROADCAST, TUTTI_REDUCE, TUTTI_GATHER, TUTTI_SCATTER}) {
    EXPECT_EQ(root_of(rooted), 2u) << rooted;
  }
  EXPECT_EQ(root_of(TUTTI_ALL_REDUCE), 0u);
}

TEST(Collect, NamesStepAndField) {
  using Step = PlanBuilder;
  const auto input = Buffer::kInput;
  EXPECT_EQ(refusal([&](Step& p) { p.step().own(input, 4).send(1); }), "step 0: source chunk: 4 is not below 4");
  EXPECT_EQ(refusal([&](Step& p) { p.step().own(input, 0).to_output(9); }),
            "step 0: destination chunk: 9 is not below 4");
  EXPECT_EQ(refusal([&](Step& p) { p.step().own(input, 0).send(4); }), "step 0: send: rank 4 is not below 4");
  EXPECT_EQ(refusal([&](Step& p) { p.step().own(input, 0).send(0); }), "step 0: send: rank 0 is this plan's own rank");
  EXPECT_EQ(refusal([&](Step& p) { p.step().recv(2).recv(2).to_output(0); }),
            "step 0: recv: rank 2 follows rank 2; ranks must ascend");
  EXPECT_EQ(refusal([&](Step& p) { p.step().gather(2, 0).gather(2, 1); }), "step 0: recv: rank 2 stands there twice");
  EXPECT_EQ(refusal([&](Step& p) { p.step().gather(2, 4); }), "step 0: recv: chunk 4 of rank 2 is not below 4");
  EXPECT_EQ(refusal([&](Step& p) { p.step().own(input, 0).scatter(1, 5); }),
            "step 0: send: chunk 5 of rank 1 is not below 4");
  EXPECT_EQ(refusal([&](Step& p) { p.step().send(1); }), "step 0: send: the step has no value to send");
  EXPECT_EQ(refusal([&](Step& p) { p.step().to_output(1); }), "step 0: destination: the step has no value to write");
  EXPECT_EQ(refusal([&](Step& p) { p.step().final(); }), "step 0: final: the step has no value");
  EXPECT_EQ(refusal([&](Step& p) { p.step().own(input, 0).to_output(1); }),
            "step 0: source chunk 0 and destination chunk 1 differ in size (in c % 4)");
  EXPECT_EQ(refusal([&](Step& p) { p.step().own(input, 0).scatter(1, 1).recv(2); }),
            "step 0: recv: a scatter step receives only if it is a gather step too");
  EXPECT_EQ(refusal([&](Step& p) { p.step().own(input, 0).send(1).final().gather(1, 1); }),
            "step 0: final: gather and scatter steps do not reduce");
  EXPECT_EQ(refusal([&](Step& p) { p.step().own(input, 0).to_output(0).final(); }, TUTTI_BROADCAST),
            "step 0: final: this collective does not reduce");
  EXPECT_EQ(refusal([&](Step& p) { p.step().own(input, 0).recv(1).to_output(0); }, TUTTI_BROADCAST),
            "step 0: the step folds 2 values, but this collective does not reduce");
  EXPECT_EQ(refusal([&](Step& p) {
              p.step().own(input, 0).send(1);
              p.step().relay(4).recv(1).send(2);
            }),
            "step 1: source chunk without a source: 4 is not below 4");
}

TEST(Collect, ChecksTheHead) {
  const Plan good = *build(TUTTI_ALL_GATHER, 4, 1, [](PlanBuilder&) {});
  const auto refusal_of = [&](const std::function<void(tutti_plan&)>& change) {
    tutti_plan plan = good.view();
    change(plan);
    return std::string(program::copy(plan).status().text());
  };
  EXPECT_EQ(refusal_of([](tutti_plan&) {}), "");
  EXPECT_EQ(refusal_of([](tutti_plan& p) { p.collective = 99; }), "collective: 99 is not below 9");
  EXPECT_EQ(refusal_of([](tutti_plan& p) { p.rank_count = 0; }), "rank_count: must be at least 1");
  EXPECT_EQ(refusal_of([](tutti_plan& p) { p.rank = 4; }), "rank: 4 is not below 4");
  EXPECT_EQ(refusal_of([](tutti_plan& p) { p.root = 1; }), "root: 1 is not below 1");
  EXPECT_EQ(refusal_of([](tutti_plan& p) { p.chunks = 0; }), "chunks: must be at least 1");
  EXPECT_EQ(refusal_of([](tutti_plan& p) { p.output_blocks = 1; }),
            "output_blocks: all_gather has 4 with 4 ranks, not 1");
  EXPECT_EQ(refusal_of([](tutti_plan& p) { p.step_count = 1; }), "steps: null, but step_count is not 0");
}

TEST(Collect, ReadsNoPeersBeyondTheLast) {
  const Plan good = *build(TUTTI_ALL_GATHER, 4, 1, [](PlanBuilder& plan) { plan.step().gather(3, 3).gather(2, 2); });
  tutti_plan plan = good.view();
  EXPECT_TRUE(program::copy(plan).ok());
  plan.peer_count = 1;
  EXPECT_EQ(std::string(program::copy(plan).status().text()), "step 0: recv: entries 0 to 2 of only 1 peers");
}

TEST(Collect, TakesExactlyOnePlan) {
  const Plan good = *build(TUTTI_ALL_GATHER, 4, 1, [](PlanBuilder&) {});
  const auto outcome = [](const std::function<int32_t(const tutti_plan_sink*)>& emitter) {
    return std::string(program::collect(emitter).status().text());
  };
  const tutti_plan view = good.view();
  EXPECT_EQ(outcome([](const tutti_plan_sink*) { return TUTTI_OK; }), "the algorithm returned without emitting a plan");
  EXPECT_EQ(outcome([](const tutti_plan_sink*) { return TUTTI_UNSUPPORTED; }), "the plugin does not say why (PLG-14)");
  EXPECT_EQ(outcome([&](const tutti_plan_sink* sink) {
              sink->emit(sink->context, &view);
              return sink->emit(sink->context, &view);
            }),
            "the algorithm emitted more than one plan");
  EXPECT_THAT(outcome([](const tutti_plan_sink* sink) { return sink->emit(sink->context, nullptr); }),
              HasSubstr("null"));
}

TEST(Algorithms, EmitTheSamePlanForTheSameRequest) {
  const auto first = samples({1, 2, 5, 8}, false);
  const auto second = samples({1, 2, 5, 8}, false);
  ASSERT_EQ(first.size(), second.size());
  for (size_t i = 0; i < first.size(); ++i) EXPECT_EQ(first[i].plans, second[i].plans) << first[i].name;
}

TEST(Algorithms, CostWhatTheySend) {
  // The cost's `wire` is the data that the busiest rank sends or receives over all kinds of links.
  for (const char* name : {"ring", "direct"}) {
    const Algorithm algorithm(name);
    const auto variants = algorithm.variants();
    Connected connected(algorithm, split(6, 1));
    for (uint32_t variant = 0; variant < variants.size(); ++variant) {
      for (uint32_t collective = 0; collective < TUTTI_COLLECTIVE_COUNT; ++collective) {
        if (!variants[variant].can(collective)) continue;
        uint32_t busiest = 0;
        uint32_t chunks = 1;
        const auto plans = connected.plans(collective, variant);
        for (const Plan& plan : *plans) {
          uint32_t sent = 0;
          uint32_t received = 0;
          for (const tutti_plan_step& step : plan.steps) {
            sent += step.send_count;
            received += step.recv_count;
          }
          busiest = std::max({busiest, sent, received});
          chunks = std::max(plan.input_chunks(), plan.output_chunks());
        }
        const double wire = connected.cost(collective, variant).wire[TUTTI_LINK_P2P];
        EXPECT_NEAR(wire, busiest / static_cast<double>(chunks), wire * 0.07)
            << name << ' ' << variants[variant].name << ' ' << to_string(static_cast<Collective>(collective));
      }
    }
  }
}

TEST(Verify, RefusesPlansOfDifferentRoots) {
  const Algorithm direct("direct");
  Connected connected(direct, split(3, 1));
  const auto of_root = [&](uint32_t root) { return required(connected.plans(TUTTI_BROADCAST, 0, root)); };
  std::vector<Plan> plans = of_root(0);
  ASSERT_TRUE(program::verify(plans).ok());
  plans[2] = of_root(1)[2];
  EXPECT_EQ(std::string(program::verify(plans).text()), "plan 2: root is 1, expected 0");
  plans = of_root(0);
  plans[1].message_chunks = 2;
  EXPECT_EQ(std::string(program::verify(plans).text()), "plan 1: message_chunks is 2, expected 1");
}

// --- Files
// ------------------------------------------------------------------------------------------------------------

TEST(PlanFile, RoundTripsEveryPlan) {
  for (const Sample& sample : samples({1, 2, 3, 4, 7, 16}, false)) {
    const PlanFile file = {"some: algorithm", "a variant", sample.plans};
    for (const std::string& text : {program::to_yaml(file), program::to_json(file)}) {
      const auto back = program::parse_file(text, "plan");
      ASSERT_TRUE(back.ok()) << sample.name << ": " << back.status().to_string() << '\n' << text;
      EXPECT_EQ(*back, file) << sample.name;
    }
  }
}

TEST(PlanFile, RoundTripsRelaysAndOddSteps) {
  const auto plan = build(TUTTI_ALL_REDUCE, 1, 3, [](PlanBuilder& builder) {
    for (uint32_t c = 0; c < 3; ++c) builder.step().own(Buffer::kInput, c).final().to_output(c);
  });
  const PlanFile file = {"copy", "", {*plan}};
  EXPECT_EQ(*program::parse_file(program::to_yaml(file), "plan"), file);
  std::vector<Plan> plans;
  for (uint32_t rank = 0; rank < 3; ++rank) {
    const tutti_plan_request request = {sizeof(request), TUTTI_BROADCAST, rank, 0, 0, 0};
    PlanBuilder builder(request, 3, 2);
    if (rank > 0) builder.step().relay(1).recv(0).send(3 - rank);
    builder.step();
    plans.push_back(*program::collect([&](const tutti_plan_sink* sink) { return builder.emit(*sink); }));
  }
  const PlanFile relays = {"relay", "", plans};
  const auto back = program::parse_file(program::to_json(relays), "plan");
  ASSERT_TRUE(back.ok()) << back.status().to_string();
  EXPECT_EQ(*back, relays);
}

TEST(PlanFile, StatesItsPurpose) {
  PlanFile file = {"ring", "", samples({3}, false)[0].plans};
  EXPECT_THAT(program::to_yaml(file), testing::StartsWith("version: 1\n"));
  file.purpose = {512, 3 << 20, {DataType::kFloat16, DataType::kInt8}};
  EXPECT_THAT(program::to_yaml(file), HasSubstr("version: 2\n"));
  EXPECT_THAT(program::to_yaml(file), HasSubstr("min_size: 512B\nmax_size: 3MiB\ndata_types: [float16, int8]\n"));
  for (const std::string& text : {program::to_yaml(file), program::to_json(file)}) {
    const auto back = program::parse_file(text, "plan");
    ASSERT_TRUE(back.ok()) << back.status().to_string() << '\n' << text;
    EXPECT_EQ(back->purpose, file.purpose);
    EXPECT_EQ(*back, file);
    EXPECT_EQ(program::digest(*back), program::digest(file));
  }
  PlanFile other = file;
  other.purpose.min_size = 513;
  EXPECT_FALSE(other == file);
  EXPECT_NE(program::digest(other), program::digest(file));
}

TEST(PlanFile, IsWrittenByTheNameOfTheFile) {
  const PlanFile file = {"ring", "", samples({3}, false)[0].plans};
  for (const char* name : {"tutti_plan_test.yaml", "tutti_plan_test.json"}) {
    const auto path = std::filesystem::temp_directory_path() / fmt::format("{}_{}", getpid(), name);
    ASSERT_TRUE(program::write_file(file, path).ok());
    std::ifstream stream(path);
    EXPECT_EQ(stream.get() == '{', path.extension() == ".json");
    const auto back = program::read_file(path);
    std::filesystem::remove(path);
    ASSERT_TRUE(back.ok()) << back.status().to_string();
    EXPECT_EQ(*back, file);
  }
  EXPECT_EQ(program::read_file("/nowhere/plan.yaml").status().code(), Code::kNotFound);
  EXPECT_EQ(program::write_file(file, "/nowhere/plan.yaml").code(), Code::kSystem);
}

constexpr const char* kBroadcast = R"(version: 1
collective: broadcast
algorithm: chain
ranks: 2
root: 0
channel: 0
chunks: 1
plans:
  - rank: 0
    steps:
      - {own: input 0, to: output 0, send: [1]}
  - rank: 1
    steps:
      - {recv: [0], to: output 0}
)";

/// How the broadcast above is refused with `from` replaced by `to`.
std::string refusal_with(const std::string& from, const std::string& to) {
  std::string text = kBroadcast;
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  text.replace(at, from.size(), to);
  return std::string(program::parse_file(text, "p.yaml").status().text());
}

TEST(PlanFile, RefusesByPlaceAndReason) {
  EXPECT_EQ(refusal_with("chain", "chain"), "");
  EXPECT_EQ(refusal_with("version: 1", "version: 2"), "");
  EXPECT_EQ(refusal_with("version: 1", "version: 3"), "p.yaml:1:10: 'version' is 3; allowed: 1 to 2");
  EXPECT_EQ(refusal_with("root: 0", "min_size: 8"), "p.yaml:5:11: 'min_size' needs 'version: 2'");
  EXPECT_EQ(refusal_with("root: 0", "data_types: [int8]"), "p.yaml:5:13: 'data_types' needs 'version: 2'");
  EXPECT_EQ(refusal_with("version: 1", "version: 2\nmin_size: 8\nmax_size: 4"),
            "p.yaml:2:11: 'min_size' is larger than 'max_size'");
  EXPECT_THAT(refusal_with("version: 1", "version: 2\nmin_size: few"), HasSubstr("p.yaml:2:11: 'min_size': "));
  EXPECT_THAT(refusal_with("version: 1", "version: 2\ndata_types: [int9]"),
              HasSubstr("p.yaml:2:14: unknown data type 'int9'; allowed: int8, "));
  EXPECT_EQ(refusal_with("version: 1", "version: 2\ndata_types: [int8, int8]"),
            "p.yaml:2:20: 'data_types' names int8 twice");
  EXPECT_EQ(refusal_with("version: 1", "version: 2\ndata_types: []"),
            "p.yaml:2:13: 'data_types' is empty; leave the key out for all types");
  EXPECT_THAT(refusal_with("version: 1\n", ""), HasSubstr("a plan file lacks the key 'version'"));
  EXPECT_THAT(refusal_with("root: 0", "rot: 0"), HasSubstr("p.yaml:5:1: unknown key 'rot'; allowed in a plan file: v"));
  EXPECT_THAT(refusal_with("root: 0", "ranks: 2"), HasSubstr("p.yaml:5:1: key 'ranks' stands there twice"));
  EXPECT_THAT(refusal_with("broadcast", "shout"), HasSubstr("p.yaml:2:13: unknown collective 'shout'; allowed: all_r"));
  EXPECT_EQ(refusal_with("broadcast", "all_reduce"), "p.yaml:5:7: 'root': all_reduce has no root");
  EXPECT_EQ(refusal_with("root: 0", "root: 2"), "p.yaml:5:7: 'root' is 2; allowed: 0 to 1");
  EXPECT_EQ(refusal_with("chunks: 1", "chunks: one"), "p.yaml:7:9: 'chunks' must be a whole number from 1 to 4194304");
  EXPECT_EQ(refusal_with("chunks: 1", "chunks: '1'"), "p.yaml:7:9: 'chunks' must be a whole number from 1 to 4194304");
  EXPECT_EQ(refusal_with("chunks: 1", "chunks: 99999999999999999999"),
            "p.yaml:7:9: 'chunks' is 99999999999999999999; allowed: 1 to 4194304");
  EXPECT_EQ(refusal_with("ranks: 2", "ranks: 3"), "p.yaml:9:3: 'plans' holds 2 plans for 3 ranks");
  EXPECT_THAT(refusal_with("rank: 1", "rank: 0"),
              HasSubstr("p.yaml:12:11: the plan of rank 0 stands where rank 1's is due"));
  EXPECT_EQ(refusal_with("[1]", "1"), "p.yaml:11:44: 'send' must be a list");
  EXPECT_EQ(refusal_with("[1]", "[2]"), "p.yaml:11:9: step 0: send: rank 2 is not below 2");
  EXPECT_EQ(refusal_with("input 0", "input"),
            "p.yaml:11:15: 'own' must be 'input' or 'output' and a chunk, for example 'input 3'");
  EXPECT_EQ(refusal_with("to: output 0", "to: input 0"), "p.yaml:11:28: 'to' must be an output chunk");
  EXPECT_EQ(refusal_with("input 0", "input 1"), "p.yaml:11:9: step 0: source chunk: 1 is not below 1");
  EXPECT_EQ(refusal_with("recv: [0]", "recv: [0], gather: []"), "p.yaml:14:16: 'recv' stands beside 'gather'");
  EXPECT_EQ(refusal_with("send: [1]", "final: yes"), "p.yaml:11:45: 'final' must be true or false");
  EXPECT_EQ(refusal_with("send: [1]", "final: true"), "p.yaml:11:9: step 0: final: this collective does not reduce");
  EXPECT_THAT(refusal_with("plans:", "plans: ["), HasSubstr("p.yaml:"));
  EXPECT_EQ(refusal_with("chain", "ch\xc2\xc2in"), "p.yaml:3:12: 'algorithm' must be printable ASCII text");
  EXPECT_THAT(refusal_with(kBroadcast, ""), HasSubstr("a plan file must be a map"));
}

constexpr const char* kLists = R"(version: 2
collective: all_gather
algorithm: lists
ranks: 2
chunks: 2
scratch: 4
plans:
  - rank: 0
    steps:
      - {own: input 0, to: scratch 2, chunks: 2, send: [1]}
      - {recv: [1], to: output 2, chunks: 2}
      - {own: scratch 2, to: output 0, chunks: 2}
  - rank: 1
    steps:
      - {own: input 0, chunks: 2, send: [0]}
      - {own: input 0, chunks: 2, gather: [{rank: 0, chunk: 0}], to: output 2}
)";

std::string refusal_of_lists(const std::string& from, const std::string& to) {
  std::string text = kLists;
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  text.replace(at, from.size(), to);
  const auto file = program::parse_file(text, "p");
  return std::string(file.ok() ? program::verify_file(*file, "p").text() : file.status().text());
}

TEST(PlanFile, HasScratchAndLists) {
  const PlanFile file = *program::parse_file(kLists, "p");
  EXPECT_EQ(file.plans[1].message_chunks, 2u);
  EXPECT_EQ(program::to_text(file.plans[0]),
            "all_gather, rank 0 of 2, channel 0, 2 chunk(s) per block, 4 scratch chunk(s), up to 2 chunks per message\n"
            "    0  copySend            input[0-1] -> scratch[2-3], rank 1\n"
            "    1  recv                rank 1 -> output[2-3]\n"
            "    2  copy                scratch[2-3] -> output[0-1]\n");
  EXPECT_TRUE(program::verify_file(file, "p").ok()) << program::verify_file(file, "p").to_string();
  // Rank 1 sends its chunks in the other order, so rank 0 takes the lengths of other chunks.
  EXPECT_EQ(refusal_of_lists("own: input 0, chunks: 2, send", "own: input 1, chunks: 2, send"),
            "p:11: rank 0 step 1: takes what rank 1 sent in its step 0 as chunk 0 of a block, but it was chunk 1");
}

TEST(PlanFile, RefusesWrongLists) {
  EXPECT_EQ(
      refusal_of_lists("to: output 2, chunks: 2}\n      - {own: scratch 2", "to: output 2}\n      - {own: scratch 2"),
      "p:11: rank 0 step 1: takes 1 chunk(s) in a message from rank 1, which sent 2 in its step 0");
  EXPECT_EQ(refusal_of_lists("own: scratch 2", "own: scratch 0"),
            "p:12: rank 0 step 2: reads scratch chunk 0 before it is written");
  EXPECT_EQ(refusal_of_lists("chunk: 0}]", "chunk: 1}]"), "p:16: rank 1 step 1: writes output chunk 2 twice");
  EXPECT_EQ(refusal_of_lists("chunks: 2, send", "chunks: 5, send"),
            "p:10:9: step 0: source: 5 chunks from 0 by 1 name chunk 0 twice");
  EXPECT_EQ(refusal_of_lists("chunks: 2, send", "chunks: 2, own_stride: 2, send"),
            "p:10:9: step 0: source stride: 2 is not below 2");
  EXPECT_EQ(refusal_of_lists("to: scratch 2", "to: scratch 1"),
            "p:10:9: step 0: source chunk 0 and destination chunk 1 differ in size (in c % 2)");
  EXPECT_EQ(refusal_of_lists("to: scratch 2", "to: scratch 4"), "p:10:9: step 0: destination chunk: 4 is not below 4");
  EXPECT_EQ(refusal_of_lists("scratch: 4", "scratch: 4\nmessage_chunks: 1"),
            "p:11:9: step 0: chunks: 2 are more than message_chunks, which is 1");
  EXPECT_EQ(refusal_of_lists("version: 2", "version: 1"), "p:6:10: 'scratch' needs 'version: 2'");
  EXPECT_EQ(refusal_of_lists("own: scratch 2, to: output 0", "own: output 2, to: output 3"),
            "p:12:9: step 2: source chunk 2 and destination chunk 3 differ in size (in c % 2)");
}

TEST(PlanFile, RefusesListsThatOverlap) {
  std::string text = kLists;
  text.replace(text.find("- {own: scratch 2, to: output 0, chunks: 2}"), 43,
               "- {own: scratch 2, to: output 0, chunks: 2}\n      - {own: output 0, to: output 2, chunks: 4}");
  EXPECT_EQ(program::verify_file(*program::parse_file(text, "p"), "p").text(),
            "p:13: rank 0 step 3: reads output chunk 2 as chunk 2 of its list, and writes it as chunk 0");
}

TEST(PlanBuilder, TakesPlansOfVersion1) {
  const Plan good = *build(TUTTI_ALL_GATHER, 4, 1, [](PlanBuilder&) {});
  tutti_plan view = good.view();
  view.struct_size = offsetof(tutti_plan, scratch_chunks);
  view.scratch_chunks = view.message_chunks = ~0u;  // what a plugin of version 1 does not set
  view.ranges = reinterpret_cast<const tutti_plan_range*>(1);
  const auto plan = program::collect([&](const tutti_plan_sink* sink) { return sink->emit(sink->context, &view); });
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  EXPECT_EQ(*plan, good);
}

TEST(PlanFile, IsProvedWithThePlaceOfTheStep) {
  std::string text = kBroadcast;
  const PlanFile right = *program::parse_file(text, "p.yaml");
  EXPECT_TRUE(program::verify_file(right, "p.yaml").ok());
  text.replace(text.find("recv: [0], to: output 0"), 23, "recv: [0]");
  EXPECT_EQ(program::verify_file(*program::parse_file(text, "p.yaml"), "p.yaml").text(),
            "p.yaml: rank 1 output chunk 0: is never written");
  text.replace(text.find("recv: [0]"), 9, "own: output 0, send: [0]");
  EXPECT_EQ(program::verify_file(*program::parse_file(text, "p.yaml"), "p.yaml").text(),
            "p.yaml:14: rank 1 step 0: reads output chunk 0 before it is written");
  text.replace(text.find("own: output 0, send: [0]"), 24, "recv: [0], to: output 0}\n      - {recv: [0]");
  EXPECT_EQ(program::verify_file(*program::parse_file(text, "p.yaml"), "p.yaml").text(),
            "p.yaml:15: deadlock: rank 1 waits at step 1 for a message from rank 0; rank 0 has ended");
}

TEST(PlanFile, SurvivesDamage) {
  const PlanFile file = {"direct", "one-shot", samples({3}, false).back().plans};
  uint32_t read = 0;
  for (const std::string& text : {program::to_yaml(file), program::to_json(file), std::string(kBroadcast)}) {
    std::mt19937_64 random(20240911);  // the same on every run
    for (int i = 0; i < 4000; ++i) {
      std::string damaged = text;
      for (uint64_t count = 1 + random() % 4; count > 0 && !damaged.empty(); --count) {
        const size_t at = random() % damaged.size();
        switch (random() % 4) {
          case 0:
            damaged[at] = static_cast<char>(random());
            break;
          case 1:
            damaged.erase(at, 1 + random() % 8);
            break;
          case 2:
            damaged.insert(at, damaged.substr(random() % damaged.size(), random() % 16));
            break;
          default:
            damaged[at] = "[]{}:,-&*!|>'\"%@#0123456789 \n\t"[random() % 31];
        }
      }
      const auto outcome = program::parse_file(damaged, "p");
      if (outcome.ok()) ++read;
      if (!outcome.ok()) {
        EXPECT_THAT(std::string(outcome.status().text()), testing::StartsWith("p:"));
      }
    }
  }
  EXPECT_GT(read, 0u) << "some damage is harmless";
  const std::string deep(100000, '[');
  EXPECT_FALSE(program::parse_file(deep, "p").ok());
}

}  // namespace
}  // namespace tutti::test
