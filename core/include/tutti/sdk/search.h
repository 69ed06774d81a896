// SPDX-License-Identifier: Apache-2.0
// Search: finds the channels of one machine with the largest total bandwidth. Header only, for algorithm plugins.
//
//   Result<Graph> search(const tutti_topology& topology, uint32_t rank) override {
//     return sdk::search(topology, rank, TUTTI_PATTERN_RING, {.max_channels = topology.max_channels});
//   }
//
// The search maximises the number of channels × the GB/s of a channel. It has three conditions: the allowed types of
// paths between ranks, the allowed types of paths between ranks and ports, and the allowed ports of exit. A set of
// conditions is a stage:
//
//   - The first stage is strict: close paths, and each channel leaves by its port of entry. The following stages allow
//     first farther paths between ranks, then farther ports, then other ports of exit.
//   - A later stage must carry 10 % more than the best result so far. If it is the first to use paths outside NVLink,
//     it must carry 50 % more.
//   - In each stage, the search tries speeds of a channel, from the fastest downwards. At each speed it first tries the
//     same order of ranks in all channels, then different orders.
//   - A stage ends, or is left out, if a bound of the bandwidth permits no improvement.
//
// At the end, the channels share the bandwidth that their links have left in equal parts. While a channel carries more
// than a thread block comfortably moves, the search doubles the number of channels and halves their speed. No more
// channels enter or leave by a port than it takes (tutti_system_node.max_channels).
//
// The bandwidth of a channel is the bandwidth of each of its hops, in the direction from the first rank to the last
// rank (and, in a ring, to the next machine). A tree that uses both directions at once shares this bandwidth between
// them.
#pragma once

#include <cmath>
#include <string>

#include "tutti/sdk/detail/finder.h"

namespace tutti::sdk {

/// The limits of a search.
struct SearchOptions {
  uint32_t max_channels = 32;
  /// `budget`: the number of steps of the whole search. A step tries one device, and takes some microseconds.
  /// `patience`: the number of steps without a further channel after which the search gives up a speed in a stage.
  /// The result depends on the number of steps, never on time.
  uint64_t budget = 120'000;
  uint64_t patience = 3'000;
  /// The channels over all machines that connect makes of each found channel. The limits of ports count these.
  uint32_t joined = 1;
};

namespace detail {

/// The bandwidth that channels of speed 1 take from every link, by index of the link: between ranks, and to the
/// network.
struct UnitLoads {
  std::vector<double> intra;
  std::vector<double> inter;
};

/// A search of one machine.
class Search {
 public:
  Search(const Machine& machine, uint32_t pattern, const SearchOptions& options)
      : machine_(machine), pattern_(pattern), options_(options) {}

  Graph run() {
    if (machine_.device_count() == 1 && machine_.net_count() == 0) return graph_of({fallback_route()}, {});
    Graph best;
    const std::vector<Stage> stages = this->stages();
    const std::vector<double> speeds = this->speeds();
    uint64_t spare = 0;
    for (size_t i = 0; i < stages.size(); ++i) {
      const Stage& stage = stages[i];
      const double worth = capacity_of(best) * worth_relaxing(best, stage);
      spare += options_.budget / stages.size();
      if (bound(stage) <= worth * (1 + kWorthwhile)) continue;
      Graph found = sweep(stage, speeds, spare);
      if (capacity_of(found) > worth) best = std::move(found);
    }
    Graph fallback = graph_of({fallback_route()}, fallback_conditions());
    fallback.fallback = true;
    if (best.channels.empty() || capacity_of(best) < capacity_of(fallback)) best = std::move(fallback);
    return doubled(std::move(best));
  }

 private:
  /// The least relative gain that counts.
  static constexpr double kWorthwhile = 1e-3;
  /// A speed is below this fraction of the speed before it.
  static constexpr double kSpeedRatio = 0.93;

  /// A set of conditions: the farthest types of paths, and whether a channel may leave by a different port.
  struct Stage {
    uint32_t intra_type;
    uint32_t inter_type;
    bool cross_nic;
  };

  bool is_ring() const { return pattern_ == TUTTI_PATTERN_RING; }

  /// All stages, from strict to relaxed. Different ports of exit are last: each rail of the network has its own
  /// switches, so a channel that changes the port costs bandwidth outside of the machine.
  std::vector<Stage> stages() const {
    std::vector<Stage> stages;
    for (const bool cross_nic : {false, true}) {
      if (cross_nic && (!is_ring() || machine_.net_count() < 2)) continue;
      for (const uint32_t inter : inter_types()) {
        for (const uint32_t intra : intra_types()) stages.push_back({intra, inter, cross_nic});
      }
    }
    return stages;
  }

