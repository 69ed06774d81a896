// SPDX-License-Identifier: Apache-2.0
#include "schedules.h"

#include <algorithm>

namespace tutti::tree {
namespace {

using sdk::Buffer;
using sdk::kNobody;
using sdk::PlanBuilder;
using sdk::Tree;

/// One rank's neighbours when the tree hangs from `root`.
struct View {
  uint32_t up = kNobody;
  std::vector<uint32_t> down;
  bool is_root() const { return up == kNobody; }
};

uint32_t own_root(const Tree& tree) {
  uint32_t rank = 0;
  while (tree[rank].parent != kNobody) rank = tree[rank].parent;
  return rank;
}

/// The child of `rank` through which `root` is reached; kNobody if it lies above or is `rank` itself.
uint32_t child_towards(const Tree& tree, uint32_t rank, uint32_t root) {
  for (uint32_t at = root; tree[at].parent != kNobody; at = tree[at].parent) {
    if (tree[at].parent == rank) return at;
  }
  return kNobody;
}

/// Any rank can be the root: the edges between it and the tree's own root turn around.
View seen_from(const Tree& tree, uint32_t rank, uint32_t root) {
  View view;
  const uint32_t below = child_towards(tree, rank, root);
  if (rank != root) view.up = below != kNobody ? below : tree[rank].parent;
  for (const uint32_t child : tree[rank].children) {
    if (child != kNobody && child != view.up) view.down.push_back(child);
  }
  if (tree[rank].parent != kNobody && tree[rank].parent != view.up) view.down.push_back(tree[rank].parent);
  return view;
}

void send_down(PlanBuilder::Step& step, const View& view) {
  for (const uint32_t child : view.down) step.send(child);
}

/// Folds the messages of the children with the own chunk, and sends the value to the parent. The root stores it.
PlanBuilder::Step& reduce(PlanBuilder& plan, const View& view, uint32_t chunk) {
  PlanBuilder::Step& step = plan.step().own(Buffer::kInput, chunk);
  for (const uint32_t child : view.down) step.recv(child);
  return view.is_root() ? step.final().to_output(chunk) : step.send(view.up);
}

void all_reduce(PlanBuilder& plan, const View& view) {
  PlanBuilder::Step& last = reduce(plan, view, 0);
  if (view.is_root()) return send_down(last, view);
  send_down(plan.step().recv(view.up).to_output(0), view);
}

/// First all chunks go up, then all go down: neither phase waits for the other's slots, and each keeps every link of
/// the tree busy once it is filled.
void pipelined_all_reduce(PlanBuilder& plan, const View& view, uint32_t chunks) {
  for (uint32_t chunk = 0; chunk < chunks; ++chunk) reduce(plan, view, chunk);
  for (uint32_t chunk = 0; chunk < chunks; ++chunk) {
    if (!view.is_root()) {
      send_down(plan.step().recv(view.up).to_output(chunk), view);
    } else if (!view.down.empty()) {
      send_down(plan.step().own(Buffer::kOutput, chunk), view);
    }
  }
}

void broadcast(PlanBuilder& plan, const View& view) {
  PlanBuilder::Step& step = plan.step().to_output(0);
  if (view.is_root()) {
    step.own(Buffer::kInput, 0);
  } else {
    step.recv(view.up);
  }
  send_down(step, view);
}

}  // namespace

Depth depth_of(const Tree& tree, const tutti_topology& topology) {
  // A rank's depth follows from its parent's depth: climb to a rank with a known depth, then fill the way back.
  std::vector<Depth> depths(tree.size());
  std::vector<bool> known(tree.size());
  Depth deepest;
  std::vector<uint32_t> way;
  for (uint32_t rank = 0; rank < tree.size(); ++rank) {
    uint32_t at = rank;
    for (; !known[at]; at = tree[at].parent) {
      known[at] = true;
      way.push_back(at);
      if (tree[at].parent == kNobody) break;
    }
    for (; !way.empty(); way.pop_back()) {
      const uint32_t below = way.back();
      const uint32_t parent = tree[below].parent;
      if (parent == kNobody) continue;
      depths[below] = depths[parent];
      ++(topology.node_of_rank[below] == topology.node_of_rank[parent] ? depths[below].inside : depths[below].between);
      if (depths[below].total() > deepest.total()) deepest = depths[below];
    }
  }
  return deepest;
}

uint32_t pipelined_chunks(const Depth& depth) {
  return std::clamp(4 * depth.total(), 8u, 64u);
}

sdk::PlanBuilder schedule(const tutti_plan_request& request, const Tree& tree, uint32_t pipelined_chunks) {
  const bool rooted = request.collective != TUTTI_ALL_REDUCE;
  const View view = seen_from(tree, request.rank, rooted ? request.root : own_root(tree));
  const uint32_t chunks = request.variant == kPipelined ? pipelined_chunks : 1;
  PlanBuilder plan(request, static_cast<uint32_t>(tree.size()), chunks);
  if (request.variant == kPipelined) {
    pipelined_all_reduce(plan, view, chunks);
  } else if (request.collective == TUTTI_ALL_REDUCE) {
    all_reduce(plan, view);
  } else if (request.collective == TUTTI_BROADCAST) {
    broadcast(plan, view);
  } else {
    reduce(plan, view, 0);
  }
  return plan;
}

namespace {

/// How many streams a root has, on average over where in a machine's chain it is: two unless at an end.
double streams_of_root(uint32_t collective, const Depth& depth) {
  if (collective == TUTTI_ALL_REDUCE || depth.between > 0) return 1;
  return 2.0 * depth.inside / (depth.inside + 1);
}

}  // namespace

tutti_algorithm_cost cost(uint32_t collective, uint32_t variant, const Depth& depth, uint32_t inside_link,
                          double streams, uint32_t most_ranks) {
  const double ways = collective == TUTTI_ALL_REDUCE ? 2 : 1;
  // The number of times that the whole data waits for the busiest link: once per direction if chunks follow each other
  // closely (broadcast and reduce do so over loops), otherwise once per hop.
  const uint32_t chunks = variant == kPipelined ? pipelined_chunks(depth) : 1;
  const auto queued = [&](uint32_t hops) {
    if (collective != TUTTI_ALL_REDUCE) return 1.0;
    return variant == kPipelined ? 1.0 + static_cast<double>(hops) / chunks : static_cast<double>(hops);
  };
  tutti_algorithm_cost cost = {};
  cost.struct_size = sizeof(cost);
  cost.fan = 4;
  cost.hops[inside_link] = static_cast<uint32_t>(ways) * depth.inside;
  cost.hops[TUTTI_LINK_NETWORK] = static_cast<uint32_t>(ways) * depth.between;
  const auto further = static_cast<uint32_t>(ways) * (chunks - 1);
  if (depth.between > 0) {
    // Between machines, the further chunks of a loop follow the first chunk as messages of their own.
    cost.messages[TUTTI_LINK_NETWORK] = cost.hops[TUTTI_LINK_NETWORK] + further;
  } else {
    cost.hops[inside_link] += further;  // each is one more handshake
  }
  if (depth.inside > 0) cost.wire[inside_link] = ways * queued(depth.inside) * streams_of_root(collective, depth);
  if (depth.between > 0) cost.wire[TUTTI_LINK_NETWORK] = ways * queued(depth.between) * streams;
  cost.memory = 2.0 + ways;
  // All data crosses each link of the tree once per way. A machine has a chain of its ranks, links to its children, and
  // with three machines or more a link to its parent.
  const double ends_inside = 2.0 * (most_ranks - 1);
  const double ends_outside = depth.between == 0 ? 0 : streams > 1 ? streams + 1 : depth.between > 1 ? 2 : 1;
  cost.machine_messages[inside_link] = static_cast<uint32_t>(ends_inside * ways * chunks);
  cost.machine_messages[TUTTI_LINK_NETWORK] = static_cast<uint32_t>(ends_outside * ways * chunks);
  cost.machine_wire[inside_link] = ends_inside * ways;
  cost.machine_wire[TUTTI_LINK_NETWORK] = ends_outside * ways;
  return cost;
}

}  // namespace tutti::tree
