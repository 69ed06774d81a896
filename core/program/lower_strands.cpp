// SPDX-License-Identifier: Apache-2.0
#include "program/lower_strands.h"

#include <fmt/format.h>

#include <algorithm>

#include "program/connection_numbers.h"
#include "program/passes/split_messages.h"

namespace tutti::program {
namespace {

/// Bits 1 << number of the connection: the ranks from which a range of steps receives.
uint64_t sources_of(const Plan& plan, const tutti_plan_strand& strand, const ConnectionNumbers& connections) {
  uint64_t sources = 0;
  for (uint32_t i = strand.first_step; i < strand.first_step + strand.step_count; ++i) {
    for (const tutti_plan_peer& peer : plan.recv(plan.steps[i])) {
      sources |= uint64_t{1} << connections.number_of(peer.rank);
    }
  }
  return sources;
}

/// The waits of a step, as tutti_cuda_strands.after holds them.
uint64_t after_of(const Plan& plan, uint32_t step) {
  uint8_t steps[TUTTI_CUDA_MAX_STRANDS] = {};
  for (const tutti_plan_wait& wait : plan.waits_of(step)) {
    const uint32_t strand = plan.strand_of(wait.after);
    const auto needed = static_cast<uint8_t>(wait.after - plan.strands[strand].first_step + 1);
    steps[strand] = std::max(steps[strand], needed);
  }
  uint64_t after = 0;
  for (uint32_t strand = 0; strand < TUTTI_CUDA_MAX_STRANDS; ++strand) after |= uint64_t{steps[strand]} << strand * 8;
  return after;
}

}  // namespace

Strands lower_strands(const Plan& plan) {
  std::vector<tutti_plan_strand> ranges = plan.strands;
  if (ranges.empty()) ranges.push_back({0, static_cast<uint32_t>(plan.steps.size())});
  Strands lowered{};
  lowered.strand_count = static_cast<uint32_t>(ranges.size());
  const ConnectionNumbers connections = ConnectionNumbers::of(plan);
  uint64_t sources = 0;
  for (uint32_t i = 0; i < ranges.size(); ++i) {
    tutti_cuda_strand& strand = lowered.strands[i];
    strand.first_step = static_cast<uint8_t>(ranges[i].first_step);
    strand.step_count = static_cast<uint8_t>(ranges[i].step_count);
    strand.sources = sources_of(plan, ranges[i], connections);
    sources |= strand.sources;
  }
  lowered.strands[0].sources |= ~sources;
  for (uint32_t step = 0; step < plan.steps.size(); ++step) lowered.after[step] = after_of(plan, step);
  return lowered;
}

std::string why_in_lists(std::span<const Plan> all_ranks) {
  if (most_strands(all_ranks) == 1) return {};
  if (std::string too_long = why_too_long(all_ranks); !too_long.empty()) return too_long;
  for (const Plan& plan : all_ranks) {
    if (plan.strands.size() > TUTTI_CUDA_MAX_STRANDS) {
      return fmt::format("kernels run up to {} strands, and the plan of rank {} has {}", TUTTI_CUDA_MAX_STRANDS,
                         plan.rank, plan.strands.size());
    }
    if (has_long_messages(plan)) return "messages of several chunks are put in order for all strands";
  }
  return {};
}

std::string why_too_long(std::span<const Plan> all_ranks) {
  for (const Plan& plan : all_ranks) {
    if (plan.steps.size() <= TUTTI_CUDA_MAX_STRAND_STEPS) continue;
    return fmt::format("kernels run up to {} steps beside strands, and the plan of rank {} has {}",
                       TUTTI_CUDA_MAX_STRAND_STEPS, plan.rank, plan.steps.size());
  }
  return {};
}

std::string why_no_room(uint32_t strands, uint32_t ctas) {
  if (strands <= 1 || strands <= ctas) return {};
  return fmt::format("a plan has {} strands, and the GPUs hold {} CTAs of a launch at once", strands, ctas);
}

uint32_t most_strands(std::span<const Plan> plans) {
  size_t most = 1;
  for (const Plan& plan : plans) most = std::max(most, plan.strands.size());
  return static_cast<uint32_t>(most);
}

}  // namespace tutti::program
