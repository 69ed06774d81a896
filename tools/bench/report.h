// SPDX-License-Identifier: Apache-2.0
// Writing measurements: the table that users of nccl-tests know, CSV, JSON.
#pragma once

#include <cstdio>

#include "tools/bench/measure.h"

namespace tutti::bench {

/// Where a rank runs.
struct Place {
  int process;
  char host[64];
};

/// What is known before the first row.
struct Preamble {
  const Request& request;
  std::vector<Place> places;  ///< by rank
  double init_ms;             ///< of the slowest rank
};

/// What is known after the last row.
struct Summary {
  double busbw = 0;  ///< average over all measurements, GB/s
  uint64_t wrong = 0;
  size_t peak_kib = 0;  ///< memory of rank 0's process
};

class Report {
 public:
  virtual ~Report() = default;
  virtual void begin(const Preamble& preamble) = 0;
  virtual void row(const Row& row) = 0;
  virtual void end(const Summary& summary) = 0;
};

/// What the request asks for. Fails if a file cannot be written.
Result<std::vector<std::shared_ptr<Report>>> make_reports(const Request& request);

/// Bandwidths of one call in GB/s. `bus` is what each link must carry, so that it compares with the hardware's figure
/// whatever the number of ranks: nccl-tests' doc/PERFORMANCE.md derives the factors.
double algorithm_bandwidth(const check::Problem& problem, double time_us);
double bus_bandwidth(const check::Problem& problem, double time_us);

/// "ring/simple/shm ×2", "direct/two-shot/ll/shm ×1".
std::string to_string(const Choice& choice);

}  // namespace tutti::bench
