// SPDX-License-Identifier: Apache-2.0
// Launches as calls and programs determine them: operations, threads, programs by channel, connections and copies.
#include "backend/cuda/launch_builder.h"

#include <gmock/gmock.h>

#include <cstring>

#include "unit/plan_support.h"
#include "unit/program_calls.h"
#include "unit/required.h"

namespace tutti::test {
namespace {

using backend::Call;
using backend::LaunchShape;

constexpr uint32_t kRanks = 3;
const tutti_slot_layout kLayout = layout_of(8, 4096, 1);

program::Programs lowered(const std::string& name, bool to_outputs = false) {
  return required(backend::lower_channels({plans_of(name, kRanks)}, false, to_outputs, kLayout));
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

tutti_cuda_launch encode(const Call& call, const tutti_cuda_program& program, const LaunchShape& shape) {
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

TEST(LaunchBuilder, EncodesTheCallAndItsProgram) {
  const program::Programs programs = lowered("direct two-shot all_reduce");
  const tutti_cuda_launch launch = encode(call_of(Collective::kAllReduce, 9000), programs[0][1], shape_of(4));
  EXPECT_EQ(launch.data_type, TUTTI_FLOAT32);
  EXPECT_EQ(launch.reduce_op, TUTTI_SUM);
  EXPECT_EQ(launch.block_bytes, 36000u);
  EXPECT_EQ(launch.cta_count, 4u);
  EXPECT_EQ(launch.program_count, 1u);
  EXPECT_EQ(launch.programs, nullptr);
  EXPECT_EQ(std::memcmp(&launch.program, &programs[0][1], sizeof launch.program), 0);
  const tutti_cuda_cut cut = program::cut(36000, 4, programs[0][1], kLayout);
  EXPECT_EQ(std::memcmp(&launch.cut, &cut, sizeof cut), 0);
  EXPECT_EQ(launch.one_hop.send_count + launch.one_hop.recv_count, 0) << "two-shot has two hops";
}

TEST(LaunchBuilder, EncodesOperationsOfReductionsOnly) {
  const tutti_cuda_program reduces = lowered("direct one-shot all_reduce")[0][1];
  const tutti_cuda_program copies = lowered("direct one-shot all_gather")[0][1];
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
  const tutti_cuda_program gathers = lowered("direct one-shot all_gather")[0][1];
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
  const tutti_cuda_program program = lowered("direct one-shot all_gather")[0][1];
  const tutti_cuda_launch launch = encode(call_of(Collective::kAllGather, 4), program, shape_of(1));
  ASSERT_EQ(launch.one_hop.send_count, 2);
  for (uint32_t i = 0; i < 2; ++i) {
    EXPECT_EQ(launch.one_hop.sends[i].slots, launch.links[launch.one_hop.send_ranks[i]].to);
    EXPECT_EQ(launch.one_hop.receives[i].slots, launch.links[launch.one_hop.recv_ranks[i]].from);
  }
}

TEST(LaunchBuilder, KeepsOneProgramOfEqualChannels) {
  const auto one = plans_of("ring  all_gather", kRanks);
  const auto equal = required(backend::lower_channels({one, one, one}, false, false, kLayout));
  EXPECT_EQ(backend::programs_of_rank(equal, 2).size(), 1u);
  auto two = one;
  std::swap(two[1].steps.front(), two[1].steps.back());
  const auto different = required(backend::lower_channels({one, two}, false, false, kLayout));
  const std::vector<tutti_cuda_program> own = backend::programs_of_rank(different, 1);
  ASSERT_EQ(own.size(), 2u);
  EXPECT_EQ(std::memcmp(&own[1], &different[1][1], sizeof own[1]), 0);
  EXPECT_EQ(backend::programs_of_rank(different, 0).size(), 1u) << "rank 0 has equal programs";
  LaunchShape shape = shape_of(2);
  shape.program_count = 2;
  shape.programs = own.data();
  EXPECT_EQ(encode(call_of(Collective::kAllGather, 4), own[0], shape).programs, own.data());
  shape.program_count = 1;
  EXPECT_EQ(encode(call_of(Collective::kAllGather, 4), own[0], shape).programs, nullptr);
}

TEST(LaunchBuilder, NeedsSlotsOfThePeersOfAllChannels) {
  const std::vector<tutti_cuda_program> both = {lowered("direct one-shot all_gather")[0][0],
                                                lowered("ring  all_gather")[0][0]};
  const program::SlotPeers ring = backend::slot_peers(std::span(both).last(1));
  EXPECT_EQ(ring.senders, 0b100u);
  EXPECT_EQ(ring.receivers, 0b010u);
  EXPECT_EQ(backend::slot_peers(both).senders, 0b110u);
  EXPECT_EQ(backend::slot_peers(both).receivers, 0b110u);
  const std::vector<tutti_cuda_program> stored = {lowered("direct one-shot all_gather", true)[0][0]};
  EXPECT_EQ(backend::slot_peers(stored).receivers, 0u) << "registered outputs take all data";
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

}  // namespace
}  // namespace tutti::test
