// SPDX-License-Identifier: Apache-2.0
// Plans as algorithm plugins emit them.
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "plugin/loader.h"
#include "program/in_one_strand.h"
#include "program/plan.h"
#include "program/repeat.h"

namespace tutti::program {
namespace {

struct Capture {
  Result<Plan> plan = Status(Code::kInternal, "the algorithm returned without emitting a plan");
  uint32_t emitted = 0;
};

int32_t capture(void* context, const tutti_plan* plan) {
  auto& into = *static_cast<Capture*>(context);
  if (++into.emitted > 1) {
    into.plan = Status(Code::kInternal, "the algorithm emitted more than one plan");
  } else if (plan == nullptr || plan->struct_size < offsetof(tutti_plan, scratch_chunks)) {
    into.plan = Status(Code::kVersionMismatch, "the emitted plan is null or its struct_size is too small");
  } else {
    tutti_plan known{};  // fields that the plugin does not know are 0
    std::memcpy(&known, plan, std::min<size_t>(plan->struct_size, sizeof known));
    into.plan = copy(known);
  }
  return static_cast<int32_t>(into.plan.status().code());
}

}  // namespace

Result<Plan> collect(const std::function<int32_t(const tutti_plan_sink*)>& emitter) {
  Capture into;
  const tutti_plan_sink sink = {.struct_size = sizeof(sink), .reserved = 0, .context = &into, .emit = capture};
  plugin::take_failure_text();  // discards the text of an earlier call
  const int32_t outcome = emitter(&sink);
  const std::string why = plugin::take_failure_text();
  if (into.emitted > 0 && !into.plan.ok()) return into.plan.status();
  if (outcome == TUTTI_OK) return std::move(into.plan);
  return Status(outcome == TUTTI_AGAIN ? Code::kInternal : static_cast<Code>(outcome),
                why.empty() ? "the plugin does not say why (PLG-14)" : why);
}

Result<Plan> collect_strands(const tutti_algorithm_ops& algorithm, void* instance, const tutti_plan_request& request) {
  TUTTI_ASSIGN(Plan plan, collect_rolled(algorithm, instance, request));
  return unroll(std::move(plan));
}

Result<Plan> collect(const tutti_algorithm_ops& algorithm, void* instance, const tutti_plan_request& request) {
  TUTTI_ASSIGN(Plan plan, collect_rolled(algorithm, instance, request));
  if (plan.strands.empty()) return unroll(std::move(plan));
  const PlanSource source = [&](uint32_t rank) {
    tutti_plan_request of_rank = request;
    of_rank.rank = rank;
    return collect_rolled(algorithm, instance, of_rank);
  };
  return in_one_strand(plan.rank_count, source, plan.rank);
}

Result<std::vector<Plan>> collect_all_rolled(const tutti_algorithm_ops& algorithm, void* instance,
                                             const tutti_plan_request& request, uint32_t rank_count) {
  std::vector<Plan> rolled;
  for (uint32_t rank = 0; rank < rank_count; ++rank) {
    tutti_plan_request of_rank = request;
    of_rank.rank = rank;
    TUTTI_ASSIGN(rolled.emplace_back(), collect_rolled(algorithm, instance, of_rank));
  }
  return rolled;
}

Result<std::vector<Plan>> collect_all(const tutti_algorithm_ops& algorithm, void* instance,
                                      const tutti_plan_request& request, uint32_t rank_count) {
  TUTTI_ASSIGN(const std::vector<Plan> rolled, collect_all_rolled(algorithm, instance, request, rank_count));
  return all_in_one_strand(rank_count, source_of(rolled));
}

Result<Plan> collect_rolled(const tutti_algorithm_ops& algorithm, void* instance, const tutti_plan_request& request) {
  TUTTI_ASSIGN(Plan plan,
               collect([&](const tutti_plan_sink* sink) { return algorithm.plan(instance, &request, sink); }));
  const uint32_t root = has_root(plan.collective) ? request.root : 0;
  const auto check = [](const char* field, uint32_t got, uint32_t asked) {
    if (got == asked) return Status();
    return Status(Code::kInternal, fmt::format("the emitted plan's {} is {}, but {} was asked for", field, got, asked));
  };
  TUTTI_TRY(check("collective", static_cast<uint32_t>(plan.collective), request.collective));
  TUTTI_TRY(check("rank", plan.rank, request.rank));
  TUTTI_TRY(check("channel", plan.channel, request.channel));
  TUTTI_TRY(check("root", plan.root, root));
  return plan;
}

}  // namespace tutti::program
