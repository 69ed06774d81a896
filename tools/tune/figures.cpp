// SPDX-License-Identifier: Apache-2.0
#include "tools/tune/figures.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <optional>

#include "bootstrap/host.h"
#include "plugin/network_names.h"
#include "plugin/search.h"

namespace tutti::tune {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kSmallBytes = 8;
constexpr size_t kLargeBytes = size_t{512} << 10;
constexpr int kBatches = 9;
constexpr int kSmallCalls = 200;  // of a batch
constexpr int kLargeCalls = 16;
constexpr int kQueued = 8;  // small messages of one group
constexpr size_t kMostRounds = 16;

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// The time of a call in µs, in the fastest batch: other programs disturb some batches. The first batch warms up.
template <class Call>
Result<double> time_of(int calls, Call&& call) {
  double fastest_us = std::numeric_limits<double>::max();
  for (int batch = 0; batch <= kBatches; ++batch) {
    const auto start = Clock::now();
    for (int i = 0; i < calls; ++i) TUTTI_TRY(call());
    const std::chrono::duration<double, std::micro> elapsed = Clock::now() - start;
    if (batch > 0) fastest_us = std::min(fastest_us, elapsed.count() / calls);
  }
  return fastest_us;
}

/// Two ranks of different hosts. Both call each function at the same time.
class Pair {
 public:
  Pair(Communicator& communicator, int peer)
      : communicator_(communicator), peer_(peer), output_(kLargeBytes), input_(kLargeBytes) {}

  /// One way.
  Result<double> ping_pong_us() {
    TUTTI_ASSIGN(const double both_us, time_of(kSmallCalls, [&]() -> Status {
                   if (communicator_.rank() < peer_) TUTTI_TRY(send(kSmallBytes));
                   TUTTI_TRY(receive(kSmallBytes));
                   return communicator_.rank() < peer_ ? Status() : send(kSmallBytes);
                 }));
    return both_us / 2;
  }

  /// Of a group in which both ranks send and receive so many messages.
  Result<double> exchange_us(size_t bytes, int messages, int calls) {
    return time_of(calls, [&]() -> Status {
      TUTTI_TRY(group_start());
      Status status;
      for (int i = 0; i < messages && status.ok(); ++i) {
        status = send(bytes);
        if (status.ok()) status = receive(bytes);
      }
      const Status done = group_end();
      return status.ok() ? done : status;
    });
  }

 private:
  Status send(size_t bytes) { return communicator_.send(output_.data(), bytes, DataType::kUint8, peer_); }
  Status receive(size_t bytes) { return communicator_.recv(input_.data(), bytes, DataType::kUint8, peer_); }