  /// The factor by which a relaxed stage must exceed the best result: 1.5 to leave NVLink, else 1.1.
  static double worth_relaxing(const Graph& best, const Stage& stage) {
    const bool leaves_nvlink = best.intra_type <= TUTTI_PATH_NVB && stage.intra_type > TUTTI_PATH_NVB;
    return leaves_nvlink ? 1.5 : 1.1;
  }

  /// GB/s of all channels together, at their narrowest place.
  double capacity_of(const Graph& graph) const {
    const double intra = machine_.device_count() > 1 ? graph.total_intra_gbs() : graph.total_inter_gbs();
    return machine_.net_count() > 0 ? std::min(intra, graph.total_inter_gbs()) : intra;
  }

  /// An upper bound of the GB/s of any set of channels. Each channel enters and leaves every device (a chain: all
  /// devices but one), and the machine.
  double bound(const Stage& stage) const {
    double gbs = machine_.ceiling() * options_.max_channels;
    const uint32_t count = machine_.device_count();
    const bool nvlink_only = stage.intra_type <= TUTTI_PATH_NVB;
    for (const bool out : {true, false}) {
      double between = 0;  // bandwidth of the links that can join devices, summed over all devices
      for (uint32_t device = 0; device < count; ++device) {
        const double capacity = machine_.capacity(device, out, nvlink_only);
        between += capacity;
        if (!is_ring() || count == 1) continue;
        const double every_way = machine_.net_count() > 0 ? machine_.capacity(device, out, false) : capacity;
        gbs = std::min(gbs, every_way);
      }
      if (count > 1) gbs = std::min(gbs, between / (count - 1));
    }
    double network = 0;
    for (uint32_t net = 0; net < machine_.net_count(); ++net) {
      double best = 0;
      for (uint32_t device = 0; device < count; ++device) best = std::max(best, machine_.into(net, device).gbs);
      network += best;
    }
    return machine_.net_count() > 0 ? std::min(gbs, network) : gbs;
  }

  /// The best set of channels in a stage. Takes at most `spare` steps, and subtracts them from `spare`.
  Graph sweep(const Stage& stage, const std::vector<double>& speeds, uint64_t& spare) const {
    const double bound = this->bound(stage);
    Graph best;
    for (const double gbs : speeds) {
      if (gbs > bound * (1 + 1e-9)) continue;
      const auto goal = static_cast<uint32_t>(
          std::min(std::floor(bound / gbs * (1 + 1e-9)), static_cast<double>(options_.max_channels)));
      for (const bool same : {true, false}) {
        // Channels of this speed can gain by sharing the bandwidth left, but they stay below the next higher speed.
        if (goal * gbs / kSpeedRatio <= capacity_of(best) * (1 + kWorthwhile) || spare == 0) break;
        const Conditions conditions{pattern_, gbs, stage.intra_type, stage.inter_type, same, stage.cross_nic};
        Finder finder(machine_, conditions, goal, spare, options_.patience);
        Graph found = graph_of(finder.run(), conditions);
        spare = finder.steps_left();
        if (capacity_of(found) > capacity_of(best) * (1 + kWorthwhile)) best = std::move(found);
      }
      if (capacity_of(best) >= bound * (1 - kWorthwhile)) break;
    }
    return best;
  }

  /// The speeds to try, fastest first: the bandwidth of every link divided by 1, 2, ... channels. Speeds close to the
  /// speed before them are left out.
  std::vector<double> speeds() const {
    std::vector<double> all;
    const tutti_system& system = machine_.system();
    for (uint32_t i = 0; i < system.link_count; ++i) {
      const double gbs = system.links[i].gbs;
      if (i > 0 && gbs == system.links[i - 1].gbs) continue;
      for (uint32_t parts = 1; parts <= 32; ++parts) {
        all.push_back(gbs / parts);
        if (system.links[i].type == TUTTI_WIRE_PCI) all.push_back(gbs * 5 / 6 / parts);
      }
    }
    std::sort(all.begin(), all.end(), std::greater<>());
    std::vector<double> speeds;
    for (const double gbs : all) {
      if (gbs > machine_.ceiling() * (1 + 1e-9)) continue;
      if (speeds.empty() || gbs < speeds.back() * kSpeedRatio) speeds.push_back(gbs);
    }
    return speeds;
  }

