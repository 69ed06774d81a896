// SPDX-License-Identifier: Apache-2.0
// Proofs of plans over any number of ranks, within limits of time and memory.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "program/verify/contents.h"
#include "program/verify/verify.h"

namespace tutti::program {

/// Gives the plan of a rank, with or without repeats and strands. Called several times for each rank.
using PlanSource = std::function<Result<Plan>(uint32_t rank)>;
/// The source of plans in memory, which outlive it.
PlanSource source_of(std::span<const Plan> plans);

/// The work that a proof may take. The defaults take up to about a second and 500 MiB.
struct ProofLimits {
  uint64_t messages = uint64_t{1} << 22;  ///< chunks sent and received by all ranks in a loop, and their steps
  uint64_t chunks = uint64_t{1} << 24;    ///< chunks of the outputs and scratch buffers of all ranks, of an exact proof
  uint64_t entries =
      uint64_t{1} << 26;  ///< steps, peers and waits of all ranks' plans, with their repeats not written out
  uint64_t messages_of_rank = uint64_t{1} << 22;  ///< as `messages`, of one rank, for a proof by rotation
};
/// For a tool that a person waits for: up to some seconds, and some GiB.
inline constexpr ProofLimits kPatientLimits = {uint64_t{1} << 24, uint64_t{1} << 26, uint64_t{1} << 30};

/// The size of all ranks' plans. The sums end when one of them is above its limit.
struct Extent {
  uint64_t messages = 0;
  uint64_t steps = 0;  ///< with their repeats written out
  uint64_t chunks = 0;
  uint64_t entries = 0;

  void add(const Plan& plan);
  /// Empty if an exact proof is within the limits; else the reason.
  std::string why_not_exact(const ProofLimits& limits) const;
};

/// The outcome of a proof.
struct Verdict {
  Status status;         ///< a failure is a counter-example, or the reason for which there is no proof
  bool decided = true;   ///< false: there is neither a proof nor a counter-example within the limits
  std::string how = {};  ///< the kind of a proof: "exactly" or "by rotation"
};

/// Up to this number of ranks, plans are proved exactly whenever the limits allow it.
inline constexpr uint32_t kExactRanks = 64;

/// Proves what verify() proves. Up to kExactRanks ranks, follows the plans of all ranks. For more ranks, first checks
/// whether the plans are images of each other under a rotation (program/verify/rotation.h). If so, it follows the plan
/// of rank 0 alone: all ranks advance in step. If not, follows the plans of all ranks, within the limits. `place` as
/// for verify(), as a step of the plan without repeats.
Verdict prove(uint32_t rank_count, const PlanSource& source, const VerifyOptions& options,
              const ProofLimits& limits = {}, std::optional<StepPlace>* place = nullptr);

/// The reason for which an exact proof is too large; empty if it is not.
Result<std::string> why_not_exact(uint32_t rank_count, const PlanSource& source, const ProofLimits& limits);
/// The plans of all ranks without repeats.
Result<std::vector<Plan>> unrolled(uint32_t rank_count, const PlanSource& source);

/// All counter-examples that one run over the plans of all ranks finds; empty if there is none. A deadlock ends the
/// run. Fails like verify() if the plans are no set, or are too large for an exact proof.
Result<std::vector<CounterExample>> counter_examples(std::span<const Plan> plans, const VerifyOptions& options,
                                                     const ProofLimits& limits = {});

}  // namespace tutti::program
