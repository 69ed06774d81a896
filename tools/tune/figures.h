// SPDX-License-Identifier: Apache-2.0
// `tutti tune --figures`: measures the hardware figures of the hosts of a job, and of the network between them.
#pragma once

#include <optional>
#include <string>

#include "tools/tune/request.h"
#include "tutti/communicator.h"

namespace tutti::tune {

/// Figures of a network, of all measured pairs of hosts: medians.
struct NetworkMeasurement {
  double latency_us = 0;     ///< a small message one way
  double gap_us = 0;         ///< time of a rank's processor for a small message that it sends or receives
  double processor_gbs = 0;  ///< one rank sends and receives together
  double slowest_us = 0;     ///< the largest latency of a pair
  size_t hosts = 0;
  size_t pairs = 0;
};

/// The memory that ranks of a host share, of all measured hosts: medians.
struct MemoryMeasurement {
  double gbs = 0;    ///< each way, while two ranks exchange large messages
  size_t hosts = 0;  ///< hosts with two ranks that may use different processors
};

/// Turns of ranks that share processors, of all ranks of the measured hosts: medians.
struct TurnMeasurement {
  double switch_us = 0;  ///< from a rank that waits to the next rank of its processor
  size_t hosts = 0;      ///< hosts with at least twice as many ranks as processors
};

/// Measurements of a job. A measurement of no host has no figures.
struct Measurements {
  std::optional<NetworkMeasurement> network;  ///< needs two hosts
  MemoryMeasurement memory;
  TurnMeasurement turns;
};

/// Measures by all ranks together; every rank gets the same figures. The network is measured between one rank of each
/// host, in up to 16 rounds of some tenths of a second, in which pairs of hosts measure at the same time. The memory is
/// measured between two ranks of a host, and turns between all ranks of a host, on up to 16 hosts, one after the other.
/// kInvalidArgument: there is nothing to measure.
Result<Measurements> measure(Communicator& communicator, const std::string& pretended_host);

/// The name of the network of the job, for a file of hardware figures. kConfig: the configuration names several.
Result<std::string> network_of(const config::Config& config);

/// A file of hardware figures. `network`: the name of the measured network.
std::string figures_text(const Request& request, const std::string& network, const Measurements& measured);

}  // namespace tutti::tune