  /// The types of paths that exist, closest first. The first type joins every device to a second device.
  std::vector<uint32_t> intra_types() const {
    const uint32_t count = machine_.device_count();
    if (count == 1) return {TUTTI_PATH_LOC};
    std::vector<bool> exists(TUTTI_PATH_TYPE_COUNT);
    uint32_t needed = TUTTI_PATH_LOC;
    for (uint32_t from = 0; from < count; ++from) {
      uint32_t closest = TUTTI_PATH_DIS;
      for (uint32_t to = 0; to < count; ++to) {
        if (to == from) continue;
        closest = std::min(closest, machine_.between(from, to).type);
        exists[machine_.between(from, to).type] = true;
      }
      needed = std::max(needed, closest);
    }
    return existing(exists, needed);
  }
  std::vector<uint32_t> inter_types() const {
    if (machine_.net_count() == 0) return {TUTTI_PATH_LOC};
    std::vector<bool> exists(TUTTI_PATH_TYPE_COUNT);
    for (uint32_t net = 0; net < machine_.net_count(); ++net) {
      for (uint32_t device = 0; device < machine_.device_count(); ++device) {
        exists[machine_.into(net, device).type] = true;
        exists[machine_.out_of(device, net).type] = true;
      }
    }
    return existing(exists, TUTTI_PATH_LOC);
  }
  static std::vector<uint32_t> existing(const std::vector<bool>& exists, uint32_t from) {
    std::vector<uint32_t> types;
    for (uint32_t type = from; type < TUTTI_PATH_NET; ++type) {
      if (exists[type]) types.push_back(type);
    }
    return types;
  }

  /// The devices in the order of their numbers. The ports are the closest ports to both ends.
  Route fallback_route() const {
    Route route;
    for (uint32_t device = 0; device < machine_.device_count(); ++device) route.devices.push_back(device);
    const auto closer = [&](const tutti_system_path& a, const tutti_system_path& b) {
      return std::tuple(a.type, -a.gbs) < std::tuple(b.type, -b.gbs);
    };
    for (uint32_t net = 0; net < machine_.net_count(); ++net) {
      const uint32_t first = route.devices.front();
      const uint32_t last = is_ring() ? route.devices.back() : first;
      if (net == 0 || closer(machine_.into(net, first), machine_.into(route.net_in, first))) route.net_in = net;
      if (net == 0 || closer(machine_.out_of(last, net), machine_.out_of(last, route.net_out))) route.net_out = net;
    }
    if (!is_ring()) route.net_out = route.net_in;
    return route;
  }
  Conditions fallback_conditions() const { return {pattern_, 0, TUTTI_PATH_DIS, TUTTI_PATH_DIS, true, true}; }

  /// Calls visit(path, share, is_inter) for every path of a route.
  template <class Visit>
  void for_each_path(const Route& route, Visit&& visit) const {
    const uint32_t count = machine_.device_count();
    for (uint32_t i = 0; i + 1 < count; ++i)
      visit(machine_.between(route.devices[i], route.devices[i + 1]), 1.0, false);
    if (route.net_in == TUTTI_NO_NET) {
      if (is_ring() && count > 1) visit(machine_.between(route.devices.back(), route.devices.front()), 1.0, false);
      return;
    }
    visit(machine_.into(route.net_in, route.devices.front()), 1.0, true);
    if (is_ring()) return visit(machine_.out_of(route.devices.back(), route.net_out), 1.0, true);
    for (uint32_t place = 0; place < std::min(2u, count); ++place) {
      const double share = Finder::tree_share(pattern_, place, count);
      if (share > 0) visit(machine_.out_of(route.devices[place], route.net_out), share, true);
    }
  }

  /// A graph of routes that share the whole bandwidth of the links: first all hops in equal parts, then the hops
  /// between ranks.
  Graph graph_of(const std::vector<Route>& routes, const Conditions& conditions) const {
    Graph graph;
    graph.pattern = pattern_;
    graph.same_channels = conditions.same_channels;
    bool crosses = false;
    UnitLoads loads{std::vector<double>(machine_.system().link_count),
                    std::vector<double>(machine_.system().link_count)};
    for (const Route& route : routes) {
      Channel& channel = graph.channels.emplace_back();
      for (const uint32_t device : route.devices) channel.order.push_back(machine_.device(device).rank);
      if (route.net_in != TUTTI_NO_NET) channel.net_in = machine_.net(route.net_in).index;
      if (route.net_out != TUTTI_NO_NET) channel.net_out = machine_.net(route.net_out).index;
      crosses = crosses || channel.net_in != channel.net_out;
      for_each_path(route, [&](const tutti_system_path& path, double share, bool inter) {
        uint32_t& type = inter ? graph.inter_type : graph.intra_type;
        type = std::max(type, path.type);
        for_each_load(machine_.system(), path, share,
                      [&](uint32_t link, double load) { (inter ? loads.inter : loads.intra)[link] += load; });
      });
    }
    graph.cross_nic = crosses;
    share_links(graph, loads);
    return graph;
  }

