// SPDX-License-Identifier: Apache-2.0
// Asks algorithms for plans, and proves them right before they are used. Any thread.
#pragma once

#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <tuple>

#include "program/cache.h"
#include "program/plan.h"
#include "tuner/selector.h"

namespace tutti::backend {

/// The largest plans that are proved: within these limits a proof takes up to about a second and 300 MiB on each rank,
/// measured with every algorithm of the project. `tutti plan verify` proves larger plans, too.
inline constexpr uint32_t kMaxProvedRanks = 1024;
/// Sends and receives of all ranks in one loop of one channel. A ring's all-reduce on 1024 ranks has 4,190,208.
inline constexpr uint64_t kMaxProvedMessages = uint64_t{1} << 22;

/// Why a job of so many ranks runs its plans without a proof; empty: it proves them, as far as kMaxProvedMessages.
std::string why_unproved(uint32_t rank_count);

/// Whether the plans of all ranks have at most kMaxProvedMessages.
bool within_proofs(std::span<const program::Plan> plans);

class Plans {
 public:
  struct Options {
    uint32_t rank = 0;
    uint32_t rank_count = 1;
    bool verify = true;
  };
  Plans(const Options& options, const tuner::Choices& choices) : options_(options), choices_(choices) {}

  /// The plan of one rank on one channel.
  Result<program::Plan> request(const tuner::Decision& decision, Collective collective, uint32_t rank, uint32_t channel,
                                uint32_t root) const;
  /// Proves the plans of all ranks on all of the decision's channels, with room for `slots` messages per connection.
  /// Plans beyond the limits above are not proved: rank 0 logs a warning, once for each plan.
  Status verify(const tuner::Decision& decision, Collective collective, uint32_t root, bool in_place,
                uint32_t slots) const;

  uint32_t rank_count() const { return options_.rank_count; }

 private:
  Result<std::optional<std::vector<program::Plan>>> all_ranks(const tuner::Decision& decision, Collective collective,
                                                              uint32_t channel, uint32_t root) const;
  void warn_unproved(const tuner::Decision& decision, Collective collective, const std::string& why) const;

  Options options_;
  const tuner::Choices& choices_;
  mutable program::VerifyCache proved_;  // most channels have the same plans
  mutable std::mutex mutex_;
  mutable std::set<std::tuple<uint32_t, uint32_t, Collective>> warned_;  // algorithm, variant
};

}  // namespace tutti::backend
