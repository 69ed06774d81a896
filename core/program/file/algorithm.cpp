// SPDX-License-Identifier: Apache-2.0
#include "program/file/algorithm.h"

#include "plugin/failure_text.h"
#include "program/cost.h"
#include "program/verify/rotation.h"

namespace tutti::program {
namespace {

struct FileInstance {
  PlanFile file;
  uint32_t channels;
  Result<tutti_algorithm_cost> cost;
};

const FileInstance& of(void* instance) {
  return *static_cast<const FileInstance*>(instance);
}

int32_t emit_plan(void* instance, const tutti_plan_request* request, const tutti_plan_sink* sink) {
  const std::vector<Plan>& plans = of(instance).file.plans;
  const auto ranks = static_cast<uint32_t>(plans.size());
  const Plan& first = plans.front();
  const bool is_other = request->collective != static_cast<uint32_t>(first.collective);
  if (is_other || request->rank >= ranks || request->root >= ranks) return TUTTI_UNSUPPORTED;
  const uint32_t distance = has_root(first.collective) ? (request->root + ranks - first.root) % ranks : 0;
  Result<Plan> plan = moved(plans[(request->rank + ranks - distance) % ranks], distance);
  if (!plan.ok()) return static_cast<int32_t>(plan.status().code());
  plan->channel = request->channel;
  const tutti_plan view = plan->view();
  return sink->emit(sink->context, &view);
}

int32_t give_cost(void* instance, uint32_t /*collective*/, uint32_t /*variant*/, tutti_algorithm_cost* out) {
  const auto& cost = of(instance).cost;
  if (cost.ok()) {
    *out = *cost;
  } else {
    plugin::leave_failure_text(std::string(cost.status().text()));
  }
  return static_cast<int32_t>(cost.status().code());
}

int32_t name_variant(void* self, uint32_t index, tutti_str* name, uint64_t* collectives) {
  if (index > 0) return TUTTI_NOT_FOUND;
  *name = {"", 0};
  *collectives = uint64_t{1} << static_cast<uint32_t>(of(self).file.plans.front().collective);
  return TUTTI_OK;
}

int32_t any_net(void* /*instance*/, uint32_t /*channel*/, uint32_t /*rank*/, uint32_t /*peer*/,
                tutti_channel_nets* out) {
  *out = {TUTTI_NO_NET, TUTTI_NO_NET};
  return TUTTI_OK;
}

void destroy(void* instance) {
  delete static_cast<FileInstance*>(instance);
}

constexpr tutti_algorithm_ops kOps = {
    .struct_size = sizeof(tutti_algorithm_ops),
    .reserved = 0,
    .search = nullptr,  // the file says what runs: nobody searches or connects
    .connect = nullptr,
    .disconnect = destroy,
    .channel_count = [](void* instance) { return of(instance).channels; },
    .variant = name_variant,
    .plan = emit_plan,
    .cost = give_cost,
    .nets = any_net,
};

}  // namespace

Result<Plan> moved(const Plan& plan, uint32_t distance) {
  TUTTI_ASSIGN(const Rotation rotation, rotation_of(plan, 0, 0));
  return image(rotation, plan, distance);
}

FileAlgorithm algorithm_of(PlanFile file, std::string name, uint32_t channels, const tutti_topology& topology) {
  Result<tutti_algorithm_cost> cost = Status(Code::kUnsupported, "the plans are for another number of ranks");
  if (file.plans.size() == topology.rank_count) cost = cost_of(file.plans, topology);
  Instance instance(new FileInstance{std::move(file), channels, std::move(cost)}, destroy);
  void* const self = instance.get();
  return {{std::move(name), &kOps, self}, std::move(instance)};
}

}  // namespace tutti::program