  void share_links(Graph& graph, const UnitLoads& loads) const {
    const tutti_system& system = machine_.system();
    // Without a path, ranks exchange data over a link that the graph does not contain.
    constexpr double kUnknownGbs = 0.1;
    double both = machine_.ceiling();
    if (graph.intra_type >= TUTTI_PATH_NET || graph.inter_type >= TUTTI_PATH_NET) both = std::min(both, kUnknownGbs);
    for (uint32_t link = 0; link < system.link_count; ++link) {
      const double load = loads.intra[link] + loads.inter[link];
      if (load > 0) both = std::min(both, system.links[link].gbs / load);
    }
    double intra = graph.intra_type >= TUTTI_PATH_NET ? both : machine_.ceiling();
    for (uint32_t link = 0; link < system.link_count; ++link) {
      if (loads.intra[link] > 0) {
        intra = std::min(intra, (system.links[link].gbs - loads.inter[link] * both) / loads.intra[link]);
      }
    }
    const bool alone = machine_.device_count() == 1 && machine_.net_count() == 0;
    graph.intra_gbs = machine_.device_count() > 1 ? intra : alone ? machine_.between(0, 0).gbs : 0;
    graph.inter_gbs = machine_.net_count() > 0 ? both : 0;
  }

  /// The graph with twice as many channels of half the speed, repeated while a channel carries more than a thread block
  /// comfortably moves.
  Graph doubled(Graph graph) const {
    const double comfortable = machine_.comfortable() * (1 + 1e-9);
    while (graph.channels.size() * 2 <= options_.max_channels && ports_take(graph.channels, 2) &&
           (machine_.device_count() > 1 ? graph.intra_gbs : graph.inter_gbs) > comfortable) {
      const std::vector<Channel> once = graph.channels;
      graph.channels.insert(graph.channels.end(), once.begin(), once.end());
      graph.intra_gbs /= 2;
      graph.inter_gbs /= 2;
    }
    return graph;
  }

  /// Whether no port has too many channels if each channel stands there several times.
  bool ports_take(const std::vector<Channel>& channels, uint32_t times) const {
    for (uint32_t net = 0; net < machine_.net_count(); ++net) {
      const uint32_t index = machine_.net(net).index;
      const auto entries = std::count_if(channels.begin(), channels.end(),
                                         [&](const Channel& channel) { return channel.net_in == index; });
      const auto exits = std::count_if(channels.begin(), channels.end(),
                                       [&](const Channel& channel) { return channel.net_out == index; });
      if (std::max(entries, exits) * times > machine_.max_channels(net)) return false;
    }
    return true;
  }

  const Machine& machine_;
  const uint32_t pattern_;
  const SearchOptions options_;
};

}  // namespace detail

/// The channels of the machine of `rank`, in a pattern TUTTI_PATTERN_*. If there are several machines, the channels use
/// the ports of the network. If topology.system is null: one channel, with the ranks in ascending order.
/// Errors: kInvalidArgument if the system graph does not contain exactly the ranks of this machine. Threads: any.
inline Result<Graph> search(const tutti_topology& topology, uint32_t rank, uint32_t pattern,
                            const SearchOptions& options = {}) {
  if (topology.system == nullptr) {
    Graph graph = ascending(topology, rank, 1);
    graph.pattern = pattern;
    return graph;
  }
  const detail::Machine machine(*topology.system, topology.node_count > 1, std::max(1u, options.joined));
  std::vector<uint32_t> ranks;
  for (uint32_t device = 0; device < machine.device_count(); ++device) ranks.push_back(machine.device(device).rank);
  std::sort(ranks.begin(), ranks.end());
  const std::vector<uint32_t> expected = ranks_of_node(topology, topology.node_of_rank[rank]);
  if (ranks != expected) {
    return Status(Code::kInvalidArgument, "the system graph holds " + std::to_string(ranks.size()) +
                                              " ranks, but not the " + std::to_string(expected.size()) +
                                              " of machine " + std::to_string(topology.node_of_rank[rank]));
  }
  SearchOptions limits = options;
  limits.max_channels = std::max(1u, std::min(options.max_channels, machine.max_channels()));
  return detail::Search(machine, pattern, limits).run();
}

}  // namespace tutti::sdk
