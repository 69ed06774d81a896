// SPDX-License-Identifier: Apache-2.0
// Launches as calls and programs determine them: operations, threads, programs by channel, connections and copies.
#include "backend/cuda/launch_builder.h"
#include "backend/cuda/large_programs.h"

#include <gmock/gmock.h>

#include <fmt/format.h>
#include <sys/resource.h>

#include <chrono>
#include <cstring>

#include "backend/cuda/link_table.h"
#include "program/verify/verify.h"
#include "tutti/device/cuda/kernel_choice.h"
#include "unit/plan_support.h"
#include "unit/program_calls.h"
#include "unit/required.h"

namespace tutti::test {
namespace {

using backend::Call;
using backend::LaunchShape;

constexpr uint32_t kRanks = 3;
const tutti_slot_layout kLayout = layout_of(8, 4096, 1);

program::Programs lowered(const std::string& name, bool direct_store = false) {
  return required(backend::lower_channels({plans_of(name, kRanks)}, false, direct_store, kLayout));
}

Call call_of(Collective collective, size_t count, ReduceOp op = ReduceOp::kSum) {
  Call call;
  call.collective = collective;
  call.type = DataType::kFloat32;
  call.count = count;
  call.reduction = op;
  return call;
}

LaunchShape shape_of(uint32_t ctas, uint32_t max_threads = 1024) {
  LaunchShape shape;
  shape.ctas = ctas;
  shape.max_threads = max_threads;
  shape.layout = kLayout;
  return shape;
}

tutti_cuda_launch encode(const Call& call, const program::Program& program, const LaunchShape& shape) {
  static uint8_t slots[2][kRanks];
  tutti_cuda_launch launch{};
  launch.rank = 1;
  launch.rank_count = kRanks;
  for (uint32_t peer = 0; peer < kRanks; ++peer) {
    launch.links[peer].to = &slots[0][peer];
    launch.links[peer].from = &slots[1][peer];
  }
  backend::encode_collective(call, program, shape, launch);
  return launch;
}

const tutti_cuda_program& small_of(const program::Program& program) {
  static tutti_cuda_program small;
  return small = backend::small_programs({&program, 1}).front();
}

TEST(LaunchBuilder, EncodesTheCallAndItsProgram) {
  const program::Programs programs = lowered("direct two-shot all_reduce");
  const tutti_cuda_launch launch = encode(call_of(Collective::kAllReduce, 9000), programs[0][1], shape_of(4));
  EXPECT_EQ(launch.data_type, TUTTI_FLOAT32);
  EXPECT_EQ(launch.reduce_op, TUTTI_SUM);
  EXPECT_EQ(launch.block_bytes, 36000u);
  EXPECT_EQ(launch.cta_count, 4u);
  EXPECT_EQ(launch.program_count, 1u);
  EXPECT_EQ(launch.programs, nullptr);
  EXPECT_EQ(std::memcmp(&launch.program, &small_of(programs[0][1]), sizeof launch.program), 0);
  const tutti_cuda_cut cut = program::cut(36000, 4, programs[0][1], kLayout);
  EXPECT_EQ(std::memcmp(&launch.cut, &cut, sizeof cut), 0);
  EXPECT_EQ(launch.one_hop.send_count + launch.one_hop.recv_count, 0) << "two-shot has two hops";
}

TEST(LaunchBuilder, EncodesOperationsOfReductionsOnly) {
  const program::Program reduces = lowered("direct one-shot all_reduce")[0][1];
  const program::Program copies = lowered("direct one-shot all_gather")[0][1];
  const auto with = [&](ReduceOp op) { return encode(call_of(Collective::kAllReduce, 8, op), reduces, shape_of(1)); };
  EXPECT_EQ(with(ReduceOp::kMax).reduce_op, TUTTI_MAX);
  EXPECT_EQ(with(ReduceOp::kMax).divisor, 0u);
  EXPECT_EQ(with(ReduceOp::kMax).premultiplied, 0u);
  EXPECT_EQ(with(ReduceOp::kAvg).divisor, kRanks);
  EXPECT_EQ(with(ReduceOp::kAvg).premultiplied, 0u);
  EXPECT_EQ(with(ReduceOp::kPreMulSum).premultiplied, 1u);
  EXPECT_EQ(with(ReduceOp::kPreMulSum).divisor, 0u);
  for (const ReduceOp op : {ReduceOp::kAvg, ReduceOp::kPreMulSum, ReduceOp::kMax}) {
    const tutti_cuda_launch launch = encode(call_of(Collective::kAllGather, 8, op), copies, shape_of(1));
    EXPECT_EQ(launch.reduce_op, TUTTI_SUM);
    EXPECT_EQ(launch.divisor, 0u);
    EXPECT_EQ(launch.premultiplied, 0u);
  }
}

TEST(LaunchBuilder, TakesThreadsForTheBytesOfAllMessagesOfAStep) {
  const program::Program gathers = lowered("direct one-shot all_gather")[0][1];
  const auto threads = [&](size_t floats, uint32_t most) {
    return encode(call_of(Collective::kAllGather, floats, ReduceOp::kSum), gathers, shape_of(1, most)).thread_count;
  };
  EXPECT_EQ(threads(1, 1024), 64u) << "the fewest";
  EXPECT_EQ(threads(128, 1024), 128u) << "512 bytes, 8 by thread, to two peers";
  EXPECT_EQ(threads(1 << 20, 1024), 1024u);
  EXPECT_EQ(threads(1 << 20, 96), 96u);
  EXPECT_EQ(threads(1, 32), 32u);
}

TEST(LaunchBuilder, PutsOneHopOnConnectedSlots) {
  const program::Program program = lowered("direct one-shot all_gather")[0][1];
  const tutti_cuda_launch launch = encode(call_of(Collective::kAllGather, 4), program, shape_of(1));
  ASSERT_EQ(launch.one_hop.send_count, 2);
  for (uint32_t i = 0; i < 2; ++i) {
    EXPECT_EQ(launch.one_hop.sends[i].slots, launch.links[launch.one_hop.send_ranks[i]].to);
    EXPECT_EQ(launch.one_hop.receives[i].slots, launch.links[launch.one_hop.recv_ranks[i]].from);
  }
}

/// Programs in the large form, with links that are all different.
struct LargeForm {
  std::vector<tutti_cuda_link> row;  // by rank
  std::vector<uint64_t> block;

