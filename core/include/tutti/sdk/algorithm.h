// SPDX-License-Identifier: Apache-2.0
// The C++ classes of an algorithm plugin. tutti/plugin/algorithm.h states the contract of each function.
#pragma once

#include <span>

#include "tutti/plugin/algorithm.h"
#include "tutti/sdk/graph.h"
#include "tutti/sdk/plan_builder.h"
#include "tutti/sdk/plugin.h"

namespace tutti::sdk {

/// The channels of one communicator. Algorithm::connect makes them. Threads: any thread may call any function at any
/// time.
class AlgorithmInstance {
 public:
  virtual ~AlgorithmInstance() = default;
  virtual uint32_t channel_count() const = 0;
  /// The plan of one rank on one channel. Errors: kUnsupported if the variant cannot do the collective; then it must
  /// fail for all ranks, channels and roots.
  virtual Result<PlanBuilder> plan(const tutti_plan_request& request) const = 0;
  /// The cost of a variant for a collective. It sets all fields except struct_size.
  virtual Result<tutti_algorithm_cost> cost(uint32_t collective, uint32_t variant) const = 0;
  /// The network devices by which `rank` sends to and receives from `peer`, a rank of a different machine, on a
  /// channel. The default: any device.
  virtual tutti_channel_nets nets(uint32_t channel, uint32_t rank, uint32_t peer) const {
    (void)channel, (void)rank, (void)peer;
    return {TUTTI_NO_NET, TUTTI_NO_NET};
  }

 private:
  friend class Algorithm;
  Host host_;
};

/// An algorithm plugin. Threads: one thread at a time calls open, search and connect; any thread may call variants.
class Algorithm : public Plugin {
 public:
  using Kind = Algorithm;
  static constexpr uint32_t kKind = TUTTI_KIND_ALGORITHM;
  static constexpr Abi kAbi = {TUTTI_ALGORITHM_ABI_MAJOR, TUTTI_ALGORITHM_ABI_MINOR};

  /// A variant of the algorithm, and the collectives that it can do, as bits (1 << TUTTI_ALL_REDUCE ...). The name is a
  /// static string.
  struct Variant {
    std::string_view name;
    uint64_t collectives;
  };

  virtual std::span<const Variant> variants() const = 0;
  /// search: finds the channels of the machine of `rank`, best first. tutti/sdk/search.h finds rings and trees. The
  /// default: one channel with the ranks in ascending order.
  virtual Result<Graph> search(const tutti_topology& topology, uint32_t rank) { return ascending(topology, rank, 1); }
  /// connect: joins the channels of all machines, one graph per machine. All ranks get the same graphs, and must make
  /// the same channels.
  virtual Result<std::unique_ptr<AlgorithmInstance>> connect(const tutti_topology& topology,
                                                             std::span<const tutti_graph> graphs) = 0;

  static const tutti_algorithm_ops* table();

 private:
  static int32_t search_thunk(void* self, const tutti_topology* topology, uint32_t rank, const tutti_graph_sink* sink) {
    auto& algorithm = *static_cast<Algorithm*>(self);
    return guarded(algorithm.host(), [&]() -> Status {
      TUTTI_ASSIGN(const Graph graph, algorithm.search(*topology, rank));
      return report(graph, topology->node_of_rank[rank], *sink);
    });
  }
  static int32_t connect_thunk(void* self, const tutti_topology* topology, const tutti_graph* graphs, uint32_t count,
                               void** instance) {
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
      if (!plan.ok()) return channels.host_.fail(plan.status());
      const int32_t code = plan->emit(*sink);
      if (code != TUTTI_UNSUPPORTED) return code;
      return channels.host_.fail(Status(Code::kUnsupported, "the steps have more peers than a plan can name"));
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
  static int32_t nets_thunk(void* instance, uint32_t channel, uint32_t rank, uint32_t peer, tutti_channel_nets* out) {
    const auto& channels = *static_cast<AlgorithmInstance*>(instance);
    return guarded(channels.host_, [&]() -> int32_t { return *out = channels.nets(channel, rank, peer), TUTTI_OK; });
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
                                          cost_thunk,
                                          nets_thunk};
  return &ops;
}

}  // namespace tutti::sdk
