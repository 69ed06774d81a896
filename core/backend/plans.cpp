// SPDX-License-Identifier: Apache-2.0
#include "backend/plans.h"

#include <fmt/format.h>

#include <algorithm>

#include "log/log.h"

namespace tutti::backend {
namespace {

uint64_t messages_of(const program::Plan& plan) {
  uint64_t messages = 0;
  for (const tutti_plan_step& step : plan.steps) messages += uint64_t{step.recv_count} + step.send_count;
  return messages;
}

}  // namespace

std::string why_unproved(uint32_t rank_count) {
  if (rank_count <= kMaxProvedRanks) return {};
  return fmt::format("a proof handles up to {} ranks, not {}", kMaxProvedRanks, rank_count);
}

bool within_proofs(std::span<const program::Plan> plans) {
  uint64_t messages = 0;
  for (const program::Plan& plan : plans) messages += messages_of(plan);
  return messages <= kMaxProvedMessages;
}

Result<program::Plan> Plans::request(const tuner::Decision& decision, Collective collective, uint32_t rank,
                                     uint32_t channel, uint32_t root) const {
  const auto& algorithm = choices_.algorithms[decision.algorithm];
  const tutti_plan_request request{
      sizeof(tutti_plan_request), static_cast<uint32_t>(collective), rank, channel, root, decision.variant};
  auto plan = program::collect(*algorithm.ops, algorithm.instance.get(), request);
  if (plan.ok()) return plan;
  return plan.status().with_context(
      fmt::format("plan of algorithm '{}' for {}", algorithm.name, to_string(collective)));
}

Status Plans::verify(const tuner::Decision& decision, Collective collective, uint32_t root, bool in_place,
                     uint32_t slots) const {
  if (!options_.verify) return {};
  if (const std::string why = why_unproved(options_.rank_count); !why.empty()) {
    warn_unproved(decision, collective, why);
    return {};
  }
  for (uint32_t channel = 0; channel < decision.channels; ++channel) {
    TUTTI_ASSIGN(const auto plans, all_ranks(decision, collective, channel, root));
    if (!plans) {
      warn_unproved(decision, collective,
                    fmt::format("a proof handles up to {} sends and receives of all ranks, and there are more",
                                kMaxProvedMessages));
      return {};
    }
    const Status proof = proved_.verify(*plans, {std::max(1u, slots), in_place});
    if (!proof.ok()) {
      return proof.with_context(fmt::format("algorithm '{}' made a wrong plan for {}{}, channel {}",
                                            choices_.algorithms[decision.algorithm].name, to_string(collective),
                                            in_place ? " in place" : "", channel));
    }
  }
  return {};
}

/// Nothing: together they have more messages than a proof handles.
Result<std::optional<std::vector<program::Plan>>> Plans::all_ranks(const tuner::Decision& decision,
                                                                   Collective collective, uint32_t channel,
                                                                   uint32_t root) const {
  std::vector<program::Plan> plans;
  uint64_t messages = 0;
  for (uint32_t rank = 0; rank < options_.rank_count; ++rank) {
    TUTTI_ASSIGN(plans.emplace_back(), request(decision, collective, rank, channel, root));
    messages += messages_of(plans.back());
    if (messages > kMaxProvedMessages) return std::optional<std::vector<program::Plan>>();
  }
  return std::optional(std::move(plans));
}

void Plans::warn_unproved(const tuner::Decision& decision, Collective collective, const std::string& why) const {
  if (options_.rank != 0) return;
  {
    const std::lock_guard lock(mutex_);
    if (!warned_.insert({decision.algorithm, decision.variant, collective}).second) return;
  }
  const tuner::Algorithm& algorithm = choices_.algorithms[decision.algorithm];
  const std::string& variant = algorithm.variants[decision.variant].name;
  const std::string name = variant.empty() ? algorithm.name : algorithm.name + "/" + variant;
  log::warn(
      "the plan of {} for {} runs without a proof: {}; prove it ahead of the job with 'tutti plan verify "
      "--collective {} --algorithm {} --ranks {}', or choose another algorithm",
      name, to_string(collective), why, to_string(collective), name, options_.rank_count);
}

}  // namespace tutti::backend
