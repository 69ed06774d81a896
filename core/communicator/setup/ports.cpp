// SPDX-License-Identifier: Apache-2.0
#include "communicator/setup/ports.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <ranges>
#include <set>
#include <tuple>
#include <utility>

#include "bootstrap/wire.h"
#include "log/log.h"
#include "plugin/loader.h"

namespace tutti::communicator {
namespace {

/// Channels that enter and that leave a machine.
struct Use {
  uint32_t enter = 0;
  uint32_t leave = 0;
};

/// Counts the channels of an algorithm by port, channel by channel.
class PortCount {
 public:
  PortCount(const program::AlgorithmPlugin& algorithm, void* instance, const tutti_topology& topology,
            const Ports& ports)
      : algorithm_(algorithm), instance_(instance), ports_(ports), ranks_(ports.size()), uses_(ports.size()) {
    for (uint32_t rank = 0; rank < topology.rank_count; ++rank) ranks_[topology.node_of_rank[rank]].push_back(rank);
    for (size_t machine = 0; machine < ports.size(); ++machine) uses_[machine].resize(ports[machine].size());
  }

  /// Adds a channel. Returns the name of a port that does not take it; empty: all ports do.
  Result<std::string> add(uint32_t channel) {
    for (uint32_t machine = 0; machine < ports_.size(); ++machine) {
      if (ports_[machine].empty()) continue;
      TUTTI_TRY(mark(channel, machine));
      for (size_t i = 0; i < marks_.size(); ++i) {
        Use& sum = uses_[machine][i];
        sum = {sum.enter + marks_[i].enter, sum.leave + marks_[i].leave};
        const Port& port = ports_[machine][i];
        if (port.channels > 0 && std::max(sum.enter, sum.leave) > port.channels) {
          return fmt::format("port {} of machine {} takes {}", port.name.data(), machine, port.channels);
        }
      }
    }
    return std::string();
  }

 private:
  /// Marks the ports of a machine with 1 where any of its ranks sends or receives on the channel.
  Status mark(uint32_t channel, uint32_t machine) {
    marks_.assign(ports_[machine].size(), Use());
    const std::vector<uint32_t>& peers = ranks_[(machine + 1) % ranks_.size()];
    for (size_t i = 0; i < ranks_[machine].size(); ++i) {
      tutti_channel_nets nets{TUTTI_NO_NET, TUTTI_NO_NET};
      const uint32_t rank = ranks_[machine][i];
      plugin::take_failure_text();  // discards the text of an earlier call
      const int32_t code = algorithm_.ops->nets(instance_, channel, rank, peers[i % peers.size()], &nets);
      if (code != TUTTI_OK) {
        return {code == TUTTI_AGAIN ? Code::kInternal : static_cast<Code>(code),
                fmt::format("algorithm '{}' names no network devices for channel {} of rank {}: {}", algorithm_.name,
                            channel, rank, plugin::take_reason())};
      }
      for (size_t port = 0; port < marks_.size(); ++port) {
        if (is(ports_[machine][port], nets.receive)) marks_[port].enter = 1;
        if (is(ports_[machine][port], nets.send)) marks_[port].leave = 1;
      }
    }
    return {};
  }

  static bool is(const Port& port, uint32_t device) {
    return device == TUTTI_NO_NET ? port.is_default != 0 : port.device == device;
  }