  Communicator& communicator_;
  int peer_;
  std::vector<std::byte> output_;
  std::vector<std::byte> input_;
};

struct Sample {
  double latency_us = 0;  // 0: the rank has measured nothing
  double gap_us = 0;
  double processor_gbs = 0;
};

Result<Sample> measure_pair(Communicator& communicator, int peer) {
  Pair pair(communicator, peer);
  Sample sample;
  TUTTI_ASSIGN(sample.latency_us, pair.ping_pong_us());
  TUTTI_ASSIGN(const double one_us, pair.exchange_us(kSmallBytes, 1, kSmallCalls));
  TUTTI_ASSIGN(const double many_us, pair.exchange_us(kSmallBytes, kQueued, kSmallCalls));
  // A rank handles two ends in an exchange, so an end takes no longer than half of it. A group of many
  // messages can take longer: its ranks and their engines then switch on one processor.
  const double queued_us = std::max(many_us - one_us, 0.0) / (2 * (kQueued - 1));
  sample.gap_us = std::min(queued_us, one_us / 2);
  TUTTI_ASSIGN(const double large_us, pair.exchange_us(kLargeBytes, 1, kLargeCalls));
  sample.processor_gbs = 2 * kLargeBytes / large_us / 1e3;
  return sample;
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

/// The first rank of each host.
Result<std::vector<int>> leaders(Communicator& communicator, const std::string& pretended_host) {
  TUTTI_ASSIGN(const auto all, communicator.exchange(bootstrap::encode(bootstrap::this_host(pretended_host))));
  std::vector<bootstrap::HostIdentity> hosts;
  for (const auto& bytes : all) {
    TUTTI_ASSIGN(hosts.emplace_back(), bootstrap::decode_host(bytes));
  }
  std::vector<int> first;
  const std::vector<int> nodes = bootstrap::node_of_rank(hosts);
  for (size_t rank = 0; rank < nodes.size(); ++rank) {
    if (nodes[rank] == static_cast<int>(first.size())) first.push_back(static_cast<int>(rank));
  }
  return first;
}

Result<NetworkMeasurement> summary_of(Communicator& communicator, const std::vector<Sample>& mine) {
  TUTTI_ASSIGN(const auto all, communicator.exchange(std::as_bytes(std::span(mine))));
  std::vector<double> latencies;
  std::vector<double> gaps;
  std::vector<double> rates;
  for (const auto& bytes : all) {
    std::vector<Sample> samples(bytes.size() / sizeof(Sample));
    if (!samples.empty()) std::memcpy(samples.data(), bytes.data(), samples.size() * sizeof(Sample));
    for (const Sample& sample : samples) {
      latencies.push_back(sample.latency_us);
      gaps.push_back(sample.gap_us);
      rates.push_back(sample.processor_gbs);
    }
  }
  NetworkMeasurement measured;
  measured.pairs = latencies.size() / 2;  // both ranks of a pair have a sample
  measured.slowest_us = *std::max_element(latencies.begin(), latencies.end());
  measured.latency_us = median(std::move(latencies));
  measured.gap_us = median(std::move(gaps));
  measured.processor_gbs = median(std::move(rates));
  return measured;
}

}  // namespace

Result<NetworkMeasurement> measure_network(Communicator& communicator, const std::string& pretended_host) {
  TUTTI_ASSIGN(const std::vector<int> first, leaders(communicator, pretended_host));
  const size_t hosts = first.size();
  if (hosts < 2) {
    return Status(Code::kInvalidArgument,
                  "--figures measures the network between hosts, but all ranks are on one; start ranks on two hosts or "
                  "more, or pretend hosts with --hosts");
  }
  const auto own = std::find(first.begin(), first.end(), communicator.rank());
  std::vector<Sample> samples;
  const size_t rounds = std::min(hosts + hosts % 2 - 1, kMostRounds);
  for (size_t round = 0; round < rounds; ++round) {
    const auto other =
        own == first.end() ? std::nullopt : opponent(static_cast<size_t>(own - first.begin()), round, hosts);
    if (other) {
      TUTTI_ASSIGN(samples.emplace_back(), measure_pair(communicator, first[*other]));
    }
    TUTTI_TRY(communicator.exchange({}).status());  // idle ranks do not disturb the next round
  }
  TUTTI_ASSIGN(NetworkMeasurement measured, summary_of(communicator, samples));
  measured.hosts = hosts;
  return measured;
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

std::string figures_text(const Request& request, const std::string& network, const NetworkMeasurement& measured) {
  return fmt::format(
      "# Made by: {}\n"
      "# Measured: {} pairs of {} hosts; medians of pairs. The slowest pair takes {:.2f} µs for a small message.\n"
      "# Use it with hardware.file: {}\n"
      "tutti_hardware: 1\n"
      "networks:\n"
      "  {}: {{latency_us: {:.2f}, gap_us: {:.2f}, processor_gbs: {:.3f}}}\n",
      request.command, measured.pairs, measured.hosts, measured.slowest_us, request.out.empty() ? "FILE" : request.out,
      network, measured.latency_us, measured.gap_us, std::max(measured.processor_gbs, 0.001));
}

}  // namespace tutti::tune
