// SPDX-License-Identifier: Apache-2.0
// Checking and timing one call, by all ranks together.
#pragma once

#include <memory>
#include <string_view>

#include "tools/bench/request.h"

namespace tutti::bench {

/// Times of one call, over all ranks.
struct Timing {
  double time_us = 0;  ///< median over the batches of the slowest rank's time
  double min_us = 0;   ///< time of the fastest batch
  uint64_t wrong = 0;  ///< elements, summed over the ranks; a rank whose bits differ from rank 0's counts as one more
};

/// Times of one library, for each placement of the buffers.
struct Timings {
  std::optional<Timing> out_of_place;
  std::optional<Timing> in_place;  ///< nothing where the collective cannot be in place
};

/// Name of the algorithm and protocol that ran a call.
struct Ran {
  std::string text;  ///< "ring/simple/shm ×2"; for a compared library its name
  double predicted_us = 0;
  uint32_t channels = 0;  ///< 0: unknown
};

struct Row {
  check::Problem problem;
  Timings ours;
  std::optional<Timings> theirs;  ///< times of the compared library
  Ran ran;
};

/// The cost of a communicator: time of the slowest rank, memory of the device on which it is largest.
struct Cost {
  double init_ms = 0;
  double calls_ms = 0;  ///< its first calls
  int64_t init_bytes = 0;
  int64_t bytes = 0;  ///< after its first calls
};

/// The subject of a measurement, and the cost of its start.
struct LibraryFacts {
  std::string name;
  std::string version;
  std::string path = {};  ///< empty: this build of Tutti
  Cost first = {};
  std::optional<Cost> further = {};  ///< cost of a second communicator
};

/// One rank's side of the measurements. Every rank makes the same calls. One thread at a time.
class Measurement {
 public:
  virtual ~Measurement() = default;
  virtual Result<Row> measure(const check::Problem& problem) = 0;
  /// Only with devices: the measured library, and the compared library.
  virtual std::vector<LibraryFacts> libraries() const { return {}; }
  /// The name of this rank's device.
  virtual std::string device() const { return {}; }
  /// Counters of the measured communicator of Tutti, on this rank.
  virtual Counters counters() const = 0;
  /// Ends the work on a device after a failure, so that no rank waits for it.
  virtual void abort(std::string_view /*reason*/) {}
};

/// Measures the communicator itself, in host memory. `problems` are all that will be measured; the other arguments must
/// outlive the measurement.
std::unique_ptr<Measurement> make_host_measurement(const Request& request, Communicator& communicator,
                                                   const std::vector<check::Problem>& problems);

/// Measures libraries on this rank's CUDA device; `control` is for facts that ranks exchange. Defined if TUTTI_HAS_CUDA
/// is.
Result<std::unique_ptr<Measurement>> make_cuda_measurement(const Request& request, Communicator& control,
                                                           const std::vector<check::Problem>& problems);

}  // namespace tutti::bench
