// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/stripes.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <tuple>

#include "program/connection_numbers.h"
#include "program/lower.h"

namespace tutti::backend {
namespace {

/// Whole clusters, where there are so many.
uint32_t ctas_for(uint32_t stripes, uint32_t most) {
  if (stripes < TUTTI_CUDA_CLUSTER) return std::min(stripes, most);
  return std::min((stripes + TUTTI_CUDA_CLUSTER - 1) / TUTTI_CUDA_CLUSTER * TUTTI_CUDA_CLUSTER, most);
}

/// From the sender to the receiver, ahead in the order of ranks.
uint32_t distance_of(const Message& message, uint32_t rank, uint32_t rank_count) {
  const uint32_t ahead = message.kind == TUTTI_CUDA_RECEIVE ? rank - message.peer : message.peer - rank;
  return (ahead + rank_count) % rank_count;
}

}  // namespace

uint32_t part_of(const Message& message, uint32_t rank, uint32_t rank_count) {
  return (std::max(distance_of(message, rank, rank_count), 1u) - 1) / (TUTTI_CUDA_MAX_MESSAGES / 2);
}

Result<std::vector<uint32_t>> lay_out(std::span<const Message> messages, const tutti_slot_layout& layout,
                                      uint32_t most_ctas, tutti_cuda_launch& launch) {
  if (messages.size() > TUTTI_CUDA_MAX_MESSAGES) {
    return Status(Code::kUnsupported,
                  fmt::format("more than {} messages with different peers in one group", TUTTI_CUDA_MAX_MESSAGES));
  }
  const auto place = [&](uint32_t index) {
    const Message& message = messages[index];
    return std::tuple(message.kind, distance_of(message, launch.rank, launch.rank_count));
  };
  std::vector<uint32_t> order(messages.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return place(a) < place(b); });
  std::vector<uint32_t> places(messages.size());
  uint32_t stripes[TUTTI_CUDA_MESSAGE_KINDS] = {};
  for (const uint32_t index : order) {
    const Message& message = messages[index];
    places[index] = launch.message_count;
    tutti_cuda_message& out = launch.messages[launch.message_count++];
    out = {};
    out.bytes = message.bytes;
    out.peer = static_cast<uint16_t>(message.peer);
    out.kind = static_cast<uint8_t>(message.kind);
    out.stripe_count = static_cast<uint8_t>(message.stripes);
    out.cut = program::cut_message(message.bytes, message.stripes, layout);
    stripes[message.kind] += message.stripes;
  }
  for (uint32_t kind = 0; kind < TUTTI_CUDA_MESSAGE_KINDS; ++kind) {
    launch.kind_ctas[kind] = ctas_for(stripes[kind], most_ctas);
    launch.cta_count += launch.kind_ctas[kind];
  }
  return places;
}

std::optional<std::vector<Hop>> hops_of(const program::Plan& plan) {
  const bool all_alike = plan.collective == Collective::kAllToAll || plan.collective == Collective::kAllGather;
  if (!all_alike || plan.chunks != 1 || !program::beyond_version_1(plan).empty()) return std::nullopt;
  std::vector<Hop> hops;
  std::set<uint32_t> seen[2];  // peers, of sends and of receives
  const auto add = [&](Hop hop) {
    hops.push_back(hop);
    return hop.kind == TUTTI_CUDA_KEEP || seen[hop.kind].insert(hop.peer).second;
  };
  for (const tutti_plan_step& step : plan.steps) {
    const bool scatters = (step.flags & TUTTI_STEP_SCATTER) != 0;
    const bool gathers = (step.flags & TUTTI_STEP_GATHER) != 0;
    if (step.send_count > 1 || step.recv_count > 1) return std::nullopt;
    if (step.source != TUTTI_BUFFER_NONE && step.source != TUTTI_BUFFER_INPUT) return std::nullopt;
    if (step.source == TUTTI_BUFFER_INPUT && step.destination != TUTTI_BUFFER_NONE) {
      if (!add({TUTTI_CUDA_KEEP, plan.rank, step.source_chunk, step.destination_chunk})) return std::nullopt;
    }
    for (const tutti_plan_peer& to : plan.send(step)) {
      if (step.source != TUTTI_BUFFER_INPUT) return std::nullopt;  // it passes something on
      if (!add({TUTTI_CUDA_SEND, to.rank, scatters ? to.chunk : step.source_chunk, 0})) return std::nullopt;
    }
    for (const tutti_plan_peer& from : plan.recv(step)) {
      if (!gathers && step.source != TUTTI_BUFFER_NONE) return std::nullopt;
      if (!add({TUTTI_CUDA_RECEIVE, from.rank, 0, gathers ? from.chunk : step.destination_chunk})) return std::nullopt;
    }
  }
  if (seen[TUTTI_CUDA_SEND].empty()) return std::nullopt;  // blocks of one rank
  return hops;
}

std::vector<std::vector<Hop>> in_parts(std::span<const Hop> hops, uint32_t rank, uint32_t rank_count) {
  std::map<uint32_t, std::vector<Hop>> by_part;
  std::vector<Hop> kept;
  for (const Hop& hop : hops) {
    if (hop.kind == TUTTI_CUDA_KEEP) {
      kept.push_back(hop);
    } else {
      by_part[part_of({hop.kind, hop.peer, 0, 1}, rank, rank_count)].push_back(hop);
    }
  }
  std::vector<std::vector<Hop>> parts;
  for (auto& [part, of_part] : by_part) parts.push_back(std::move(of_part));
  if (parts.empty() || parts.back().size() + kept.size() > TUTTI_CUDA_MAX_MESSAGES) parts.emplace_back();
  parts.back().insert(parts.back().end(), kept.begin(), kept.end());
  if (parts.back().empty()) parts.pop_back();
  return parts;
}

bool runs_as_messages(const program::Plan& plan) {
  const program::ConnectionNumbers connections = program::ConnectionNumbers::of(plan);
  if (connections.are_ranks() || connections.count() <= TUTTI_CUDA_MAX_CONNECTIONS) return false;
  return hops_of(plan).has_value();
}

}  // namespace tutti::backend
