// SPDX-License-Identifier: Apache-2.0
// The common part of measurements in host memory and on devices: calls per batch, results of batches, and wrong results
// of ranks.
#pragma once

#include "tools/bench/measure.h"
#include "tools/check/compare.h"

namespace tutti::bench {

/// The bytes that hold each buffer of every call of this rank.
size_t largest_buffer(const std::vector<check::Problem>& problems, int rank);

/// Whether an in-place call finds its input as it was when it is made again.
bool repeats_in_place(Collective collective);

/// The calls before the first batch on devices, and if the command line gives the calls of a batch.
inline constexpr int kFewWarmUpCalls = 3;

/// The calls of one batch, when one takes about `estimate_us`.
int calls_of_batch(const Request& request, double estimate_us);

/// Puts the batches' times of one call into `timing`.
void summarize(const std::vector<double>& batches_us, Timing& timing);

/// The communicator's choice for this call. `registered`: the outputs lie in registered buffers that are reached
/// directly.
Result<Ran> ran_by(const Communicator& communicator, const check::Problem& problem, bool registered = false);

/// The result of one rank's check of its output.
struct Finding {
  check::Comparison comparison;
  uint64_t hash = 0;  ///< hash of an output that must be equal on all ranks
};

/// Adds up the findings of the ranks, as Timing::wrong counts them. Before, it reports on stderr the wrong elements of
/// this rank. `what` names the call.
Result<uint64_t> count_wrong(Communicator& control, const Finding& finding, const std::string& what);

}  // namespace tutti::bench
