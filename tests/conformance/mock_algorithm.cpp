// SPDX-License-Identifier: Apache-2.0
// An algorithm that commits one fault, named in its setting `fault`; with "none" it is right. All-reduce: each rank
// sends its input to all others. Broadcast: the root does.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <limits>

#include "conformance/mock_fault.h"
#include "tutti/sdk/algorithm.h"

namespace tutti::mock {
namespace {

using sdk::Buffer;
using sdk::PlanBuilder;

std::atomic<uint32_t> instances{0};  // relaxed: only counts

class Instance : public sdk::AlgorithmInstance {
 public:
  Instance(const tutti_topology& topology, std::string fault)
      : ranks_(topology.rank_count),
        link_(topology.node_count > 1                      ? TUTTI_LINK_NETWORK
              : topology.bandwidth_gbs[TUTTI_LINK_P2P] > 0 ? TUTTI_LINK_P2P
                                                           : TUTTI_LINK_SHM),
        channels_(fault == "many_channels" ? topology.max_channels + 1 : 1),
        number_(instances++),
        fault_(std::move(fault)) {}

  uint32_t channel_count() const override { return channels_; }

  Result<PlanBuilder> plan(const tutti_plan_request& asked) const override {
    if (has("no_reason")) return Status(Code::kUnsupported, "");
    if (has("wrong_decline")) return Status(Code::kSystem, "the disk is full");
    if (has("partial_decline") && asked.rank == 1) return Status(Code::kUnsupported, "rank 1 has no time");
    tutti_plan_request request = asked;
    if (has("stale_plan") && request.collective == TUTTI_BROADCAST) request.root = 0;  // as it was for another call
    PlanBuilder plan(request, ranks_);
    if (ranks_ == 1) {
      own_value(plan, request);
    } else if (request.collective == TUTTI_BROADCAST) {
      broadcast(plan, request);
    } else {
      all_reduce(plan, request);
    }
    return plan;
  }

  Result<tutti_algorithm_cost> cost(uint32_t /*collective*/, uint32_t /*variant*/) const override {
    tutti_algorithm_cost cost{};
    cost.hops[link_] = 1;
    cost.wire[link_] = has("nan_cost") ? std::numeric_limits<double>::quiet_NaN() : ranks_ - 1;
    if (has("negative_cost")) cost.memory = -1;
    cost.fan = has("small_fan") ? 1 : ranks_ - 1;
    return cost;
  }

  tutti_channel_nets nets(uint32_t /*channel*/, uint32_t /*rank*/, uint32_t /*peer*/) const override {
    return has("unknown_net") ? tutti_channel_nets{7, 7} : tutti_channel_nets{TUTTI_NO_NET, TUTTI_NO_NET};
  }

 private:
  bool has(std::string_view fault) const { return fault_ == fault; }

  static void own_value(PlanBuilder& plan, const tutti_plan_request& request) {
    auto& step = plan.step().own(Buffer::kInput, 0).to_output(0);
    if (request.collective == TUTTI_ALL_REDUCE) step.final();
  }

  void broadcast(PlanBuilder& plan, const tutti_plan_request& request) const {
    if (request.rank != request.root) {
      plan.step().recv(request.root).to_output(0);
      return;
    }
    auto& step = plan.step().own(Buffer::kInput, 0).to_output(0);
    for (uint32_t k = 1; k < ranks_; ++k) step.send((request.rank + k) % ranks_);
  }

