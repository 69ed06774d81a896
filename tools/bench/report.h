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
  // Only with devices.
  std::string device;                   ///< rank 0's
  std::vector<LibraryFacts> libraries;  ///< what is measured, what it is compared with
};

/// What is known after the last row.
struct Summary {
  double busbw = 0;  ///< average over all measurements, GB/s
  uint64_t wrong = 0;
  double ratio = 0;     ///< theirs over ours, geometric mean over all measurements; 0 without a comparison
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

/// How many times as long the other library took.
double ratio(const Timing& ours, const Timing& theirs);

/// What the tables call a reduction and a root: "none" and -1 where there is none.
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
