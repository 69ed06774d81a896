// SPDX-License-Identifier: Apache-2.0
// Writing measurements: the table that users of nccl-tests know, CSV, JSON.
#pragma once

#include <cstdio>

#include "tools/bench/measure.h"

namespace tutti::bench {

/// The process of a rank, and its host.
struct ProcessLocation {
  int process;
  char host[64];
};

/// Facts that are known before the first row.
struct Preamble {
  const Request& request;
  std::vector<ProcessLocation> locations;  ///< by rank
  double init_ms;                          ///< time of the slowest rank
  // Only with devices.
  std::string device;                   ///< rank 0's
  std::vector<LibraryFacts> libraries;  ///< the measured library, then the compared library
};

/// Facts that are known after the last row.
struct Summary {
  double busbw = 0;  ///< average over all measurements, GB/s
  uint64_t wrong = 0;
  double ratio = 0;     ///< theirs over ours, geometric mean over all measurements; 0 without a comparison
  size_t peak_kib = 0;  ///< memory of rank 0's process
  Counters counters;    ///< sums over all ranks
};

class Report {
 public:
  virtual ~Report() = default;
  virtual void begin(const Preamble& preamble) = 0;
  virtual void row(const Row& row) = 0;
  virtual void end(const Summary& summary) = 0;
};

/// The reports of the request. Fails if a file cannot be written.
Result<std::vector<std::shared_ptr<Report>>> make_reports(const Request& request);

/// Bandwidths of one call in GB/s. `bus` is the bandwidth that each link must carry. It can be compared with the
/// hardware's figure at every number of ranks: nccl-tests' doc/PERFORMANCE.md derives the factors.
double algorithm_bandwidth(const check::Problem& problem, double time_us);
double bus_bandwidth(const check::Problem& problem, double time_us);

/// How many times as long the other library took.
double ratio(const Timing& ours, const Timing& theirs);

/// Texts of a reduction and a root in tables: "none" and -1 if there is none.
std::string op_text(const check::Problem& problem);
int root_of(const check::Problem& problem);

/// A file that is closed in the end, unless it is standard output.
struct CloseFile {
  void operator()(std::FILE* file) const {
    if (file != stdout) std::fclose(file);
  }
};
using File = std::unique_ptr<std::FILE, CloseFile>;
std::shared_ptr<Report> make_json_report(File file);

}  // namespace tutti::bench
