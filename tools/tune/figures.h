// SPDX-License-Identifier: Apache-2.0
// `tutti tune --figures`: measures the hardware figures of the network between the hosts of a job.
#pragma once

#include <string>

#include "tools/tune/request.h"
#include "tutti/communicator.h"

namespace tutti::tune {

/// Figures of a network, of all measured pairs of hosts: medians.
struct NetworkMeasurement {
  double latency_us = 0;     ///< a small message one way
  double gap_us = 0;         ///< of a rank's processor, for a small message that it sends or receives
  double processor_gbs = 0;  ///< that one rank sends and receives together
  double slowest_us = 0;     ///< the largest latency of a pair
  size_t hosts = 0;
  size_t pairs = 0;
};

/// Measures between one rank of each host, by all ranks together; every rank gets the same figures. Takes at most some
/// tenths of a second for each of up to 16 rounds, in which pairs of hosts measure at the same time.
/// kInvalidArgument: the ranks are on one host.
Result<NetworkMeasurement> measure_network(Communicator& communicator, const std::string& pretended_host);

/// The name of the network of the job, for a file of hardware figures. kConfig: the configuration names several.
Result<std::string> network_of(const config::Config& config);

/// A file of hardware figures.
std::string figures_text(const Request& request, const std::string& network, const NetworkMeasurement& measured);

}  // namespace tutti::tune
