// SPDX-License-Identifier: Apache-2.0
#include "topology/graph.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "topology/system.h"

namespace tutti::topology {
namespace {

/// Every rank of the machine exactly once.
bool names_all(std::span<const uint32_t> order, const tutti_topology& topology, uint32_t node, size_t ranks) {
  std::vector<uint32_t> sorted(order.begin(), order.end());
  std::sort(sorted.begin(), sorted.end());
  return sorted.size() == ranks && std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end() &&
         std::all_of(sorted.begin(), sorted.end(),
                     [&](uint32_t rank) { return rank < topology.rank_count && topology.node_of_rank[rank] == node; });
}

template <class T>
void append(std::vector<std::byte>& bytes, const T* data, size_t count) {
  const auto* begin = reinterpret_cast<const std::byte*>(data);
  bytes.insert(bytes.end(), begin, begin + count * sizeof(T));
}

/// "mlx5_0 → 0 1 2 3 → mlx5_0".
std::string channel_text(const NodeGraph& graph, uint32_t channel, const System& system) {
  const auto port = [&](uint32_t index) -> std::string {
    for (const uint32_t node : system.nodes_of(TUTTI_NODE_NET)) {
      if (system.nodes()[node].index == index) return system.name(node);
    }
    return "any port";
  };
  std::string ranks = fmt::format("{}", fmt::join(graph.order(channel), " "));
  if (graph.net_in(channel) == TUTTI_NO_NET) return ranks;
  return fmt::format("{} → {} → {}", port(graph.net_in(channel)), ranks, port(graph.net_out(channel)));
}

}  // namespace

Result<NodeGraph> NodeGraph::copy(const tutti_graph& graph, const tutti_topology& topology, uint32_t node) {
  const auto ranks =
      static_cast<size_t>(std::count(topology.node_of_rank, topology.node_of_rank + topology.rank_count, node));
  if (graph.channel_count == 0 || graph.rank_count != ranks || graph.orders == nullptr) {
    return Status(Code::kInternal, fmt::format("it reported {} channels of {} ranks for a machine of {}",
                                               graph.channel_count, graph.rank_count, ranks));
  }
  NodeGraph made;
  made.head_ = graph;
  made.head_.node = node;
  made.head_.orders = nullptr;  // view() sets them
  made.head_.nets = nullptr;
  made.orders_.assign(graph.orders, graph.orders + size_t{graph.channel_count} * ranks);
  made.nets_.assign(size_t{graph.channel_count} * 2, TUTTI_NO_NET);
  if (graph.nets != nullptr) std::copy_n(graph.nets, made.nets_.size(), made.nets_.begin());
  for (uint32_t channel = 0; channel < graph.channel_count; ++channel) {
    if (!names_all(made.order(channel), topology, node, ranks)) {
      return Status(Code::kInternal,
                    fmt::format("channel {} does not name every rank of machine {} exactly once", channel, node));
    }
  }
  return made;
}

std::vector<std::byte> NodeGraph::encode() const {
  std::vector<std::byte> bytes;
  append(bytes, &head_, 1);
  append(bytes, orders_.data(), orders_.size());
  append(bytes, nets_.data(), nets_.size());
  return bytes;
}

Result<NodeGraph> NodeGraph::decode(std::span<const std::byte> bytes) {
  NodeGraph made;
  if (bytes.size() >= sizeof made.head_) {
    std::memcpy(&made.head_, bytes.data(), sizeof made.head_);
    const size_t orders = size_t{made.head_.channel_count} * made.head_.rank_count;
    const size_t nets = size_t{made.head_.channel_count} * 2;
    if (bytes.size() == sizeof made.head_ + (orders + nets) * sizeof(uint32_t)) {
      made.orders_.resize(orders);
      made.nets_.resize(nets);
      std::memcpy(made.orders_.data(), bytes.data() + sizeof made.head_, orders * sizeof(uint32_t));
      std::memcpy(made.nets_.data(), bytes.data() + sizeof made.head_ + orders * sizeof(uint32_t),
                  nets * sizeof(uint32_t));
      return made;
    }
  }
  return Status(Code::kInternal, fmt::format("{} bytes are not the channels of a machine", bytes.size()));
}

NodeGraph NodeGraph::moved_to(uint32_t node, uint32_t rank_offset) const {
  NodeGraph moved = *this;
  moved.head_.node = node;
  for (uint32_t& rank : moved.orders_) rank += rank_offset;
  return moved;
}

NodeGraph NodeGraph::reordered(std::span<const uint32_t> order) const {
  NodeGraph made = *this;
  made.orders_.clear();
  made.nets_.clear();
  for (const uint32_t channel : order) {
    const auto ranks = this->order(channel);
    made.orders_.insert(made.orders_.end(), ranks.begin(), ranks.end());
    made.nets_.insert(made.nets_.end(), {net_in(channel), net_out(channel)});
  }
  return made;
}

tutti_graph NodeGraph::view() const {
  tutti_graph view = head_;
  view.struct_size = sizeof view;
  view.orders = orders_.data();
  view.nets = nets_.data();
  return view;
}

std::string NodeGraph::summary() const {
  const char* plural = head_.channel_count == 1 ? "" : "s";
  if (!is_searched()) {
    return fmt::format("{} channel{}, ranks in any order", head_.channel_count, plural);
  }
  std::string text = fmt::format("{}: {} channel{} × {:.4g} GB/s, {} between ranks", pattern_name(head_.pattern),
                                 head_.channel_count, plural, head_.intra_gbs, path_name(head_.intra_type));
  if (head_.inter_gbs > 0) {
    text += fmt::format(", {} to the network at {:.4g} GB/s{}", path_name(head_.inter_type), head_.inter_gbs,
                        head_.cross_nic != 0 ? ", crossing NICs" : "");
  }
  if ((head_.flags & TUTTI_GRAPH_FALLBACK) != 0) text += " (fallback: nothing better was found)";
  return text;
}

std::vector<std::string> channel_lines(const NodeGraph& graph, const System& system, bool all) {
  struct Line {
    std::string text;
    uint32_t channel;  ///< the first
    uint32_t count;
  };
  std::vector<Line> lines;
  for (uint32_t channel = 0; channel < graph.channel_count(); ++channel) {
    std::string text = channel_text(graph, channel, system);
    const auto equal = all ? lines.end() : std::ranges::find(lines, text, &Line::text);
    if (equal == lines.end()) {
      lines.push_back({std::move(text), channel, 1});
    } else {
      ++equal->count;
    }
  }
  std::vector<std::string> texts;
  texts.reserve(lines.size());
  for (const Line& line : lines) {
    const std::string times = line.count > 1 ? fmt::format("  (× {})", line.count) : std::string();
    texts.push_back(fmt::format("channel {:>2}: {}{}", line.channel, line.text, times));
  }
  return texts;
}

std::string_view pattern_name(uint32_t pattern) {
  static constexpr std::array<std::string_view, TUTTI_PATTERN_COUNT> kNames = {"ring", "tree", "balanced tree",
                                                                               "split tree"};
  return pattern < kNames.size() ? kNames[pattern] : "unknown pattern";
}

}  // namespace tutti::topology
