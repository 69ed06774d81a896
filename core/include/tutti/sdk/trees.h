// SPDX-License-Identifier: Apache-2.0
// Double binary trees over machines, and trees over all ranks. Header only, for plugins.
// Threads: any thread; the functions keep no state.
//
// Source: P. Sanders, J. Speck, J. L. Träff, "Two-tree algorithms for full bandwidth broadcast, reduction and scan",
// Parallel Computing 35 (2009). The paper defines two binary trees over the same machines. A machine that has children
// in one tree is a leaf of the other tree. Each tree carries half of the data, so all machines send and receive the
// same amount.
#pragma once

#include <array>
#include <bit>

#include "tutti/sdk/rings.h"

namespace tutti::sdk {

/// In place of a machine or a rank: there is none.
inline constexpr uint32_t kNobody = UINT32_MAX;

/// The place of a machine in a binary tree over machines.
struct TreePlace {
  uint32_t parent = kNobody;
  std::array<uint32_t, 2> children = {kNobody, kNobody};

  bool is_leaf() const { return children[0] == kNobody && children[1] == kNobody; }
};

namespace detail {

/// The place of `number` in the in-order tree over 1 .. count. Odd numbers are leaves. The height of a number is its
/// number of trailing zero bits.
inline TreePlace in_order_place(uint32_t number, uint32_t count) {
  TreePlace place;
  const uint32_t low = number & -number;
  const uint32_t root = std::bit_floor(count);
  if (number != root) {
    const uint32_t above = (number ^ low) | low << 1;
    place.parent = above <= count ? above : number ^ low;
  }
  if (low > 1) {
    place.children[0] = number - low / 2;
    for (uint32_t step = low / 2; step > 0 && number < count; step /= 2) {
      if (number + step > count) continue;
      place.children[1] = number + step;
      break;
    }
  }
  return place;
}

/// A place whose machines are renumbered by `map`. kNobody stays kNobody.
template <class Map>
TreePlace renumbered(TreePlace place, Map&& map) {
  const auto apply = [&](uint32_t node) { return node == kNobody ? kNobody : map(node); };
  return {apply(place.parent), {apply(place.children[0]), apply(place.children[1])}};
}

}  // namespace detail

/// The place of machine `node` in tree `tree` (0 or 1) of the double tree over `count` machines. Every machine is a
/// leaf in one tree and has children in the other tree. A single machine is a leaf in both. No path from the root to a
/// leaf has more than ⌈log2 count⌉ + 1 machines.
inline TreePlace double_tree_place(uint32_t node, uint32_t count, uint32_t tree) {
  using detail::in_order_place;
  using detail::renumbered;
  // Tree 0: the in-order tree over 1 .. count. Odd nodes have children.
  if (tree == 0) return renumbered(in_order_place(node + 1, count), [](uint32_t n) { return n - 1; });
  // Tree 1 of an even count: the mirror image, which swaps odd and even nodes.
  if (count % 2 == 0) return renumbered(in_order_place(count - node, count), [&](uint32_t n) { return count - n; });
  // Tree 1 of an odd count: node 0 is the root, with the in-order tree over 1 .. count - 1 below it. Its leaves are the
  // odd nodes.
  if (node == 0) return {kNobody, {count > 1 ? std::bit_floor(count - 1) : kNobody, kNobody}};
  TreePlace place = in_order_place(node, count - 1);
  if (place.parent == kNobody) place.parent = 0;
  return place;
}

/// The neighbours of a rank in a tree over all ranks. It has at most one child in its machine and two in other
/// machines.
struct TreeNode {
  uint32_t parent = kNobody;
  std::array<uint32_t, 3> children = {kNobody, kNobody, kNobody};
};

/// A tree over all ranks: element r is the node of rank r.
using Tree = std::vector<TreeNode>;

namespace detail {

/// The rank of a machine that exchanges data with the machine of child `child` (0 or 1); see TUTTI_PATTERN_*.
inline uint32_t rank_for_child(const tutti_graph& graph, std::span<const uint32_t> order, uint32_t child) {
  const bool second =
      graph.pattern == TUTTI_PATTERN_SPLIT_TREE || (graph.pattern == TUTTI_PATTERN_BALANCED_TREE && child == 1);
  return order[second && order.size() > 1 ? 1 : 0];
}

inline void add_child(TreeNode& node, uint32_t child) {
  *std::find(node.children.begin(), node.children.end(), kNobody) = child;
}

}  // namespace detail

/// One tree over all ranks per channel: a chain along the order of each machine, and the double tree between machines.
/// With several machines, channel c of the machines becomes two channels, 2c and 2c + 1, one for each tree of the
/// double tree. topology.max_channels limits the number of channels. Errors: kInvalidArgument if a machine has no
/// channel, if a channel contains a rank of a different machine, or if it does not contain every rank.
inline Result<std::vector<Tree>> join_trees(const tutti_topology& topology, std::span<const tutti_graph> graphs) {
  const uint32_t common = common_channels(topology, graphs);
  if (common == 0) return Status(Code::kInvalidArgument, "a machine has no channel");
  const auto nodes = static_cast<uint32_t>(graphs.size());
  const uint32_t both = nodes > 1 && topology.max_channels > 1 ? 2 : 1;
  const uint32_t limit = topology.max_channels == 0 ? common * both : topology.max_channels;
  std::vector<Tree> trees(std::max(std::min(common * both, limit), topology.min_channels), Tree(topology.rank_count));
  for (uint32_t channel = 0; channel < trees.size(); ++channel) {
    Tree& tree = trees[channel];
    const auto order = [&](uint32_t node) {
      return order_of(graphs[node], channel_in_node(graphs[node], channel / both, common));
    };
    uint32_t named = 0;
    for (uint32_t node = 0; node < nodes; ++node) {
      const auto own = order(node);
      for (const uint32_t rank : own) {
        if (rank >= topology.rank_count || topology.node_of_rank[rank] != node) {
          return Status(Code::kInvalidArgument, "a channel names a rank of another machine");
        }
      }
      named += static_cast<uint32_t>(own.size());
      for (size_t i = 1; i < own.size(); ++i) {
        tree[own[i]].parent = own[i - 1];
        detail::add_child(tree[own[i - 1]], own[i]);
      }
      const TreePlace place = double_tree_place(node, nodes, channel % 2);
      for (uint32_t child = 0; child < 2; ++child) {
        if (place.children[child] == kNobody) continue;
        const uint32_t from = detail::rank_for_child(graphs[node], own, child);
        const uint32_t to = order(place.children[child])[0];
        detail::add_child(tree[from], to);
        tree[to].parent = from;
      }
    }
    if (named != topology.rank_count) return Status(Code::kInvalidArgument, "a channel does not name every rank once");
  }
  return trees;
}

}  // namespace tutti::sdk
