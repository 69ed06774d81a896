// SPDX-License-Identifier: Apache-2.0
#include "program/cost.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <deque>

#include "program/passes/order_strands.h"
#include "program/repeat.h"
#include "program/verify/prove.h"
#include "tutti/sdk/graph.h"

namespace tutti::program {
namespace {

using Hops = std::array<uint32_t, TUTTI_LINK_COUNT>;

/// The kind of link between two ranks: ranks of one machine have the one that the topology gives a bandwidth.
class Links {
 public:
  explicit Links(const tutti_topology& topology) : topology_(topology), local_(sdk::link_inside(topology)) {}

  uint32_t between(uint32_t a, uint32_t b) const {
    return topology_.node_of_rank[a] == topology_.node_of_rank[b] ? local_ : TUTTI_LINK_NETWORK;
  }
  /// Latency of one message. The constant counts hops where the topology knows no latency.
  double latency(uint32_t link) const { return topology_.latency_us[link] + 1e-3; }

 private:
  const tutti_topology& topology_;
  uint32_t local_;
};

/// The messages on the path that ends last, by kind of link.
class CriticalPath : public Run {
 public:
  CriticalPath(std::span<const Plan> plans, const Connections& connections, const Links& links)
      : Run(plans, connections, kUnlimited, 1), links_(links), ranks_(plans.size()), messages_(connections.size()) {}

  Hops hops() const {
    const auto later = [](const Path& a, const Path& b) { return a.time < b.time; };
    return std::max_element(ranks_.begin(), ranks_.end(), later)->hops;
  }

 protected:
  Status on_send(uint32_t rank, uint32_t index) override {
    const tutti_plan_step& step = plans_[rank].steps[index];
    if ((step.flags & (TUTTI_STEP_GATHER | TUTTI_STEP_SCATTER)) == 0) receive(rank, step);
    for (uint32_t i = step.send_begin; i < step.send_begin + uint32_t{step.send_count}; ++i) {
      Path path = ranks_[rank];
      const uint32_t link = links_.between(rank, plans_[rank].peers[i].rank);
      path.time += links_.latency(link);
      ++path.hops[link];
      messages_[connections_.outgoing(rank, i)].push_back(path);
    }
    return {};
  }
  Status on_gather(uint32_t rank, uint32_t index) override {
    receive(rank, plans_[rank].steps[index]);
    return {};
  }

 private:
  struct Path {
    double time = 0;
    Hops hops = {};
  };

  void receive(uint32_t rank, const tutti_plan_step& step) {
    for (uint32_t i = step.recv_begin; i < step.recv_begin + uint32_t{step.recv_count}; ++i) {
      auto& queue = messages_[connections_.incoming(rank, i)];
      if (queue.front().time > ranks_[rank].time) ranks_[rank] = queue.front();
      queue.pop_front();
    }
  }

  const Links& links_;
  std::vector<Path> ranks_;
  std::vector<std::deque<Path>> messages_;  ///< by connection
};

/// Work of one rank, which sends, receives, reads and writes: messages by kind of link, and chunks.
struct Load {
  Hops sends = {};
  Hops receives = {};
  Hops sent_chunks = {};
  Hops received_chunks = {};
  uint64_t memory = 0;
};

/// Messages that the ranks of a machine send and receive, and their bytes as a multiple of the data.
struct Ends {
  Hops messages = {};
  std::array<double, TUTTI_LINK_COUNT> wire = {};
};

Load load_of(const Plan& plan, const Links& links) {
  Load load;
  for (const tutti_plan_step& step : plan.steps) {
    const uint32_t count = plan.range(step).count;
    for (const tutti_plan_peer& peer : plan.send(step)) {
      const uint32_t link = links.between(plan.rank, peer.rank);
      ++load.sends[link];
      load.sent_chunks[link] += count;
    }
    for (const tutti_plan_peer& peer : plan.recv(step)) {
      const uint32_t link = links.between(plan.rank, peer.rank);
      ++load.receives[link];
      load.received_chunks[link] += count;
    }
    const uint32_t own = (step.source != TUTTI_BUFFER_NONE ? 1 : 0) + (step.destination != TUTTI_BUFFER_NONE ? 1 : 0);
    load.memory += count * (uint64_t{step.send_count} + step.recv_count + own);
  }
  return load;
}

}  // namespace

Result<tutti_algorithm_cost> cost_of(std::span<const Plan> rolled, const tutti_topology& topology) {
  Extent extent;
  for (const Plan& plan : rolled) extent.add(plan);
  if (extent.messages > ProofLimits().messages || extent.steps > ProofLimits().messages) {
    return Status(Code::kUnsupported,
                  fmt::format("the cost of plans with more than {} steps, or sends and receives, is not counted",
                              ProofLimits().messages));
  }
  std::vector<Plan> plans;
  for (const Plan& plan : rolled) {
    TUTTI_ASSIGN(plans.emplace_back(), unroll(plan));
  }
  if (any_strands(plans)) {
    TUTTI_ASSIGN(OneStrandSet listed, in_one_strand(plans));
    plans = std::move(listed.plans);
  }
  const Links links(topology);
  const Connections connections(plans);
  CriticalPath path(plans, connections, links);
  TUTTI_TRY(path.finish());
  tutti_algorithm_cost cost{};
  cost.struct_size = sizeof cost;
  std::copy_n(path.hops().begin(), TUTTI_LINK_COUNT, cost.hops);
  std::vector<Ends> machines(topology.node_count);
  for (const Plan& plan : plans) {
    const Load load = load_of(plan, links);
    const double chunks = static_cast<double>(std::max(plan.input_chunks(), plan.output_chunks()));
    for (uint32_t link = 0; link < TUTTI_LINK_COUNT; ++link) {
      cost.messages[link] = std::max({cost.messages[link], load.sends[link], load.receives[link]});
      cost.wire[link] =
          std::max(cost.wire[link], std::max(load.sent_chunks[link], load.received_chunks[link]) / chunks);
    }
    cost.memory = std::max(cost.memory, static_cast<double>(load.memory) / chunks);
    for (const tutti_plan_step& step : plan.steps) {
      cost.fan = std::max<uint32_t>({cost.fan, step.recv_count, step.send_count});
    }
    Ends& machine = machines[topology.node_of_rank[plan.rank]];
    for (uint32_t link = 0; link < TUTTI_LINK_COUNT; ++link) {
      machine.messages[link] += load.sends[link] + load.receives[link];
      machine.wire[link] += (load.sent_chunks[link] + load.received_chunks[link]) / chunks;
    }
  }
  for (const Ends& machine : machines) {
    for (uint32_t link = 0; link < TUTTI_LINK_COUNT; ++link) {
      cost.machine_messages[link] = std::max(cost.machine_messages[link], machine.messages[link]);
      cost.machine_wire[link] = std::max(cost.machine_wire[link], machine.wire[link]);
    }
  }
  return cost;
}

}  // namespace tutti::program
