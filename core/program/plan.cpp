// SPDX-License-Identifier: Apache-2.0
#include "program/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "program/peer_pool.h"

namespace tutti::program {
namespace {

template <class T>
bool same_bytes(const std::vector<T>& a, const std::vector<T>& b) {
  static_assert(std::has_unique_object_representations_v<T>);
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

}  // namespace

tutti_plan Plan::view() const {
  return {.struct_size = sizeof(tutti_plan),
          .collective = static_cast<uint32_t>(collective),
          .rank_count = rank_count,
          .rank = rank,
          .root = root,
          .channel = channel,
          .chunks = chunks,
          .input_blocks = input_blocks,
          .output_blocks = output_blocks,
          .step_count = static_cast<uint32_t>(steps.size()),
          .peer_count = static_cast<uint32_t>(peers.size()),
          .steps = steps.data(),
          .peers = peers.data(),
          .scratch_chunks = scratch_chunks,
          .message_chunks = message_chunks,
          .ranges = ranges.empty() ? nullptr : ranges.data(),
          .repeat_count = static_cast<uint32_t>(repeats.size()),
          .reserved = 0,
          .repeats = repeats.data(),
          .growths = growths.empty() ? nullptr : growths.data(),
          .strand_count = static_cast<uint32_t>(strands.size()),
          .wait_count = static_cast<uint32_t>(waits.size()),
          .strands = strands.data(),
          .waits = waits.data()};
}

std::string beyond_version_1(const Plan& plan) {
  if (plan.scratch_chunks > 0) return "a scratch buffer";
  if (!plan.repeats.empty()) return "repeats";
  if (!plan.strands.empty()) return "strands";
  return plan.ranges.empty() ? "" : "messages of several chunks";
}

std::span<const tutti_plan_peer> Plan::recv(const tutti_plan_step& step) const {
  return std::span(peers).subspan(step.recv_begin, step.recv_count);
}

std::span<const tutti_plan_peer> Plan::send(const tutti_plan_step& step) const {
  return std::span(peers).subspan(step.send_begin, step.send_count);
}

bool Plan::operator==(const Plan& other) const {
  return collective == other.collective && rank_count == other.rank_count && rank == other.rank && root == other.root &&
         channel == other.channel && chunks == other.chunks && input_blocks == other.input_blocks &&
         output_blocks == other.output_blocks && scratch_chunks == other.scratch_chunks &&
         message_chunks == other.message_chunks && same_bytes(steps, other.steps) && same_bytes(peers, other.peers) &&
         same_bytes(ranges, other.ranges) && same_bytes(repeats, other.repeats) && same_bytes(growths, other.growths) &&
         same_bytes(strands, other.strands) && same_bytes(waits, other.waits);
}

uint32_t Plan::strand_of(uint32_t step) const {
  const auto begins_later = [](uint32_t s, const tutti_plan_strand& strand) { return s < strand.first_step; };
  const auto next = std::upper_bound(strands.begin(), strands.end(), step, begins_later);
  return next == strands.begin() ? 0 : static_cast<uint32_t>(next - strands.begin() - 1);
}

std::span<const tutti_plan_wait> Plan::waits_of(uint32_t step) const {
  const auto below = [](const tutti_plan_wait& wait, uint32_t s) { return wait.step < s; };
  const auto first = std::lower_bound(waits.begin(), waits.end(), step, below);
  const auto end = std::lower_bound(first, waits.end(), step + 1, below);
  return {first, end};
}

Blocks blocks_of(Collective collective, uint32_t rank_count) {
  switch (collective) {
    case Collective::kReduceScatter:
    case Collective::kScatter:
      return {rank_count, 1};
    case Collective::kAllGather:
    case Collective::kGather:
      return {1, rank_count};
    case Collective::kAllToAll:
      return {rank_count, rank_count};
    default:
      return {1, 1};
  }
}

bool reduces(Collective collective) {
  return collective == Collective::kAllReduce || collective == Collective::kReduceScatter ||
         collective == Collective::kReduce;
}

bool has_root(Collective collective) {
  return collective == Collective::kBroadcast || collective == Collective::kReduce ||
         collective == Collective::kGather || collective == Collective::kScatter;
}

Result<Plan> copy(const tutti_plan& plan) {
  TUTTI_TRY(validate(plan));
  Plan result;
  result.collective = static_cast<Collective>(plan.collective);
  result.rank_count = plan.rank_count;
  result.rank = plan.rank;
  result.root = plan.root;
  result.channel = plan.channel;
  result.chunks = plan.chunks;
  result.input_blocks = plan.input_blocks;
  result.output_blocks = plan.output_blocks;
  result.steps.assign(plan.steps, plan.steps + plan.step_count);
  result.scratch_chunks = plan.scratch_chunks;
  result.message_chunks = std::max(1u, plan.message_chunks);
  const auto is_long = [](const tutti_plan_range& range) { return range.count > 1; };
  if (plan.ranges != nullptr && std::any_of(plan.ranges, plan.ranges + plan.step_count, is_long)) {
    result.ranges.assign(plan.ranges, plan.ranges + plan.step_count);
  }
  result.repeats.assign(plan.repeats, plan.repeats + plan.repeat_count);
  if (plan.repeat_count > 0) result.growths.assign(plan.growths, plan.growths + plan.step_count);
  if (plan.strand_count > 1) result.strands.assign(plan.strands, plan.strands + plan.strand_count);
  result.waits.assign(plan.waits, plan.waits + plan.wait_count);
  PeerPool pool(result.peers);
  for (tutti_plan_step& step : result.steps) {
    if (step.gather_buffer == TUTTI_BUFFER_OUTPUT) step.gather_buffer = 0;  // which says the same
    TUTTI_TRY(pool.intern({plan.peers + step.recv_begin, step.recv_count}, step.recv_begin));
    TUTTI_TRY(pool.intern({plan.peers + step.send_begin, step.send_count}, step.send_begin));
  }
  return result;
}

}  // namespace tutti::program
