// SPDX-License-Identifier: Apache-2.0
// The plans of all ranks and channels of a call.
#pragma once

#include <cstdint>
#include <vector>

#include "program/cache.h"
#include "program/plan.h"

namespace tutti::backend {

/// The plans of a call: by channel, then by rank, with all ranks in ascending order.
using ChannelPlans = std::vector<std::vector<program::Plan>>;

/// Collects the plans of a call, one channel after the other. If all channels have equal plans without strands, keeps
/// the plans of the first channel alone: CTAs beyond the channels begin with the first plan again. With many ranks,
/// the plans of one channel are large. One thread.
class PlanCollector {
 public:
  /// The plans of the next channel, of all ranks in ascending order.
  void add(std::vector<program::Plan> all_ranks);
  /// The plans of all channels, or of the first channel for all.
  ChannelPlans take() { return std::move(plans_); }

 private:
  ChannelPlans plans_;
  program::Fingerprint first_;  // of the first channel's plans
  uint32_t left_out_ = 0;       // channels since, with the same plans
};

}  // namespace tutti::backend
