// SPDX-License-Identifier: Apache-2.0
#include "program/file/algorithm.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "program/cost.h"

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
  if (cost.ok()) *out = *cost;
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

/// Makes the plan of another rank, by adding a distance to all ranks.
class Mover {
 public:
  Mover(const Plan& plan, uint32_t distance) : plan_(plan), distance_(distance), out_(plan) {}

  Result<Plan> run() {
    out_.rank = rank(plan_.rank);
    out_.root = rank(plan_.root);
    out_.peers.clear();
    for (tutti_plan_step& step : out_.steps) {
      const bool gathers = (step.flags & TUTTI_STEP_GATHER) != 0;
      const bool scatters = (step.flags & TUTTI_STEP_SCATTER) != 0;
      const bool folds = !gathers && !scatters;
      TUTTI_ASSIGN(step.recv_begin, range(plan_.recv(step), folds, gathers, gather_buffer_of(step)));
      TUTTI_ASSIGN(step.send_begin, range(plan_.send(step), folds, scatters, step.source));
      step.source_chunk = chunk(step.source, step.source_chunk);
      step.destination_chunk = chunk(step.destination, step.destination_chunk);
    }
    return copy(out_.view());
  }

 private:
  uint32_t rank(uint32_t of_plan) const { return (of_plan + distance_) % plan_.rank_count; }

  /// The blocks of a buffer with one block per rank move with their ranks.
  uint32_t chunk(uint8_t buffer, uint32_t of_plan) const {
    if (buffer == TUTTI_BUFFER_NONE || buffer == TUTTI_BUFFER_SCRATCH) return of_plan;
    const uint32_t blocks = buffer == TUTTI_BUFFER_INPUT ? plan_.input_blocks : plan_.output_blocks;
    return blocks > 1 ? (of_plan + distance_ * plan_.chunks) % plan_.chunks_of(buffer) : of_plan;
  }

  /// Appends the peers of a step, and returns where they begin. Peers of a step that folds are put in order again.
  Result<uint16_t> range(std::span<const tutti_plan_peer> peers, bool folds, bool chunked, uint8_t buffer) {
    if (peers.empty()) return uint16_t{0};
    const auto [known, is_new] = begins_.try_emplace({peers.data(), peers.size(), chunked, buffer}, out_.peers.size());
    if (known->second > UINT16_MAX) {
      return Status(Code::kUnsupported, fmt::format("the steps name more than {} different peers", UINT16_MAX));
    }
    const auto begin = static_cast<uint16_t>(known->second);
    if (!is_new) return begin;
    for (const tutti_plan_peer& peer : peers) {
      out_.peers.push_back({rank(peer.rank), chunked ? chunk(buffer, peer.chunk) : 0});
    }
    const auto ascending = [](const tutti_plan_peer& a, const tutti_plan_peer& b) { return a.rank < b.rank; };
    if (folds) std::sort(out_.peers.begin() + begin, out_.peers.end(), ascending);
    return begin;
  }

  using Range = std::tuple<const tutti_plan_peer*, size_t, bool, uint8_t>;
  const Plan& plan_;
  uint32_t distance_;
  Plan out_;
  std::map<Range, size_t> begins_;  ///< of ranges of the plan in the peers of the new plan
};

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
  if (distance == 0) return plan;
  return Mover(plan, distance).run();
}

FileAlgorithm algorithm_of(PlanFile file, std::string name, uint32_t channels, const tutti_topology& topology) {
  Result<tutti_algorithm_cost> cost = Status(Code::kUnsupported, "the plans are for another number of ranks");
  if (file.plans.size() == topology.rank_count) cost = cost_of(file.plans, topology);
  auto made = std::make_unique<FileInstance>(std::move(file), channels, std::move(cost));
  Instance instance(made.release(), destroy);
  return {{std::move(name), &kOps, instance.get()}, std::move(instance)};
}

}  // namespace tutti::program
