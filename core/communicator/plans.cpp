// SPDX-License-Identifier: Apache-2.0
#include "communicator/plans.h"

#include <fmt/format.h>

#include <algorithm>

#include "plan/verify.h"

namespace tutti::communicator {
namespace {

// Verification takes time and memory with the square of the ranks; algorithms are proved up to this size in the
// project's tests as well.
constexpr uint32_t kMaxVerifiedRanks = 64;

}  // namespace

Result<plan::Plan> Plans::request(const tuner::Decision& decision, Collective collective, uint32_t rank,
                                  uint32_t channel, uint32_t root) const {
  const auto& algorithm = choices_.algorithms[decision.algorithm];
  const tutti_plan_request request{
      sizeof(tutti_plan_request), static_cast<uint32_t>(collective), rank, channel, root, decision.variant};
  auto plan = plan::collect(*algorithm.ops, algorithm.instance.get(), request);
  if (plan.ok()) return plan;
  return plan.status().with_context(
      fmt::format("plan of algorithm '{}' for {}", algorithm.name, to_string(collective)));
}

Status Plans::verify(const tuner::Decision& decision, Collective collective, uint32_t root, bool in_place,
                     uint32_t channels, uint32_t slots) const {
  if (!options_.verify || options_.rank_count > kMaxVerifiedRanks) return {};
  for (uint32_t channel = 0; channel < channels; ++channel) {
    std::vector<plan::Plan> plans;
    for (uint32_t rank = 0; rank < options_.rank_count; ++rank) {
      TUTTI_ASSIGN(plan::Plan plan, request(decision, collective, rank, channel, root));
      plans.push_back(std::move(plan));
    }
    const Status proof = plan::verify(plans, {std::max(1u, slots), in_place});
    if (!proof.ok()) {
      return proof.with_context(fmt::format("algorithm '{}' made a wrong plan for {}{}, channel {}",
                                            choices_.algorithms[decision.algorithm].name, to_string(collective),
                                            in_place ? " in place" : "", channel));
    }
  }
  return {};
}

}  // namespace tutti::communicator
