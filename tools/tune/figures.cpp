// SPDX-License-Identifier: Apache-2.0
#include "tools/tune/figures.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

#include "bootstrap/host.h"
#include "plugin/network_names.h"
#include "plugin/search.h"
#include "tools/tune/pair.h"
#include "tools/tune/turns.h"
#include "topology/affinity.h"

namespace tutti::tune {
namespace {

constexpr size_t kLargeOfNetwork = size_t{512} << 10;
constexpr size_t kLargeOfMemory = size_t{4} << 20;
constexpr size_t kMostRounds = 16;

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// The medians of a figure of all samples.
template <class Sample>
double median_of(const std::vector<Sample>& samples, double Sample::*figure) {
  std::vector<double> values;
  for (const Sample& sample : samples) values.push_back(sample.*figure);
  return median(std::move(values));
}

/// The samples of all ranks.
template <class Sample>
Result<std::vector<Sample>> gather(Communicator& communicator, const std::vector<Sample>& mine) {
  TUTTI_ASSIGN(const auto all, communicator.exchange(std::as_bytes(std::span(mine))));
  std::vector<Sample> samples;
  for (const auto& bytes : all) {
    const size_t count = bytes.size() / sizeof(Sample);
    samples.resize(samples.size() + count);
    if (count > 0) std::memcpy(samples.data() + samples.size() - count, bytes.data(), count * sizeof(Sample));
  }
  return samples;
}

/// The place of a rank.
struct Place {
  int host = 0;  ///< a number
  topology::CpuSet processors;
};

/// The place of each rank.
Result<std::vector<Place>> places_of_ranks(Communicator& communicator, const std::string& pretended_host) {
  bootstrap::HostIdentity own = bootstrap::this_host(pretended_host);
  own.processors = topology::format_cpu_mask(topology::current_affinity());
  TUTTI_ASSIGN(const auto all, communicator.exchange(bootstrap::encode(own)));
  std::vector<bootstrap::HostIdentity> hosts;
  for (const auto& bytes : all) {
    TUTTI_ASSIGN(hosts.emplace_back(), bootstrap::decode_host(bytes));
  }
  const std::vector<int> nodes = bootstrap::node_of_rank(hosts);
  std::vector<Place> places(hosts.size());
  for (size_t rank = 0; rank < hosts.size(); ++rank) {
    places[rank].host = nodes[rank];
    TUTTI_ASSIGN(places[rank].processors, topology::parse_cpu_mask(hosts[rank].processors));
  }
  return places;
}

/// The ranks of each host.
std::vector<std::vector<int>> ranks_of_hosts(const std::vector<Place>& places) {
  std::vector<std::vector<int>> ranks;
  for (size_t rank = 0; rank < places.size(); ++rank) {
    const auto host = static_cast<size_t>(places[rank].host);
    if (host >= ranks.size()) ranks.resize(host + 1);
    ranks[host].push_back(static_cast<int>(rank));
  }
  return ranks;
}

/// The host that meets `host` in a round of a tournament, in which each meets each other once; nothing: none.
std::optional<size_t> opponent(size_t host, size_t round, size_t hosts) {
  const size_t even = hosts + hosts % 2;
  const size_t last = even - 1;
  size_t other = 0;
  if (host == last) {
    other = round * (even / 2) % last;  // the one that would meet itself
  } else {
    other = (round + last - host) % last;
    if (other == host) other = last;
  }
  return other < hosts ? std::optional(other) : std::nullopt;
}

Result<NetworkMeasurement> measure_network(Communicator& communicator, const std::vector<std::vector<int>>& hosts) {
  const auto leads = [&](const std::vector<int>& ranks) { return ranks.front() == communicator.rank(); };
  const auto own = std::find_if(hosts.begin(), hosts.end(), leads);
  std::vector<PairFigures> mine;
  const size_t rounds = std::min(hosts.size() + hosts.size() % 2 - 1, kMostRounds);
  for (size_t round = 0; round < rounds; ++round) {
    const auto other =
        own == hosts.end() ? std::nullopt : opponent(static_cast<size_t>(own - hosts.begin()), round, hosts.size());
    if (other) {
      TUTTI_ASSIGN(mine.emplace_back(), measure_pair(communicator, hosts[*other].front(), kLargeOfNetwork));
    }
    TUTTI_TRY(communicator.exchange({}).status());  // idle ranks do not disturb the next round
  }
  TUTTI_ASSIGN(const std::vector<PairFigures> all, gather(communicator, mine));
  NetworkMeasurement measured;
  measured.hosts = hosts.size();
  measured.pairs = all.size() / 2;  // both ranks of a pair have a sample
  measured.slowest_us = std::ranges::max(all, {}, &PairFigures::latency_us).latency_us;
  measured.latency_us = median_of(all, &PairFigures::latency_us);
  measured.gap_us = median_of(all, &PairFigures::gap_us);
  measured.processor_gbs = 2 * median_of(all, &PairFigures::gbs);
  return measured;
}

/// The number of processors that the ranks may use together.
int processors_of(const std::vector<int>& ranks, const std::vector<Place>& places) {
  topology::CpuSet all;
  for (const int rank : ranks) all = topology::unite(all, places[static_cast<size_t>(rank)].processors);
  return static_cast<int>(all.size());
}

/// Two ranks of a host measure its memory. On one processor, they would measure each other's turns.
Result<MemoryMeasurement> measure_memory(Communicator& communicator, const std::vector<std::vector<int>>& hosts,
                                         const std::vector<Place>& places) {
  std::vector<PairFigures> mine;
  MemoryMeasurement measured;
  for (const std::vector<int>& ranks : hosts) {
    if (ranks.size() < 2 || measured.hosts == kMostRounds) continue;
    const std::vector<int> pair(ranks.begin(), ranks.begin() + 2);
    if (processors_of(pair, places) < 2) continue;
    ++measured.hosts;
    const auto end = std::ranges::find(pair, communicator.rank());
    if (end != pair.end()) {
      const int peer = end == pair.begin() ? pair[1] : pair[0];
      TUTTI_ASSIGN(mine.emplace_back(), measure_pair(communicator, peer, kLargeOfMemory));
    }
    TUTTI_TRY(communicator.exchange({}).status());
  }
  TUTTI_ASSIGN(const std::vector<PairFigures> all, gather(communicator, mine));
  if (measured.hosts > 0) measured.gbs = median_of(all, &PairFigures::gbs);
  return measured;
}

/// All ranks of a host measure how they take turns, if each processor has two ranks or more.
Result<TurnMeasurement> measure_turns(Communicator& communicator, const std::vector<std::vector<int>>& hosts,
                                      const std::vector<Place>& places) {
  std::vector<double> mine;
  TurnMeasurement measured;
  for (const std::vector<int>& ranks : hosts) {
    const int processors = processors_of(ranks, places);
    const bool share = processors > 0 && ranks.size() >= 2 * static_cast<size_t>(processors);
    if (!share || measured.hosts == kMostRounds) continue;
    ++measured.hosts;
    if (std::ranges::find(ranks, communicator.rank()) != ranks.end()) {
      TUTTI_ASSIGN(mine.emplace_back(), measure_turn(communicator, ranks, processors));
    }
    TUTTI_TRY(communicator.exchange({}).status());
  }
  TUTTI_ASSIGN(const std::vector<double> all, gather(communicator, mine));
  if (measured.hosts > 0) measured.switch_us = median(all);
  return measured;
}

}  // namespace

Result<Measurements> measure(Communicator& communicator, const std::string& pretended_host) {
  TUTTI_ASSIGN(const std::vector<Place> places, places_of_ranks(communicator, pretended_host));
  const std::vector<std::vector<int>> hosts = ranks_of_hosts(places);
  Measurements measured;
  if (hosts.size() > 1) {
    TUTTI_ASSIGN(measured.network, measure_network(communicator, hosts));
  }
  TUTTI_ASSIGN(measured.memory, measure_memory(communicator, hosts, places));
  TUTTI_ASSIGN(measured.turns, measure_turns(communicator, hosts, places));
  if (measured.network || measured.memory.hosts > 0 || measured.turns.hosts > 0) return measured;
  return Status(Code::kInvalidArgument,
                "--figures measures the network between hosts, and memory and turns between ranks of a host, but this "
                "job has neither; start more ranks, or pretend hosts with --hosts");
}

Result<std::string> network_of(const config::Config& config) {
  const std::vector<std::string> names = plugin::possible_networks(config);
  if (names.size() == 1) {
    const std::string label = plugin::label_of(plugin::Kind::kNetwork, names.front());
    return label.substr(0, label.find(':'));  // as the table has it
  }
  return Status(Code::kConfig, fmt::format("--figures measures one network, and the configuration names {}; set "
                                           "'network' to the one that is to be measured",
                                           names.size()));
}

std::string figures_text(const Request& request, const std::string& network, const Measurements& measured) {
  std::string text = fmt::format("# Made by: {}\n", request.command);
  std::string figures = "tutti_hardware: 1\n";
  if (const auto& net = measured.network) {
    text += fmt::format(
        "# Measured: {} pairs of {} hosts; medians of pairs. The slowest pair takes {:.2f} µs for a small message.\n",
        net->pairs, net->hosts, net->slowest_us);
    figures += fmt::format("networks:\n  {}: {{latency_us: {:.2f}, gap_us: {:.2f}, processor_gbs: {:.3f}}}\n", network,
                           net->latency_us, net->gap_us, std::max(net->processor_gbs, 0.001));
  }
  std::vector<std::string> memory;
  if (measured.memory.hosts > 0) {
    text += fmt::format("# Measured: memory of {} hosts, between two ranks of each; medians of hosts.\n",
                        measured.memory.hosts);
    memory.push_back(fmt::format("gbs: {:.2f}", std::max(measured.memory.gbs, 0.01)));
  }
  if (measured.turns.hosts > 0) {
    text += fmt::format("# Measured: turns of ranks that share processors, on {} hosts; medians of ranks.\n",
                        measured.turns.hosts);
    memory.push_back(fmt::format("switch_us: {:.2f}", std::max(measured.turns.switch_us, 0.01)));
  }
  if (!memory.empty()) figures += fmt::format("memory:\n  default: {{{}}}\n", fmt::join(memory, ", "));
  return text + fmt::format("# Use it with hardware.file: {}\n", request.out.empty() ? "FILE" : request.out) + figures;
}

}  // namespace tutti::tune