  const tutti_cuda_large_program& at(size_t i) const {
    return reinterpret_cast<const tutti_cuda_large_program*>(block.data())[i];
  }
};
LargeForm in_large_form(std::span<const program::Program> programs, uint32_t rank, uint32_t rank_count) {
  static uint8_t slots[TUTTI_CUDA_MAX_CONNECTIONS * 4];
  LargeForm form;
  form.row.resize(rank_count);
  for (uint32_t peer = 0; peer < rank_count; ++peer) form.row[peer].to = &slots[peer];
  const backend::LargePrograms large(programs, rank, rank_count);
  form.block.resize(large.bytes() / sizeof(uint64_t));
  const std::vector<std::byte> block = large.encode(form.block.data(), form.row, form.row.data());
  std::memcpy(form.block.data(), block.data(), block.size());
  return form;
}

TEST(PlanCollector, KeepsTheFirstOfEqualChannels) {
  const auto channel_of = [](std::vector<program::Plan> plans, uint32_t channel) {
    for (program::Plan& plan : plans) plan.channel = channel;
    return plans;
  };
  const auto one = plans_of("ring  all_gather", kRanks);
  auto other = one;
  std::swap(other[1].steps.front(), other[1].steps.back());
  const auto collect = [&](const std::vector<std::vector<program::Plan>>& channels) {
    backend::PlanCollector collector;
    for (uint32_t channel = 0; channel < channels.size(); ++channel)
      collector.add(channel_of(channels[channel], channel));
    return collector.take();
  };
  EXPECT_EQ(collect({one, one, one}), backend::ChannelPlans({channel_of(one, 0)}));
  const backend::ChannelPlans late = {channel_of(one, 0), channel_of(one, 1), channel_of(other, 2), channel_of(one, 3)};
  EXPECT_EQ(collect({one, one, other, one}), late);
  EXPECT_EQ(collect({other, one}), backend::ChannelPlans({channel_of(other, 0), channel_of(one, 1)}));
}

/// CTAs of strands are counted by channel.
TEST(PlanCollector, KeepsAllChannelsWithStrands) {
  auto plans = plans_of("ring  all_gather", kRanks);
  plans[2].strands = {{}, {}};
  backend::PlanCollector collector;
  for (int channel = 0; channel < 2; ++channel) collector.add(plans);
  EXPECT_EQ(collector.take(), backend::ChannelPlans({plans, plans}));
}

TEST(LaunchBuilder, KeepsOneProgramOfEqualChannels) {
  const auto one = plans_of("ring  all_gather", kRanks);
  const auto equal = required(backend::lower_channels({one, one, one}, false, false, kLayout));
  EXPECT_EQ(backend::programs_of_rank(equal, 2).size(), 1u);
  auto two = one;
  std::swap(two[1].steps.front(), two[1].steps.back());
  const auto different = required(backend::lower_channels({one, two}, false, false, kLayout));
  const std::vector<program::Program> own = backend::programs_of_rank(different, 1);
  ASSERT_EQ(own.size(), 2u);
  const auto blocks_of = [](const program::Program& program) {
    std::vector<std::pair<uint32_t, uint32_t>> blocks;  // blocks of the source and of the destination, by step
    for (const auto& step : program.steps) blocks.emplace_back(step.source_block, step.destination_block);
    return blocks;
  };
  EXPECT_EQ(blocks_of(own[1]), blocks_of(different[1][1]));
  EXPECT_NE(blocks_of(own[1]), blocks_of(own[0]));
  EXPECT_EQ(backend::programs_of_rank(different, 0).size(), 1u) << "rank 0 has equal programs";
  LaunchShape shape = shape_of(2);
  shape.program_count = 2;
  const std::vector<tutti_cuda_program> small = backend::small_programs(own);
  shape.programs = small.data();
  EXPECT_EQ(encode(call_of(Collective::kAllGather, 4), own[0], shape).programs, small.data());
  shape.program_count = 1;
  EXPECT_EQ(encode(call_of(Collective::kAllGather, 4), own[0], shape).programs, nullptr);
}

/// A program with so many steps and peers, all different.
program::Program large_program(uint32_t steps, uint32_t peers) {
  program::Program program;
  program.steps.resize(steps);
  program.peers.resize(peers);
  program.chunks = 2;
  program.messages = 3;
  program.stages = 4;
  program.lag = 1;
  for (uint32_t i = 0; i < steps; ++i) program.steps[i].source_chunk = i + 1;
  for (uint32_t i = 0; i < peers; ++i) program.peers[i].message = i + 1;
  return program;
}

TEST(LaunchBuilder, TakesTheSmallFormUpToItsLimits) {
  const program::Program largest = large_program(TUTTI_CUDA_SMALL_STEPS, TUTTI_CUDA_SMALL_PEERS);
  EXPECT_FALSE(backend::is_large(TUTTI_CUDA_SMALL_RANKS, {&largest, 1}));
  EXPECT_TRUE(backend::is_large(TUTTI_CUDA_SMALL_RANKS + 1, {&largest, 1}));
  EXPECT_TRUE(backend::is_large(TUTTI_CUDA_SMALL_RANKS + 1, {}));
  for (const auto& program :
       {large_program(TUTTI_CUDA_SMALL_STEPS + 1, 1), large_program(1, TUTTI_CUDA_SMALL_PEERS + 1)}) {
    const std::vector<program::Program> both = {largest, program};
    EXPECT_TRUE(backend::is_large(2, both)) << "the program of one channel suffices";
  }
  program::Program with_scratch = large_program(1, 1);
  with_scratch.scratch_chunks = 1;
  EXPECT_TRUE(backend::is_large(2, {&with_scratch, 1}));
  const tutti_cuda_program small = small_of(largest);
  EXPECT_EQ(small.step_count, TUTTI_CUDA_SMALL_STEPS);
  EXPECT_EQ(small.peer_count, TUTTI_CUDA_SMALL_PEERS);
  EXPECT_EQ(small.chunks, 2);
  EXPECT_EQ(small.messages, 3);
  EXPECT_EQ(small.stages, 4);
  EXPECT_EQ(small.lag, 1);
  for (uint32_t i = 0; i < TUTTI_CUDA_SMALL_STEPS; ++i) EXPECT_EQ(small.steps[i].source_chunk, i + 1);
  for (uint32_t i = 0; i < TUTTI_CUDA_SMALL_PEERS; ++i) EXPECT_EQ(small.peers[i].message, i + 1);
}

/// A program whose numbers are all different, and in `numbers` in the order of the fields.
program::Program numbered_program() {
  program::Program program;
  program.chunks = 100;
  program.messages = 101;
  program.stages = 102;
  program.lag = 103;
  program.scratch_chunks = 250;
  program.strand_count = 7;
  program.steps.resize(2);
  program.steps[1] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14};
  program.peers.resize(3);
  program.peers[2] = {1, 2, 3, 4, 5, 6, 7, 8};
  return program;
}

/// Checks the counts, the last step and the last peer of numbered_program().
template <class Packed>
void expect_numbered(const Packed& packed) {
  EXPECT_EQ(packed.step_count, 2);
  EXPECT_EQ(packed.chunks, 100);
  EXPECT_EQ(packed.messages, 101);
  EXPECT_EQ(packed.peer_count, 3);
  EXPECT_EQ(packed.stages, 102);
  EXPECT_EQ(packed.lag, 103);
  const auto& step = packed.steps[1];
  EXPECT_THAT(
      (std::array<uint32_t, 14>{step.source, step.destination, step.flags, step.own_position, step.source_block,
                                step.source_chunk, step.destination_block, step.destination_chunk, step.recv_begin,
                                step.recv_count, step.send_begin, step.send_count, step.stage, step.recv_stage}),
      testing::ElementsAre(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14));
  const auto& peer = packed.peers[2];
  EXPECT_THAT((std::array<uint32_t, 8>{peer.rank, peer.message, peer.block, peer.chunk, peer.lag, peer.to_output,
                                       peer.output_block, peer.output_chunk}),
              testing::ElementsAre(1, 2, 3, 4, 5, 6, 7, 8));
}

TEST(LaunchBuilder, PacksEveryNumberOfAProgram) {
  const program::Program program = numbered_program();
  static_assert(sizeof(tutti_cuda_step) == 14 && sizeof(tutti_cuda_peer) == 8);
  expect_numbered(backend::small_programs({&program, 1}).front());
  const LargeForm large = in_large_form({&program, 1}, 0, kRanks);
  expect_numbered(large.at(0));
  EXPECT_EQ(large.at(0).scratch_blocks, 3) << "the last block has 50 chunks";
  EXPECT_EQ(large.at(0).strand_count, 7);
  EXPECT_EQ(large.at(0).links, large.row.data());
  EXPECT_EQ(large.at(0).ranks, nullptr);
  EXPECT_EQ(large.at(0).connection_count, kRanks);
}

TEST(LaunchBuilder, PacksNumbersOf16BitsInTheLargeForm) {
  program::Program program = numbered_program();
  program.steps[1].source_chunk = 65535;
  program.peers[2].message = 256;
  program.messages = 300;
  EXPECT_TRUE(backend::is_large(2, {&program, 1}));
  const LargeForm large = in_large_form({&program, 1}, 0, kRanks);
  EXPECT_EQ(large.at(0).steps[1].source_chunk, 65535);
  EXPECT_EQ(large.at(0).peers[2].message, 256);
  EXPECT_EQ(large.at(0).messages, 300);
}

/// A program with messages from and to these ranks.
program::Program program_with(std::initializer_list<uint32_t> ranks) {
  program::Program program;
  for (const uint32_t rank : ranks) program.peers.emplace_back().rank = rank;
  return program;
}

TEST(LaunchBuilder, NumbersTheConnectionsOfEachProgramOfManyRanks) {
  const std::vector<program::Program> programs = {program_with({90, 3, 90, 17}), program_with({}), program_with({5})};
  const LargeForm large = in_large_form(programs, 20, TUTTI_CUDA_MAX_CONNECTIONS + 36);
  EXPECT_EQ(large.at(0).connection_count, 3u);
  EXPECT_THAT(std::span(large.at(0).ranks, 4), testing::ElementsAre(3, 17, 90, 20)) << "the own rank is the last";
  for (const uint32_t number : {0u, 1u, 2u}) {
    EXPECT_EQ(large.at(0).links[number].to, large.row[large.at(0).ranks[number]].to);
  }
  const auto number = [&](uint32_t peer) { return large.at(0).peers[peer].rank; };
  EXPECT_THAT((std::array<uint32_t, 4>{number(0), number(1), number(2), number(3)}), testing::ElementsAre(2, 0, 2, 1));
  EXPECT_EQ(large.at(1).connection_count, 0u);
  EXPECT_EQ(large.at(1).ranks[0], 20u);
  EXPECT_THAT(std::span(large.at(2).ranks, 2), testing::ElementsAre(5, 20));
  EXPECT_EQ(large.at(2).links[0].to, large.row[5].to);
  EXPECT_EQ(large.at(2).peers[0].rank, 0);
}

TEST(LaunchBuilder, PointsToTablesInTheLargeForm) {
  const std::vector<program::Program> programs = {lowered("direct one-shot all_gather")[0][1]};
  const LargeForm large = in_large_form(programs, 1, kRanks);
  LaunchShape shape = shape_of(1);
  shape.tables.programs = &large.at(0);
  shape.tables.first = large.at(0);
  shape.tables.links = large.at(0).links;
  const tutti_cuda_launch launch = encode(call_of(Collective::kAllGather, 4), programs[0], shape);
  EXPECT_EQ(launch.tables.links, large.row.data());
  EXPECT_EQ(launch.tables.programs, &large.at(0));
  EXPECT_EQ(launch.tables.first.steps, large.at(0).steps);
  EXPECT_EQ(launch.one_hop.send_count, 0) << "kernels of the large form run programs only";
  EXPECT_EQ(launch.program.step_count, 0);
  const tutti_cuda_launch small = encode(call_of(Collective::kAllGather, 4), programs[0], shape_of(1));
  EXPECT_EQ(small.tables.links, nullptr);
  EXPECT_EQ(std::memcmp(&launch.cut, &small.cut, sizeof launch.cut), 0);
}

TEST(LinkTable, KeepsTheSlotsOfEachSizeOfConnections) {
  EXPECT_EQ(backend::LinkTable::row_of(1), 0u);
  EXPECT_EQ(backend::LinkTable::row_of(2), 1u);
  EXPECT_EQ(backend::LinkTable::row_of(3), 2u);
  EXPECT_EQ(backend::LinkTable::row_of(TUTTI_CUDA_MAX_CTAS), backend::LinkTable::kRows - 1);
  backend::LinkTable table(2);
  static uint8_t slots[3];
  std::vector<tutti_cuda_link> links(2);
  links[1].to = &slots[0];
  EXPECT_TRUE(table.merge(2, links));
  EXPECT_FALSE(table.merge(2, links)) << "known already";
  links[1].to = nullptr;
  links[1].from = &slots[1];
  links[0].to = &slots[2];
  static const tutti_cuda_slots places[1] = {};
  links[1].scattered = places;
  EXPECT_TRUE(table.merge(2, links));
  links[1].scattered = nullptr;
  EXPECT_FALSE(table.merge(2, links));
  EXPECT_EQ(table.row(2)[1].scattered, places) << "stays";
  EXPECT_EQ(table.row(2)[1].to, &slots[0]) << "stays";
  EXPECT_EQ(table.row(2)[1].from, &slots[1]);
  EXPECT_EQ(table.row(2)[0].to, &slots[2]);
  EXPECT_EQ(table.row(1)[1].to, nullptr) << "a row of its own";
  EXPECT_EQ(table.row(2).data(), table.all().data() + 2 * 2);
}

TEST(LaunchBuilder, NeedsSlotsOfThePeersOfAllChannels) {
  const std::vector<program::Program> both = {lowered("direct one-shot all_gather")[0][0],
                                              lowered("ring  all_gather")[0][0]};
  const program::SlotPeers ring = backend::slot_peers(std::span(both).last(1));
  EXPECT_THAT(ring.senders, testing::ElementsAre(2));
  EXPECT_THAT(ring.receivers, testing::ElementsAre(1));
  EXPECT_THAT(backend::slot_peers(both).senders, testing::ElementsAre(1, 2));
  EXPECT_THAT(backend::slot_peers(both).receivers, testing::ElementsAre(1, 2));
  const std::vector<program::Program> stored = {lowered("direct one-shot all_gather", true)[0][0]};
  EXPECT_THAT(backend::slot_peers(stored).receivers, testing::IsEmpty()) << "registered outputs take all data";
  const auto many = required(backend::lower_channels({plans_of("ring  all_gather", 100)}, false, false, kLayout));
  const program::SlotPeers neighbours = program::slot_peers(many[0][98]);
  EXPECT_THAT(neighbours.senders, testing::ElementsAre(97));
  EXPECT_THAT(neighbours.receivers, testing::ElementsAre(99));
}

TEST(LaunchBuilder, HasScratchMemoryForTheLargestProgram) {
  std::vector<program::Program> programs(3);
  EXPECT_EQ(backend::scratch_bytes(programs, 1000), 0u);
  programs[1].scratch_chunks = 200;
  programs[2].scratch_chunks = 3;
  EXPECT_EQ(backend::scratch_bytes(programs, uint64_t{1} << 32), uint64_t{200} << 32);
}

/// Plans of two ranks that exchange blocks of `chunks` chunks, each in one message.
std::vector<program::Plan> exchange_of(uint32_t chunks) {
  return write_plans(TUTTI_ALL_GATHER, 2, chunks, [&](sdk::PlanBuilder& of, uint32_t rank) {
    of.message_chunks(chunks);
    of.step().own(sdk::Buffer::kInput, 0).to_output(rank * chunks).chunks(chunks).send(1 - rank);
    of.step().recv(1 - rank).to_output((1 - rank) * chunks).chunks(chunks);
  });
}

TEST(LaunchBuilder, LeavesPlansWithMessagesOfOneChunk) {
  const backend::ChannelPlans plans = {plans_of("ring  all_gather", kRanks)};
  const backend::KernelPlans fit = required(backend::fit_kernels(plans, layout_of(16, 4096, 8)));
  EXPECT_FALSE(fit.has_changed);
  EXPECT_EQ(fit.plans, plans);
  EXPECT_EQ(fit.layout.chunk_slots, 8u);
  EXPECT_EQ(fit.slots, 8u);
}

TEST(LaunchBuilder, FitsMessagesOfSeveralChunks) {
  struct Expected {
    uint32_t chunks, slot_count, slots, chunk_slots;
  };
  for (const Expected& wanted : {Expected{2, 16, 2, 8}, Expected{4, 16, 4, 4}, Expected{5, 16, 5, 3},
                                 Expected{20, 16, 8, 2}, Expected{20, 4, 2, 2}}) {
    const auto fit = required(backend::fit_kernels({exchange_of(1), exchange_of(wanted.chunks)},
                                                   layout_of(wanted.slot_count, 4096, wanted.slot_count / 2)));
    EXPECT_TRUE(fit.has_changed);
    EXPECT_EQ(fit.slots, wanted.slots);
    EXPECT_EQ(fit.layout.chunk_slots, wanted.chunk_slots);
    EXPECT_EQ(fit.layout.slot_count, wanted.slot_count);
    for (const auto& channel : fit.plans) {
      const Status proof = program::verify(channel, {fit.slots, true});
      EXPECT_TRUE(proof.ok()) << proof.to_string();
    }
    EXPECT_EQ(fit.plans[1][0].steps.size(), 2 * wanted.chunks);
  }
}

TEST(LaunchBuilder, RefusesMessagesForWhichThereAreNoSlots) {
  // The second message needs the memory of the first.
  const auto plans = write_plans(TUTTI_ALL_REDUCE, 2, 3, [](sdk::PlanBuilder& of, uint32_t rank) {
    of.scratch(3).message_chunks(3);
    of.step().own(sdk::Buffer::kInput, 0).to_scratch(0).chunks(3);
    of.step().own(sdk::Buffer::kScratch, 0).chunks(3, 1).send(1 - rank);
    of.step().recv(1 - rank).to_scratch(2);
    of.step().recv(1 - rank).to_scratch(1);
    of.step().recv(1 - rank).to_scratch(0);
  });
  const Status refused = backend::fit_kernels({plans}, layout_of(4, 4096, 2)).status();
  EXPECT_EQ(refused.code(), Code::kUnsupported);
  EXPECT_EQ(refused.text(), "needs more than 2 messages of one chunk under way from rank 0 to rank 1");
  EXPECT_TRUE(backend::fit_kernels({plans}, layout_of(8, 4096, 2)).ok());
}

TEST(LaunchBuilder, EncodesCopies) {
  const auto plans = plans_of("direct one-shot all_gather", kRanks);
  const auto copies = required(program::copies(plans, 1, false));
  tutti_cuda_launch launch{};
  backend::encode_copies(copies, 100, launch);
  EXPECT_EQ(launch.cta_count, 1u);
  EXPECT_EQ(launch.cut.messages, 1u) << "a launch of copies is one message";
  ASSERT_EQ(launch.copies.count, 2u);
  for (uint32_t i = 0; i < 2; ++i) {
    EXPECT_EQ(launch.copies.list[i].from, 0u);
    EXPECT_EQ(launch.copies.list[i].to, 100u) << "block 1 of every output";
  }
  EXPECT_EQ(launch.copies.senders, 0b101u);
  EXPECT_EQ(launch.copies.receivers, 0b101u);
  EXPECT_EQ(launch.copies.has_own, 1u);
  EXPECT_EQ(launch.copies.own_to, 100u);
  backend::encode_copies(required(program::copies(plans, 1, true)), 100, launch);
  EXPECT_EQ(launch.copies.has_own, 0u) << "in place, the own block lies at its destination";
}

/// The kernel of a launch has the operation of the call. No kernel stands for an unknown operation.
TEST(LaunchBuilder, LaunchesFindTheirKernel) {
  const char kernels[13] = {};
  device::TypeKernels table;
  table.programs = {&kernels[0], &kernels[1], &kernels[2], &kernels[3]};
  table.direct = {&kernels[4], &kernels[5], &kernels[6], &kernels[7]};
  table.messages = &kernels[8];
  const program::Programs ring = lowered("ring  all_reduce");
  const auto kernel_of = [&](const device::TypeKernels& of, ReduceOp op) {
    return device::find_kernel(of, encode(call_of(Collective::kAllReduce, 100, op), ring[0][1], shape_of(1)));
  };
  EXPECT_EQ(kernel_of(table, ReduceOp::kSum), &kernels[0]);
  EXPECT_EQ(kernel_of(table, ReduceOp::kProd), &kernels[1]);
  EXPECT_EQ(kernel_of(table, ReduceOp::kMax), &kernels[2]);
  EXPECT_EQ(kernel_of(table, ReduceOp::kMin), &kernels[3]);
  EXPECT_EQ(kernel_of(table, ReduceOp::kAvg), &kernels[0]);
  EXPECT_EQ(kernel_of(table, ReduceOp::kPreMulSum), &kernels[0]);
  tutti_cuda_launch launch = encode(call_of(Collective::kAllReduce, 100), ring[0][1], shape_of(1));
  launch.one_hop.send_count = 1;
  EXPECT_EQ(device::find_kernel(table, launch), &kernels[4]);
  launch.reduce_op = TUTTI_PREMUL_SUM + 1;
  EXPECT_EQ(device::find_kernel(table, launch), nullptr);
  launch.message_count = 1;
  EXPECT_EQ(device::find_kernel(table, launch), &kernels[8]);
  launch.message_count = 0;
  launch.reduce_op = TUTTI_MAX;
  launch.cta_count = 3;
  EXPECT_EQ(device::ctas_of(launch), 3u);
  table.strands = {&kernels[9], &kernels[10], &kernels[11], &kernels[12]};
  launch.tables.strand_count = 2;
  EXPECT_EQ(device::find_kernel(table, launch), &kernels[11]);
  EXPECT_EQ(device::ctas_of(launch), 6u);
}

/// Prints a table of the time that a rank needs before its first call; see docs/results.md.
TEST(Preparation, DISABLED_TakesTime) {
  const auto seconds = [] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch());
  };
  const Algorithm ring("ring");
  for (const uint32_t ranks : {128u, 256u, 512u, 1024u}) {
    Connected connected(ring, split(ranks, ranks / 8));
    const auto start = seconds();
    const auto plans = required(connected.plans(TUTTI_ALL_REDUCE, 0));
    const auto made = seconds();
    ASSERT_TRUE(program::verify(plans, {4, false}).ok());
    const auto proved = seconds();
    const auto programs = required(backend::lower_channels({plans}, false, false, layout_of(8, 65536, 4, 1)));
    const auto lowered = seconds();
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    fmt::print("{} ranks: plans {:.3f} s, proof {:.3f} s, lowering {:.3f} s, {} steps, peak memory {} MB\n", ranks,
               (made - start).count(), (proved - made).count(), (lowered - proved).count(),
               programs.front().front().steps.size(), usage.ru_maxrss / 1024);
  }
}

}  // namespace
}  // namespace tutti::test
