// SPDX-License-Identifier: Apache-2.0
// Checking and timing one call, by all ranks together.
#pragma once

#include <cstdlib>
#include <memory>

#include "tools/bench/request.h"

namespace tutti::bench {

/// Of one call, over all ranks.
struct Timing {
  double time_us = 0;  ///< median over the batches of the slowest rank's time
  double min_us = 0;   ///< of the fastest batch
  uint64_t wrong = 0;  ///< elements, summed over the ranks; a rank whose bits differ from rank 0's counts as one more
};

struct Row {
  check::Problem problem;
  std::optional<Timing> out_of_place;
  std::optional<Timing> in_place;  ///< nothing where the collective cannot be in place
  Choice choice;
};

/// Page-aligned memory.
class Buffer {
 public:
  explicit Buffer(size_t bytes);
  std::byte* data() const { return memory_.get(); }

 private:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  std::unique_ptr<std::byte, Free> memory_;
};

/// One rank's side of the measurements on a communicator. Every rank makes the same calls.
class Measurement {
 public:
  Measurement(const Request& request, Communicator& communicator);
  Result<Row> measure(const check::Problem& problem);

 private:
  /// One call with its buffers, to be checked and repeated.
  struct Subject;

  Result<Timing> measure(const Subject& subject);
  Result<uint64_t> count_wrong(const Subject& subject);
  Status time(const Subject& subject, Timing& timing);
  /// The slowest rank's time of one call, in a batch that starts at a barrier.
  Result<double> time_batch(const Subject& subject, int calls);

  const Request& request_;
  Communicator& communicator_;
  Buffer input_;
  Buffer output_;
};

}  // namespace tutti::bench