  /// Whether the sends go to the peers in descending order: it changes nothing, but the plan is a different plan.
  bool turns(const tutti_plan_request& request) const {
    if (has("rank_plan")) return number_ % 2 == 1;
    if (has("history_plan")) return asked_++ % 2 == 1;
    if (has("racing_plan")) {
      last_rank_ = request.rank;  // shared by all threads
      for (int i = 0; i < 20'000; ++i) asked_++;
      return last_rank_ != request.rank;
    }
    return false;
  }

  void all_reduce(PlanBuilder& plan, const tutti_plan_request& request) const {
    const uint32_t rank = request.rank;
    if (has("process_plan")) plan.scratch(1 + static_cast<uint32_t>(getpid()) % 1000);
    const bool waits_first = has("deadlock");
    if (!waits_first) send_all(plan, request);
    auto& fold = plan.step().own(Buffer::kInput, 0).final().to_output(0);
    for (uint32_t peer = 0; peer < ranks_; ++peer) {
      if (peer != rank) fold.recv(peer);
    }
    if (waits_first) send_all(plan, request);
    if (has("reads_late")) {  // in place, the input is gone
      plan.scratch(1);
      plan.step().own(Buffer::kInput, 0).send((rank + 1) % ranks_);
      plan.step().recv((rank + ranks_ - 1) % ranks_).to_scratch(0);
    }
    if (has("forgets_rank") && rank == ranks_ - 1) plan.step().own(Buffer::kInput, 0).final().to_output(0);
  }

  void send_all(PlanBuilder& plan, const tutti_plan_request& request) const {
    if (turns(request)) plan.step().own(Buffer::kInput, 0).to_scratch(0), plan.scratch(1);
    auto& sends = plan.step().own(Buffer::kInput, 0);
    for (uint32_t k = 1; k < ranks_; ++k) sends.send((request.rank + k) % ranks_);
  }

  uint32_t ranks_;
  uint32_t link_;
  uint32_t channels_;
  uint32_t number_;
  std::string fault_;
  mutable std::atomic<uint32_t> asked_{0};      // relaxed: only counts
  mutable std::atomic<uint32_t> last_rank_{0};  // relaxed: a fault
};

class Mock : public sdk::Algorithm {
 public:
  static std::vector<tutti_config_key> settings() { return fault_setting(); }
  static const tutti_algorithm_ops* table();

  Status open(const sdk::Host& host) override {
    fault() = host.text("fault");
    return {};
  }

  std::span<const Variant> variants() const override {
    constexpr uint64_t kBoth = 1u << TUTTI_ALL_REDUCE | 1u << TUTTI_BROADCAST;
    static constexpr Variant kOne[] = {{"", kBoth}};
    static constexpr Variant kSame[] = {{"same", kBoth}, {"same", kBoth}};
    static constexpr Variant kFuture[] = {{"", kBoth | uint64_t{1} << 40}};
    if (fault() == "same_variants") return kSame;
    if (fault() == "unknown_collective") return kFuture;
    return kOne;
  }

  Result<sdk::Graph> search(const tutti_topology& topology, uint32_t rank) override {
    sdk::Graph graph = sdk::ascending(topology, rank, 1);
    std::vector<uint32_t>& order = graph.channels[0].order;
    if (fault() == "loses_rank" && order.size() > 1) order.back() = order.front();
    if (fault() == "timed_search" && time(nullptr) % 2 == 1) std::reverse(order.begin(), order.end());
    return graph;
  }

  Result<std::unique_ptr<sdk::AlgorithmInstance>> connect(const tutti_topology& topology,
                                                          std::span<const tutti_graph> /*graphs*/) override {
    return std::unique_ptr<sdk::AlgorithmInstance>(std::make_unique<Instance>(topology, fault()));
  }

  static std::string& fault() {
    static std::string name;
    return name;
  }
};

int32_t endless_variant(void* /*self*/, uint32_t index, tutti_str* name, uint64_t* collectives) {
  static std::string names[64];
  names[index % 64] = std::to_string(index);
  *name = sdk::borrow(names[index % 64]);
  *collectives = 1u << TUTTI_ALL_REDUCE;
  return TUTTI_OK;
}

/// The table of the SDK, with entries that the SDK's thunks would repair.
const tutti_algorithm_ops* Mock::table() {
  static tutti_algorithm_ops ops = *sdk::Algorithm::table();
  ops.plan = [](void* instance, const tutti_plan_request* request, const tutti_plan_sink* sink) {
    misbehave(fault());
    return sdk::Algorithm::table()->plan(instance, request, sink);
  };
  ops.variant = [](void* self, uint32_t index, tutti_str* name, uint64_t* collectives) {
    if (fault() == "endless_variants") return endless_variant(self, index, name, collectives);
    return sdk::Algorithm::table()->variant(self, index, name, collectives);
  };
  return &ops;
}

}  // namespace
}  // namespace tutti::mock

extern "C" __attribute__((visibility("default"))) int32_t tutti_plugin_entry_v1(tutti_plugin* out) {
  const int32_t code = tutti::sdk::describe<tutti::mock::Mock>(out, "mock", "1.0", "an algorithm with faults");
  if (code == TUTTI_OK) out->ops = tutti::mock::Mock::table();
  return code;
}
