// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/launch_builder.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <tuple>

#include "backend/cuda/pack.h"
#include "program/passes/fit_slots.h"
#include "program/passes/fuse_one_hop.h"
#include "program/passes/order_strands.h"
#include "program/passes/overlap_loops.h"
#include "program/verify/verify.h"

namespace tutti::backend {
namespace {

constexpr uint32_t kMinThreads = 64;
constexpr uint64_t kThreadBytes = 8;  // bytes that a thread moves at a time, at least

/// Enough for each message of the busiest step, as far as they go: a power of two.
uint32_t threads_for(const program::Program& program, uint64_t chunk_bytes, uint32_t max_threads) {
  uint32_t messages = 1;
  for (const tutti_program_step& step : program.steps) {
    if (program::exchanges(step)) messages = std::max({messages, step.send_count, step.recv_count});
  }
  const uint64_t places = std::bit_ceil((chunk_bytes + kThreadBytes - 1) / kThreadBytes);
  const uint32_t min_threads = std::min(kMinThreads, max_threads);
  return static_cast<uint32_t>(std::clamp<uint64_t>(std::bit_ceil(places * messages), min_threads, max_threads));
}

/// The most chunks of a message in the plans of all channels.
uint32_t longest_message(const ChannelPlans& plans) {
  uint32_t most = 1;
  for (const auto& channel : plans) {
    for (const program::Plan& plan : channel) most = std::max(most, plan.message_chunks);
  }
  return most;
}

constexpr uint32_t kMostOfByte = 255;  // of a number of the small form

uint32_t scratch_blocks(const program::Program& program) {
  return program::scratch_blocks(program.scratch_chunks, program.chunks);
}

auto fields_of(const tutti_program_step& step) {
  return std::tie(step.source, step.destination, step.flags, step.own_position, step.source_block, step.source_chunk,
                  step.destination_block, step.destination_chunk, step.recv_begin, step.recv_count, step.send_begin,
                  step.send_count, step.stage, step.recv_stage);
}
auto fields_of(const tutti_program_peer& peer) {
  return std::tie(peer.rank, peer.message, peer.block, peer.chunk, peer.lag, peer.to_output, peer.output_block,
                  peer.output_chunk);
}
auto counts_of(const program::Program& program) {
  return std::tie(program.chunks, program.messages, program.stages, program.lag, program.scratch_chunks);
}

/// Whether kernels run the same steps. Programs with strands are different.
bool are_equal(const program::Program& a, const program::Program& b) {
  const auto same = [](const auto& one, const auto& other) { return fields_of(one) == fields_of(other); };
  return a.strand_count == 0 && b.strand_count == 0 && counts_of(a) == counts_of(b) &&
         std::ranges::equal(a.steps, b.steps, same) && std::ranges::equal(a.peers, b.peers, same);
}

tutti_cuda_program small_program(const program::Program& program) {
  auto packed = pack_head<tutti_cuda_program>(program);
  std::ranges::transform(program.steps, packed.steps,
                         [](const tutti_program_step& step) { return pack<tutti_cuda_step>(step); });
  std::ranges::transform(program.peers, packed.peers,
                         [](const tutti_program_peer& peer) { return pack<tutti_cuda_peer>(peer); });
  return packed;
}

}  // namespace

Result<KernelPlans> fit_kernels(ChannelPlans plans, const tutti_slot_layout& layout) {
  KernelPlans fit{std::move(plans), layout, layout.slot_count / 2, false};
  const uint32_t longest = longest_message(fit.plans);
  if (longest == 1) return fit;
  fit.has_changed = true;
  // Kernels signal free slots two times per pass over the slots.
  fit.slots = std::min(fit.slots, std::max(longest, program::kLeastSlots));
  fit.layout.chunk_slots = std::min(layout.chunk_slots, layout.slot_count / fit.slots);
  for (auto& channel : fit.plans) {
    TUTTI_ASSIGN(channel, program::split_and_fit(std::move(channel), fit.slots));
  }
  return fit;
}

namespace {

/// Programs that overlap no loops have large chunks, so a connection has room for few messages. If the plans need room
/// for more messages, their chunks get smaller. Plans are proved for half of the slots (GpuPrograms::program).
void make_room(const ChannelPlans& plans, bool in_place, const tutti_slot_layout& layout, program::Programs& programs) {
  const program::Program& any = programs.front().front();
  const uint32_t most = std::min(any.messages, layout.slot_count / 2);
  const uint32_t room = layout.slot_count / std::max(program::chunk_slots(any, layout), 1u);
  if (any.stages > 1 || most <= room) return;
  const auto fits = [&](const std::vector<program::Plan>& all_ranks) {
    return program::verify(all_ranks, {room, in_place}).ok();
  };
  if (std::all_of(plans.begin(), plans.end(), fits)) return;
  for (auto& channel : programs) {
    for (program::Program& program : channel) program.room = most;
  }
}

}  // namespace

Result<program::Programs> lower_channels(const ChannelPlans& plans, bool in_place, bool direct_store,
                                         const tutti_slot_layout& layout) {
  const bool in_strands = std::any_of(plans.begin(), plans.end(),
                                      [](const std::vector<program::Plan>& all) { return program::any_strands(all); });
  program::Programs programs(plans.size());
  for (size_t channel = 0; channel < plans.size(); ++channel) {
    for (const program::Plan& plan : plans[channel]) {
      TUTTI_ASSIGN(programs[channel].emplace_back(), program::lower(plan, in_place));
    }
    if (direct_store && !in_strands) TUTTI_TRY(program::store_directly(plans[channel], programs[channel]));
  }
  program::align(programs, layout);
  make_room(plans, in_place, layout, programs);
  return programs;
}

std::vector<program::Program> programs_of_rank(const program::Programs& programs, uint32_t rank) {
  std::vector<program::Program> own;
  own.reserve(programs.size());
  for (const auto& channel : programs) own.push_back(channel[rank]);
  const bool same =
      std::ranges::all_of(own, [&](const program::Program& program) { return are_equal(own.front(), program); });
  // Kernels whose messages are short run one order of ranks on all CTAs; see tutti_cuda_launch.programs.
  if (same) own.resize(1);
  return own;
}

StrandChoice choose_strands(const ChannelPlans& plans, bool protocol_runs_strands, uint32_t most_ctas,
                            uint32_t strand_ctas) {
  StrandChoice choice;
  choice.channels = most_ctas;
  for (const auto& channel : plans) {
    choice.ctas = std::max(choice.ctas, program::most_strands(channel));
    if (choice.why_lists.empty()) choice.why_lists = program::why_in_lists(channel);
  }
  if (choice.ctas == 1) return choice;
  for (const auto& channel : plans) {
    if (choice.why_lists.empty()) choice.why_lists = program::why_too_long(channel);
  }
  if (!protocol_runs_strands) choice.why_lists = "the protocol runs no strands";
  const uint32_t held = std::min(most_ctas, strand_ctas);
  if (choice.why_lists.empty()) choice.why_lists = program::why_no_room(choice.ctas, held);
  if (!choice.why_lists.empty()) {
    choice.ctas = 1;
    return choice;
  }
  choice.channels = held / choice.ctas;
  if (choice.channels > TUTTI_CUDA_CLUSTER) choice.channels -= choice.channels % TUTTI_CUDA_CLUSTER;
  return choice;
}

std::vector<program::Strands> strands_of_rank(const ChannelPlans& plans, uint32_t rank) {
  const auto has_strands = [&](const auto& channel) { return !channel[rank].strands.empty(); };
  std::vector<program::Strands> strands;
  if (std::none_of(plans.begin(), plans.end(), has_strands)) return strands;
  for (const auto& channel : plans) strands.push_back(program::lower_strands(channel[rank]));
  return strands;
}

uint32_t ctas_of_channel(std::span<const program::Strands> strands) {
  uint32_t most = 0;
  for (const program::Strands& of : strands) most = std::max(most, of.strand_count);
  return most;
}

program::SlotPeers slot_peers(std::span<const program::Program> programs) {
  program::SlotPeers peers;
  for (const program::Program& program : programs) {
    const program::SlotPeers own = program::slot_peers(program);
    peers.senders.insert(own.senders.begin(), own.senders.end());
    peers.receivers.insert(own.receivers.begin(), own.receivers.end());
  }
  return peers;
}

bool is_large(uint32_t rank_count, std::span<const program::Program> programs) {
  return rank_count > TUTTI_CUDA_SMALL_RANKS ||
         std::any_of(programs.begin(), programs.end(), [](const program::Program& program) {
           return program.steps.size() > TUTTI_CUDA_SMALL_STEPS || program.peers.size() > TUTTI_CUDA_SMALL_PEERS ||
                  std::max({program.chunks, program.messages, program.stages, program.lag}) > kMostOfByte ||
                  program.scratch_chunks > 0 || program.strand_count > 0;
         });
}

uint64_t scratch_bytes(std::span<const program::Program> programs, uint64_t block_bytes) {
  uint32_t blocks = 0;
  for (const program::Program& program : programs) blocks = std::max(blocks, scratch_blocks(program));
  return uint64_t{blocks} * block_bytes;
}

std::vector<tutti_cuda_program> small_programs(std::span<const program::Program> programs) {
  std::vector<tutti_cuda_program> all;
  for (const program::Program& program : programs) all.push_back(small_program(program));
  return all;
}

void place_links(std::span<const tutti_cuda_link> links, tutti_cuda_launch& launch) {
  std::copy(links.begin(), links.end(), launch.links);
}

void encode_collective(const Call& call, const program::Program& program, const LaunchShape& shape,
                       tutti_cuda_launch& launch) {
  const bool reduces = program::reduces(call.collective);
  launch.data_type = static_cast<uint32_t>(call.type);
  launch.reduce_op = reduces ? static_cast<uint32_t>(call.reduction.op) : TUTTI_SUM;
  launch.divisor = reduces && call.reduction.op == ReduceOp::kAvg ? launch.rank_count : 0;
  launch.premultiplied = reduces && call.reduction.op == ReduceOp::kPreMulSum ? 1 : 0;
  launch.block_bytes = call.count * size_of(call.type);
  launch.cta_count = shape.ctas;
  launch.cut = program::cut(launch.block_bytes, shape.ctas, program, shape.layout);
  launch.thread_count = threads_for(program, launch.cut.chunk, shape.max_threads);
  launch.program_count = shape.program_count;
  launch.tables = shape.tables;
  if (shape.tables.links != nullptr) return;
  launch.program = small_programs({&program, 1}).front();
  launch.programs = shape.program_count > 1 ? shape.programs : nullptr;
  program::set_one_hop(program, launch);
}

void encode_copies(const program::Copies& copies, uint64_t block_bytes, tutti_cuda_launch& launch) {
  launch.reduce_op = TUTTI_SUM;
  launch.block_bytes = block_bytes;
  launch.cta_count = 1;
  launch.thread_count = kMinThreads;
  launch.cut.messages = 1;
  launch.copies = {};
  for (const uint32_t peer : copies.peers) launch.copies.senders |= 1u << peer;
  for (const program::Copy& copy : copies.list) {
    launch.copies.receivers |= 1u << copy.peer;
    launch.copies.list[launch.copies.count++] = {copy.from * block_bytes, copy.to * block_bytes, copy.peer, 0};
  }
  if (!copies.own) return;
  launch.copies.own_from = copies.own->from * block_bytes;
  launch.copies.own_to = copies.own->to * block_bytes;
  launch.copies.has_own = 1;
}

}  // namespace tutti::backend
