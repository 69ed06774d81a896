// SPDX-License-Identifier: Apache-2.0
// Checking and timing one call, by all ranks together.
#pragma once

#include <memory>
#include <string_view>

#include "tools/bench/request.h"

namespace tutti::bench {

/// Of one call, over all ranks.
struct Timing {
  double time_us = 0;  ///< median over the batches of the slowest rank's time
  double min_us = 0;   ///< of the fastest batch
  uint64_t wrong = 0;  ///< elements, summed over the ranks; a rank whose bits differ from rank 0's counts as one more
};

/// Of one library, in each place of the buffers.
struct Timings {
  std::optional<Timing> out_of_place;
  std::optional<Timing> in_place;  ///< nothing where the collective cannot be in place
};

/// What ran a call.
struct Ran {
  std::string text;  ///< "ring/simple/shm ×2"; of another library its name
  double predicted_us = 0;
  uint32_t channels = 0;  ///< 0: unknown
};

struct Row {
  check::Problem problem;
  Timings ours;
  std::optional<Timings> theirs;  ///< of the library that is compared with
  Ran ran;
};

/// What a communicator took: time of the slowest rank, memory of the device where it is most.
struct Cost {
  double init_ms = 0;
  double calls_ms = 0;  ///< its first calls
  int64_t init_bytes = 0;
  int64_t bytes = 0;  ///< after its first calls
};

/// What is measured, and what it took to begin.
struct LibraryFacts {
  std::string name;
  std::string version;
  std::string path = {};  ///< empty: this build of Tutti
  Cost first = {};
  std::optional<Cost> further = {};  ///< of a second communicator beside the first
};

/// One rank's side of the measurements. Every rank makes the same calls.
class Measurement {
 public:
  virtual ~Measurement() = default;
  virtual Result<Row> measure(const check::Problem& problem) = 0;
  /// Only with devices: what is measured, and what it is compared with.
  virtual std::vector<LibraryFacts> libraries() const { return {}; }
  /// The name of this rank's device.
  virtual std::string device() const { return {}; }
  /// Ends what runs on a device, after a failure, so that nothing waits for it.
  virtual void abort(std::string_view /*reason*/) {}
};

/// Measures the communicator itself, in host memory. `problems` are all that will be measured; the other arguments must
/// outlive the measurement.
std::unique_ptr<Measurement> make_host_measurement(const Request& request, Communicator& communicator,
                                                   const std::vector<check::Problem>& problems);

/// Measures libraries on this rank's CUDA device; `control` is for what the ranks tell each other. Defined where
/// TUTTI_HAS_CUDA is.
Result<std::unique_ptr<Measurement>> make_cuda_measurement(const Request& request, Communicator& control,
                                                           const std::vector<check::Problem>& problems);

}  // namespace tutti::bench
