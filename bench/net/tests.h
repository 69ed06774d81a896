// SPDX-License-Identifier: Apache-2.0
// The measurements: latency of one message, bandwidth of many, each by the two sides at the same time.
#pragma once

#include <cstdint>
#include <vector>

#include "net/network.h"

namespace tutti::net_bench {

enum class Test : uint32_t { kEnd, kLatency, kOneWay, kBothWays };

/// The next test of both sides. The client sends it to the server as plain data.
struct Order {
  Test test = Test::kEnd;
  uint32_t connections = 1;  ///< in each direction
  uint32_t window = 8;       ///< messages outstanding on each connection
  uint32_t reserved = 0;
  uint64_t bytes = 8;  ///< size of one message
  uint64_t count = 1;  ///< messages per connection and direction, or round trips
};

/// The measurement of one side.
struct Outcome {
  double seconds = 0;
  double cpu_seconds = 0;       ///< CPU time of this process, user and system
  std::vector<double> samples;  ///< for a latency test, at the client: microseconds of each half round trip
};

/// The connections of one side, in both directions: send comms and receive comms of NCCL.
struct NetComms {
  std::vector<void*> out;
  std::vector<void*> in;
};

/// Carries out this side of the order. `leads`: the client.
Outcome carry_out(Network& network, const NetComms& comms, const Order& order, bool leads);

}  // namespace tutti::net_bench
