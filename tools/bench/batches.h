// SPDX-License-Identifier: Apache-2.0
// What measurements in host memory and on devices share: how many calls a batch makes, what batches say together, and
// what the ranks found wrong.
#pragma once

#include "tools/bench/measure.h"
#include "tools/check/compare.h"

namespace tutti::bench {

/// The bytes that hold each buffer of every call of this rank.
size_t largest_buffer(const std::vector<check::Problem>& problems, int rank);

/// Whether an in-place call finds its input as it was when it is made again.
bool repeats_in_place(Collective collective);

/// The calls of one batch, when one takes about `estimate_us`.
int calls_of_batch(const Request& request, double estimate_us);

/// Puts the batches' times of one call into `timing`.
void summarize(const std::vector<double>& batches_us, Timing& timing);

/// What the communicator chooses for this call. `registered`: on outputs in registered buffers that are reached
/// directly.
Result<Ran> ran_by(const Communicator& communicator, const check::Problem& problem, bool registered = false);

/// What one rank found in its output.
struct Finding {
  check::Comparison comparison;
  uint64_t hash = 0;  ///< of an output that must be the same on every rank
};

/// Adds up what the ranks found, as Timing::wrong counts it, having said on stderr what is wrong here. `what` names the
/// call.
Result<uint64_t> count_wrong(Communicator& control, const Finding& finding, const std::string& what);

}  // namespace tutti::bench