  const program::AlgorithmPlugin& algorithm_;
  void* instance_;
  const Ports& ports_;
  std::vector<std::vector<uint32_t>> ranks_;  ///< by machine
  std::vector<std::vector<Use>> uses_;        ///< by machine and port
  std::vector<Use> marks_;                    ///< of the latest channel and machine, by port
};

bool has_limits(const Ports& ports) {
  return std::ranges::any_of(ports, [](const std::vector<Port>& of_machine) {
    return std::ranges::any_of(of_machine, [](const Port& port) { return port.channels > 0; });
  });
}

int32_t rail_of(const std::vector<Port>& ports, uint32_t device) {
  const auto port = std::ranges::find(ports, device, &Port::device);
  return port == ports.end() ? -1 : port->rail;
}

/// The default port on a rail that is the own port of the fewest ranks; none: no default port is on this rail.
std::optional<uint32_t> least_used_port(const std::vector<Port>& ports, int32_t rail,
                                        const std::vector<uint32_t>& own_ports) {
  std::optional<uint32_t> least_used;
  const auto uses = [&](uint32_t device) { return std::ranges::count(own_ports, device); };
  for (const Port& port : ports) {
    if (port.is_default == 0 || port.rail != rail) continue;
    if (!least_used || uses(port.device) < uses(*least_used)) least_used = port.device;
  }
  return least_used;
}

/// The rail of each device; -1: unknown.
std::vector<int32_t> rails_of(const std::vector<uint32_t>& devices, const std::vector<Port>& ports) {
  std::vector<int32_t> rails;
  for (const uint32_t device : devices) rails.push_back(rail_of(ports, device));
  return rails;
}

/// The rail of each channel; empty: the rail of a channel is unknown.
std::vector<int32_t> rails_of(const topology::NodeGraph& graph, const std::vector<Port>& ports) {
  std::vector<int32_t> rails;
  for (uint32_t channel = 0; channel < graph.channel_count(); ++channel) {
    rails.push_back(rail_of(ports, graph.net_in(channel)));
    if (rails.back() < 0) return {};
  }
  return rails;
}

/// An order of the channels with rails `own`, in which the first channels have the rails `wanted` where they can. The
/// remaining channels fill the gaps and the end, in their order.
std::vector<uint32_t> matched(const std::vector<int32_t>& own, const std::vector<int32_t>& wanted) {
  constexpr uint32_t kOpen = UINT32_MAX;
  std::vector<bool> taken(own.size());
  const auto take = [&](auto&& fits) {
    for (uint32_t channel = 0; channel < own.size(); ++channel) {
      if (taken[channel] || !fits(channel)) continue;
      taken[channel] = true;
      return channel;
    }
    return kOpen;
  };
  std::vector<uint32_t> order(own.size(), kOpen);
  for (size_t i = 0; i < std::min(own.size(), wanted.size()); ++i) {
    order[i] = take([&](uint32_t channel) { return own[channel] == wanted[i]; });
  }
  for (uint32_t& channel : order) {
    if (channel == kOpen) channel = take([](uint32_t) { return true; });
  }
  return order;
}

}  // namespace

std::vector<Port> ports_of(const topology::System& system, const std::vector<uint32_t>& defaults) {
  std::vector<Port> ports;
  for (const uint32_t node : system.nodes_of(TUTTI_NODE_NET)) {
    const tutti_system_node& net = system.nodes()[node];
    const bool is_default = std::ranges::find(defaults, net.index) != defaults.end();
    Port port{net.index, net.max_channels, system.rail(node), is_default ? 1u : 0u, {}};
    const std::string& name = system.name(node);
    std::copy_n(name.begin(), std::min(name.size(), port.name.size() - 1), port.name.begin());
    ports.push_back(port);
  }
  return ports;
}

std::vector<uint32_t> own_ports(const topology::System& system, const std::vector<uint32_t>& defaults) {
  std::vector<uint32_t> ports;  // nodes
  for (const uint32_t node : system.nodes_of(TUTTI_NODE_NET)) {
    if (std::ranges::find(defaults, system.nodes()[node].index) != defaults.end()) ports.push_back(node);
  }
  if (ports.empty()) return {};
  const bool has_rails = std::ranges::all_of(ports, [&](uint32_t port) { return system.rail(port) >= 0; });
  std::ranges::stable_sort(ports, {}, [&](uint32_t port) {
    return has_rails ? static_cast<uint32_t>(system.rail(port)) : system.nodes()[port].index;
  });
  const std::vector<uint32_t> ranks = system.rank_nodes();
  const size_t share = (ranks.size() + ports.size() - 1) / ports.size();
  std::vector<size_t> taken(ports.size());
  std::vector<uint32_t> own;
  for (const uint32_t rank : ranks) {
    const auto distance = [&](size_t i) {
      const tutti_system_path& path = system.path(rank, ports[i]);
      return std::tuple(taken[i] < share ? 0 : 1, path.type, -path.gbs, taken[i]);
    };
    size_t best = 0;
    for (size_t i = 1; i < ports.size(); ++i) {
      if (distance(i) < distance(best)) best = i;
    }
    ++taken[best];
    own.push_back(system.nodes()[ports[best]].index);
  }
  return own;
}

void add_ports(MachineFacts& facts, const topology::System& system, const std::vector<uint32_t>& defaults,
               bool shares) {
  facts.ports = ports_of(system, defaults);
  facts.detours = detours_of(system);
  if (shares && defaults.size() > 1) facts.own_ports = own_ports(system, defaults);
}

std::vector<uint32_t> fastest_ports(const topology::System& system) {
  std::vector<uint32_t> fastest;
  double gbs = 0;
  for (const tutti_system_link& link : system.links()) {
    const tutti_system_node& to = system.nodes()[link.to];
    if (link.type != TUTTI_WIRE_NET || to.type != TUTTI_NODE_NET || link.gbs < gbs) continue;
    if (link.gbs > gbs) fastest.clear();
    fastest.push_back(to.index);
    gbs = link.gbs;
  }
  return fastest;
}

std::vector<std::byte> encode(const MachineFacts& facts) {
  const auto bytes_of = [](const auto& values) {
    const auto bytes = std::as_bytes(std::span(values));
    return bootstrap::Bytes(bytes.begin(), bytes.end());
  };
  const std::array parts{bytes_of(std::array{facts.figures}), bytes_of(facts.ports), bytes_of(facts.detours),
                         bytes_of(facts.own_ports)};
  return bootstrap::pack(parts);
}

Result<MachineFacts> decode_facts(std::span<const std::byte> bytes) {
  const auto read = [](std::span<const std::byte> from, auto& values) {
    const size_t size = sizeof values.front();
    if (from.size() % size != 0) return false;
    values.resize(from.size() / size);
    if (!from.empty()) std::memcpy(values.data(), from.data(), from.size());
    return true;
  };
  MachineFacts facts;
  std::vector<Figures> figures;
  const auto parts = bootstrap::entries_of(bytes);
  const bool is_right = parts.ok() && parts->size() == 4 && read((*parts)[0], figures) && figures.size() == 1 &&
                        read((*parts)[1], facts.ports) && read((*parts)[2], facts.detours) &&
                        read((*parts)[3], facts.own_ports);
  if (!is_right) {
    return Status(Code::kInternal,
                  fmt::format("{} bytes are not the figures, ports and detours of a machine", bytes.size()));
  }
  facts.figures = figures.front();
  for (Port& port : facts.ports) port.name.back() = 0;
  for (Detour& detour : facts.detours) detour.gpu.back() = 0;
  return facts;
}

uint32_t default_port_channels(const Ports& ports) {
  uint32_t channels = UINT32_MAX;
  for (const std::vector<Port>& of_machine : ports) {
    for (const Port& port : of_machine) {
      if (port.is_default != 0 && port.channels > 0) channels = std::min(channels, port.channels);
    }
  }
  return channels;
}

void align_rails(std::vector<topology::NodeGraph>& graphs, const Ports& ports) {
  const auto crosses = [](const topology::NodeGraph& graph) { return graph.view().cross_nic != 0; };
  if (graphs.size() != ports.size() || std::ranges::any_of(graphs, crosses)) return;
  const auto fewest = std::ranges::min_element(graphs, {}, &topology::NodeGraph::channel_count);
  const std::vector<int32_t> wanted = rails_of(*fewest, ports[static_cast<size_t>(fewest - graphs.begin())]);
  for (size_t machine = 0; machine < graphs.size(); ++machine) {
    const std::vector<int32_t> own = rails_of(graphs[machine], ports[machine]);
    if (!own.empty()) graphs[machine] = graphs[machine].reordered(matched(own, wanted));
  }
}

OwnPorts agreed_own_ports(OwnPorts own_ports, const Ports& ports, const std::vector<std::string>& host_names) {
  const OwnPorts none(own_ports.size());
  if (std::set(host_names.begin(), host_names.end()).size() < own_ports.size()) return none;
  const std::vector<uint32_t> first = own_ports.front();
  const std::vector<int32_t> rails = rails_of(first, ports.front());
  const auto agrees = [&](size_t machine) {
    return own_ports[machine] == first && rails_of(first, ports[machine]) == rails;
  };
  const auto machines = std::views::iota(size_t{0}, own_ports.size());
  if (std::ranges::all_of(machines, agrees)) return own_ports;
  if (std::ranges::any_of(rails, [](int32_t rail) { return rail < 0; })) return none;
  for (const size_t machine : machines) {
    std::vector<uint32_t>& own = own_ports[machine];
    if (own.size() != first.size()) return none;
    for (size_t position = 0; position < own.size(); ++position) {
      if (rail_of(ports[machine], own[position]) != rails[position]) own[position] = TUTTI_NO_NET;
    }
    for (size_t position = 0; position < own.size(); ++position) {
      if (own[position] != TUTTI_NO_NET) continue;
      const std::optional<uint32_t> port = least_used_port(ports[machine], rails[position], own);
      if (!port) return none;
      own[position] = *port;
    }
  }
  return own_ports;
}

std::string own_ports_text(const std::vector<uint32_t>& own, const std::vector<Port>& ports) {
  std::vector<const char*> names;
  for (const uint32_t device : own) names.push_back(std::ranges::find(ports, device, &Port::device)->name.data());
  return fmt::format("{}", fmt::join(names, ", "));
}

std::string uneven_ports_text(const Ports& ports, std::span<const uint32_t> nodes,
                              std::span<const std::string> host_names) {
  const auto defaults = [](const std::vector<Port>& of) {
    return std::ranges::count_if(of, [](const Port& port) { return port.is_default != 0; });
  };
  const auto fewest = std::ranges::min_element(ports, {}, defaults);
  const auto most = std::ranges::max_element(ports, {}, defaults);
  if (defaults(*fewest) == defaults(*most)) return {};
  const auto host_of = [&](auto machine) {
    const auto rank = std::ranges::find(nodes, static_cast<uint32_t>(machine - ports.begin()));
    return host_names[static_cast<size_t>(rank - nodes.begin())];
  };
  const auto names_of = [](const std::vector<Port>& of) {
    std::vector<const char*> names;
    for (const Port& port : of) {
      if (port.is_default != 0) names.push_back(port.name.data());
    }
    return fmt::format("{}", fmt::join(names, ", "));
  };
  return fmt::format("host '{}' has {} of its fastest network ports ({}), and host '{}' has {} ({})", host_of(most),
                     defaults(*most), names_of(*most), host_of(fewest), defaults(*fewest), names_of(*fewest));
}

void log_ports(const OwnPorts& own_ports, const Ports& ports, std::span<const uint32_t> nodes,
               std::span<const std::string> host_names, uint32_t rank) {
  if (rank == 0) {
    const std::string text = uneven_ports_text(ports, nodes, host_names);
    if (!text.empty()) log::warn("{}: the host with fewer ports limits the speed; check its ports", text);
  }
  const uint32_t machine = nodes[rank];
  const bool is_first = std::ranges::find(nodes, machine) - nodes.begin() == rank;
  if (!is_first || own_ports[machine].empty()) return;
  log::info("own ports of this machine's ranks: {}", own_ports_text(own_ports[machine], ports[machine]));
}

Result<Connected> connect_within(const program::AlgorithmPlugin& algorithm, const tutti_topology& topology,
                                 std::span<const topology::NodeGraph> graphs, const Ports& ports) {
  TUTTI_ASSIGN(program::Instance instance, program::connect(algorithm, topology, graphs));
  Connected made{std::move(instance), {}};
  if (!has_limits(ports)) return made;
  const uint32_t wanted = algorithm.ops->channel_count(made.instance.get());
  tutti_topology within = topology;
  for (uint32_t count = wanted;;) {
    PortCount uses(algorithm, made.instance.get(), topology, ports);
    std::string full;
    uint32_t fit = 0;
    while (fit < count) {
      TUTTI_ASSIGN(full, uses.add(fit));
      if (!full.empty()) break;
      ++fit;
    }
    if (full.empty()) return made;
    within.max_channels = fit;  // at least 1, as each limit is
    within.min_channels = std::min(within.min_channels, fit);
    TUTTI_ASSIGN(made.instance, program::connect(algorithm, within, graphs));
    count = algorithm.ops->channel_count(made.instance.get());
    if (count > fit) {
      return Status(Code::kInternal, fmt::format("algorithm '{}' makes {} channels, although the topology allows {}",
                                                 algorithm.name, count, fit));
    }
    made.reduced = fmt::format("{} channel{} instead of {}: {} (maxconn)", count, count == 1 ? "" : "s", wanted, full);
  }
}

}  // namespace tutti::communicator
