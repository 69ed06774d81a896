// SPDX-License-Identifier: Apache-2.0
// Asks algorithms for plans, and proves them right before they are used. Any thread.
#pragma once

#include "plan/plan.h"
#include "tuner/selector.h"

namespace tutti::communicator {

class Plans {
 public:
  struct Options {
    uint32_t rank_count = 1;
    bool verify = true;
  };
  Plans(const Options& options, const tuner::Choices& choices) : options_(options), choices_(choices) {}

  /// The plan of one rank on one channel.
  Result<plan::Plan> request(const tuner::Decision& decision, Collective collective, uint32_t rank, uint32_t channel,
                             uint32_t root) const;
  /// Proves the plans of all ranks on `channels` channels, with room for `slots` messages per connection.
  Status verify(const tuner::Decision& decision, Collective collective, uint32_t root, bool in_place, uint32_t channels,
                uint32_t slots) const;

  uint32_t rank_count() const { return options_.rank_count; }

 private:
  Options options_;
  const tuner::Choices& choices_;
};

}  // namespace tutti::communicator
