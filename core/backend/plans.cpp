// SPDX-License-Identifier: Apache-2.0
#include "backend/plans.h"

#include <fmt/format.h>

#include <algorithm>

#include "plugin/loader.h"

namespace tutti::backend {

Result<program::Plan> Plans::request(const tuner::Decision& decision, Collective collective, uint32_t rank,
                                     uint32_t channel, uint32_t root, Form form) const {
  const auto& algorithm = choices_.algorithms[decision.algorithm];
  const tutti_plan_request request{
      sizeof(tutti_plan_request), static_cast<uint32_t>(collective), rank, channel, root, decision.variant};
  auto plan = form == Form::kList ? program::collect(*algorithm.ops, algorithm.instance.get(), request)
                                  : program::collect_strands(*algorithm.ops, algorithm.instance.get(), request);
  if (plan.ok()) return plan;
  return plan.status().with_context(
      fmt::format("plan of algorithm '{}' for {}", algorithm.name, to_string(collective)));
}

Status Plans::verify(const tuner::Decision& decision, Collective collective, uint32_t root, bool in_place,
                     uint32_t slots) const {
  if (!options_.verify) return {};
  const auto& algorithm = choices_.algorithms[decision.algorithm];
  for (uint32_t channel = 0; channel < decision.channels; ++channel) {
    const program::PlanSource source = [&](uint32_t rank) {
      const tutti_plan_request request{
          sizeof(tutti_plan_request), static_cast<uint32_t>(collective), rank, channel, root, decision.variant};
      return program::collect_rolled(*algorithm.ops, algorithm.instance.get(), request);
    };
    const program::Verdict verdict = proved_.prove(options_.rank_count, source, {std::max(1u, slots), in_place});
    if (verdict.status.ok()) continue;
    if (verdict.decided) {
      return verdict.status.with_context(fmt::format("algorithm '{}' made a wrong plan for {}{}, channel {}",
                                                     algorithm.name, to_string(collective), in_place ? " in place" : "",
                                                     channel));
    }
    const std::string name = name_of(decision);
    const std::string hosts = choices_.nodes > 1 ? fmt::format(" --hosts {}", choices_.nodes) : "";
    return {Code::kUnsupported,
            fmt::format("the plan of {} for {} cannot be proved on {} ranks: {}; choose another algorithm, or set "
                        "check.plans to false if 'tutti plan verify --collective {} --algorithm {} --ranks {}{}' finds "
                        "the plan right",
                        name, to_string(collective), options_.rank_count, verdict.status.text(), to_string(collective),
                        name, options_.rank_count, hosts)};
  }
  return {};
}

Status Plans::verify(std::span<const program::Plan> all_ranks, bool in_place, uint32_t slots) const {
  if (!options_.verify) return {};
  return proved_.verify(all_ranks, {slots, in_place})
      .with_context(fmt::format("the plan for {}, as kernels run it", to_string(all_ranks.front().collective)));
}

Result<transport::Ports> Plans::ports(uint32_t algorithm, uint32_t channel, uint32_t peer) const {
  const tuner::Algorithm& of = choices_.algorithms[algorithm];
  tutti_channel_nets mine{TUTTI_NO_NET, TUTTI_NO_NET};
  tutti_channel_nets theirs = mine;
  const auto ask = [&](uint32_t rank, uint32_t other, tutti_channel_nets& nets) -> Status {
    plugin::take_failure_text();  // discards the text of an earlier call
    const int32_t code = of.ops->nets(of.instance.get(), channel, rank, other, &nets);
    if (code == TUTTI_OK) return {};
    return {code == TUTTI_AGAIN ? Code::kInternal : static_cast<Code>(code),
            fmt::format("algorithm '{}' names no network devices for channel {} between ranks {} and {}: {}", of.name,
                        channel, rank, other, plugin::take_reason())};
  };
  TUTTI_TRY(ask(options_.rank, peer, mine));
  TUTTI_TRY(ask(peer, options_.rank, theirs));
  return transport::Ports{mine.send, theirs.receive, mine.receive};
}

std::string Plans::name_of(const tuner::Decision& decision) const {
  const tuner::Algorithm& algorithm = choices_.algorithms[decision.algorithm];
  const std::string& variant = algorithm.variants[decision.variant].name;
  return variant.empty() ? algorithm.name : algorithm.name + "/" + variant;
}

}  // namespace tutti::backend
