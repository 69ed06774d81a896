// SPDX-License-Identifier: Apache-2.0
#include "gpu_plan/plans.h"

#include <fmt/format.h>

#include "communicator/choices.h"
#include "config/config.h"

namespace tutti::bench {

Result<std::vector<plan::Plan>> all_reduce_plans(const std::string& algorithm, uint32_t ranks) {
  config::LoadOptions load;
  TUTTI_ASSIGN(config::Config config, config::Config::load(load));
  TUTTI_ASSIGN(const auto registry, plugin::Registry::load(config, false));
  const std::vector<uint32_t> node_of_rank(ranks, 0);
  tutti_topology topology{};
  topology.struct_size = sizeof topology;
  topology.rank_count = ranks;
  topology.node_count = 1;
  topology.min_channels = topology.max_channels = 1;
  topology.node_of_rank = node_of_rank.data();
  topology.bandwidth_gbs[TUTTI_LINK_P2P] = 370;
  for (const plan::AlgorithmPlugin& plugin : communicator::algorithms_of(*registry)) {
    TUTTI_ASSIGN(plan::Instance instance, plan::search_and_connect(plugin, topology));
    tutti_str name{};
    uint64_t collectives = 0;
    for (uint32_t v = 0; plugin.ops->variant(plugin.self, v, &name, &collectives) == TUTTI_OK; ++v) {
      const std::string variant(name.data, name.size);
      if (plugin.name + (variant.empty() ? "" : "/") + variant != algorithm) continue;
      std::vector<plan::Plan> plans;
      for (uint32_t rank = 0; rank < ranks; ++rank) {
        TUTTI_ASSIGN(plan::Plan plan, plan::collect(*plugin.ops, instance.get(),
                                                    {sizeof(tutti_plan_request), TUTTI_ALL_REDUCE, rank, 0, 0, v}));
        plans.push_back(std::move(plan));
      }
      return plans;
    }
  }
  return Status(Code::kNotFound, fmt::format("no algorithm '{}' among the plugins", algorithm));
}

}  // namespace tutti::bench
