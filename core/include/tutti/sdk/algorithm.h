// SPDX-License-Identifier: Apache-2.0
// The C++ face of an algorithm plugin; the contract is in tutti/plugin/algorithm.h.
#pragma once

#include <functional>
#include <span>

#include "tutti/plugin/algorithm.h"
#include "tutti/sdk/plan_builder.h"
#include "tutti/sdk/plugin.h"

namespace tutti::sdk {

/// The channels of one communicator, made by Algorithm::connect. Any thread.
class AlgorithmInstance {
 public:
  virtual ~AlgorithmInstance() = default;
  virtual uint32_t channel_count() const = 0;
  /// The plan of one rank on one channel. kUnsupported if the variant cannot do it.
  virtual Result<PlanBuilder> plan(const tutti_plan_request& request) const = 0;
  virtual Result<tutti_algorithm_cost> cost(uint32_t collective, uint32_t variant) const = 0;

 private:
  friend class Algorithm;
  Host host_;
};

class Algorithm : public Plugin {
 public:
  using Kind = Algorithm;
  static constexpr uint32_t kKind = TUTTI_KIND_ALGORITHM;

  /// One of the ways the algorithm runs, and the collectives it can do (bits 1 << TUTTI_ALL_REDUCE ...). Static
  /// strings.
  struct Variant {
    std::string_view name;
    uint64_t collectives;
  };
  /// Takes a channel of the node: its ranks in order, and GB/s.
  using AddChannel = std::function<Status(std::span<const uint32_t> order, double bandwidth_gbs)>;

  virtual std::span<const Variant> variants() const = 0;
  /// search: reports the channels of the node that holds `rank`, best first. The default: one, ranks ascending.
  virtual Status search(const tutti_topology& topology, uint32_t rank, uint32_t max_channels, const AddChannel& add) {
    (void)max_channels;
    std::vector<uint32_t> order;
    for (uint32_t r = 0; r < topology.rank_count; ++r) {
      if (topology.node_of_rank[r] == topology.node_of_rank[rank]) order.push_back(r);
    }
    return add(order, topology.bandwidth_gbs[TUTTI_LINK_SHM]);
  }
  /// connect: joins the nodes' channels. All ranks get the same graphs and must make the same channels.
  virtual Result<std::unique_ptr<AlgorithmInstance>> connect(const tutti_topology& topology,
                                                             std::span<const tutti_node_graph> graphs) = 0;

  static const tutti_algorithm_ops* table();

 private:
  static int32_t search_thunk(void* self, const tutti_topology* topology, uint32_t rank, uint32_t max_channels,
                              const tutti_graph_sink* sink) {
    auto& algorithm = *static_cast<Algorithm*>(self);
    return guarded(algorithm.host(), [&]() -> Status {
      return algorithm.search(
          *topology, rank, max_channels, [&](std::span<const uint32_t> order, double gbs) -> Status {
            const int32_t code =
                sink->add_channel(sink->context, order.data(), static_cast<uint32_t>(order.size()), gbs);
            return code == TUTTI_OK ? Status() : Status(static_cast<Code>(code), "the host refused a channel");
          });
    });
  }
  static int32_t connect_thunk(void* self, const tutti_topology* topology, const tutti_node_graph* graphs,
                               uint32_t count, void** instance) {
    auto& algorithm = *static_cast<Algorithm*>(self);
    return guarded(algorithm.host(), [&]() -> Status {
      TUTTI_ASSIGN(std::unique_ptr<AlgorithmInstance> made, algorithm.connect(*topology, {graphs, count}));
      made->host_ = algorithm.host();
      *instance = made.release();
      return {};
    });
  }
  static uint32_t channel_count_thunk(void* instance) {
    const auto& channels = *static_cast<AlgorithmInstance*>(instance);
    uint32_t count = 0;
    guarded(channels.host_, [&]() -> int32_t { return count = channels.channel_count(), TUTTI_OK; });
    return count;
  }
  static int32_t variant_thunk(void* self, uint32_t index, tutti_str* name, uint64_t* collectives) {
    const auto& algorithm = *static_cast<Algorithm*>(self);
    return guarded(algorithm.host(), [&]() -> int32_t {
      const auto all = algorithm.variants();
      if (index >= all.size()) return TUTTI_NOT_FOUND;
      *name = borrow(all[index].name);
      *collectives = all[index].collectives;
      return TUTTI_OK;
    });
  }
  static int32_t plan_thunk(void* instance, const tutti_plan_request* request, const tutti_plan_sink* sink) {
    const auto& channels = *static_cast<AlgorithmInstance*>(instance);
    return guarded(channels.host_, [&]() -> int32_t {
      Result<PlanBuilder> plan = channels.plan(*request);
      return plan.ok() ? plan->emit(*sink) : channels.host_.fail(plan.status());
    });
  }
  static int32_t cost_thunk(void* instance, uint32_t collective, uint32_t variant, tutti_algorithm_cost* out) {
    const auto& channels = *static_cast<AlgorithmInstance*>(instance);
    return guarded(channels.host_, [&]() -> Status {
      TUTTI_ASSIGN(*out, channels.cost(collective, variant));
      out->struct_size = sizeof(tutti_algorithm_cost);
      return {};
    });
  }
};

inline const tutti_algorithm_ops* Algorithm::table() {
  static const tutti_algorithm_ops ops = {sizeof(tutti_algorithm_ops),
                                          0,
                                          search_thunk,
                                          connect_thunk,
                                          [](void* instance) { delete static_cast<AlgorithmInstance*>(instance); },
                                          channel_count_thunk,
                                          variant_thunk,
                                          plan_thunk,
                                          cost_thunk};
  return &ops;
}

}  // namespace tutti::sdk
