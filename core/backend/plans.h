// SPDX-License-Identifier: Apache-2.0
// Asks algorithms for plans, and proves them right before they are used. Any thread.
#pragma once

#include <span>
#include <string>

#include "program/cache.h"
#include "program/plan.h"
#include "transport/connection.h"
#include "tuner/selector.h"

namespace tutti::backend {

class Plans {
 public:
  struct Options {
    uint32_t rank = 0;
    uint32_t rank_count = 1;
    bool verify = true;
  };
  Plans(const Options& options, const tuner::Choices& choices) : options_(options), choices_(choices) {}

  /// The steps of a plan with strands: as one list for a device that runs one strand, or with the strands.
  enum class Form { kList, kStrands };
  /// The plan of one rank on one channel, without repeats.
  Result<program::Plan> request(const tuner::Decision& decision, Collective collective, uint32_t rank, uint32_t channel,
                                uint32_t root, Form form = Form::kList) const;
  /// Proves the plans of all ranks on all of the decision's channels, with room for `slots` messages per connection.
  /// Fails (kUnsupported) for plans that cannot be proved within the limits of program/verify/prove.h.
  Status verify(const tuner::Decision& decision, Collective collective, uint32_t root, bool in_place,
                uint32_t slots) const;

  /// Proves plans of all ranks that a back end has made of those of an algorithm.
  Status verify(std::span<const program::Plan> all_ranks, bool in_place, uint32_t slots) const;

  /// By which network devices this rank sends to a rank of a different machine on a channel.
  Result<transport::Ports> ports(uint32_t algorithm, uint32_t channel, uint32_t peer) const;

  uint32_t rank_count() const { return options_.rank_count; }

  /// "hier/bruck".
  std::string name_of(const tuner::Decision& decision) const;

 private:
  Options options_;
  const tuner::Choices& choices_;
  mutable program::VerifyCache proved_;  // most channels have the same plans
};

}  // namespace tutti::backend
