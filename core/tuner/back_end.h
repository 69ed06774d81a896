// SPDX-License-Identifier: Apache-2.0
// The questions of the selector to the part of Tutti that executes plans, before candidates compete.
#pragma once

#include <span>
#include <string>

#include "program/plan.h"

namespace tutti::tuner {

/// A back end executes plans: on the host, or as kernels on GPUs. A back end with limits answers for the plan itself,
/// so its answers are the same on all ranks and need no device. Any thread.
class BackEnd {
 public:
  virtual ~BackEnd() = default;

  /// ok: communicators of this number of ranks can be made. Else kUnsupported with the limit.
  virtual Status takes(uint32_t rank_count) const = 0;
  /// ok: the plan of one rank can be executed. Else kUnsupported with the limit that the plan exceeds: "needs 120
  /// steps; this back end runs up to 64".
  virtual Status runs(const program::Plan& plan) const = 0;
  /// ok: all ranks can execute their plans of a channel together; runs() has accepted each plan. Else kUnsupported with
  /// the reason.
  virtual Status runs_together(std::span<const program::Plan> all_ranks) const = 0;

  /// Why the steps of all strands run as a list, although the back end runs the strands of some plans beside each
  /// other: "kernels run up to 8 strands, and the plan of rank 0 has 12". Empty: they run beside each other. Asked only
  /// about plans of which some have strands; `all_ranks`: of a channel, with their strands, without repeats.
  virtual std::string why_lists(std::span<const program::Plan> all_ranks) const = 0;

  // takes() and runs() for protocols without large_launches (tutti/plugin/protocol.h), of ranks and plans that takes()
  // and runs() accept: "needs 17 ranks; this protocol runs up to 16".
  virtual Status takes_small(uint32_t rank_count) const = 0;
  virtual Status runs_small(const program::Plan& plan) const = 0;
};

}  // namespace tutti::tuner
