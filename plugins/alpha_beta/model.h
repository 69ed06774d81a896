// SPDX-License-Identifier: Apache-2.0
// The α–β model: it predicts the time of a call from the bandwidths and latencies of links and the demands of an
// algorithm.
#pragma once

#include <array>

#include "tutti/plugin/tuner.h"

namespace tutti::alpha_beta {

/// Constants that the topology does not have. The plugin's settings.
struct Constants {
  double memory_gbs = 1000;        ///< bandwidth of a rank's own memory, reads and writes together
  double channel_gbs = 45;         ///< bandwidth of one channel
  double channel_bytes = 1 << 16;  ///< fewer bytes than this are not worth a channel of their own
  double call_us = 0;              ///< added to every call
};

/// T = call + Σ (hops · (latency + protocol latency) + further messages · gap) + max network bytes / (bandwidth ·
/// efficiency) + memory bytes / memory
///
/// over the kinds of links. The sum is the critical path of one small message (α). Kinds of links carry data at the
/// same time, so the slowest kind counts (β). If the topology states the processors of a machine, T is at least the
/// time of these processors for all messages and bytes of its ranks. If ranks share processors, the receivers
/// of the critical path also wait for the turns of other ranks, unless data flows one way, to a root or from it.
/// Thread-safe: no state changes after construction.
class Model {
 public:
  Model(const Constants& constants, const tutti_topology& topology);

  /// Fills predicted_us and channels, or excludes the candidate with a reason. Does not change excluded candidates.
  void predict(const tutti_call& call, tutti_candidate& candidate) const;

 private:
  /// Why a candidate cannot run; null if it can.
  const char* obstacle(const tutti_candidate& candidate) const;
  uint32_t channels(const tutti_candidate& candidate, double bytes) const;
  double channel_gbs(const tutti_candidate& candidate, uint32_t link) const;
  double link_gbs(const tutti_candidate& candidate, uint32_t link, uint32_t channels) const;
  /// `switch_us_of_end`: processor time of each end of a message over a network, beyond its gap.
  double microseconds(const tutti_candidate& candidate, double bytes, uint32_t channels, bool all_wait) const;
  double exchanges_microseconds(const tutti_candidate& candidate) const;
  double turns_microseconds(const tutti_candidate& candidate) const;
  double relays_microseconds(const tutti_candidate& candidate) const;
  double end_switch_us() const;
  double processor_microseconds(const tutti_candidate& candidate, double bytes, double switch_us_of_end) const;

  Constants constants_;
  std::array<double, TUTTI_LINK_COUNT> bandwidth_gbs_;
  std::array<double, TUTTI_LINK_COUNT> latency_us_;
  std::array<double, TUTTI_LINK_COUNT> gap_us_;
  std::array<double, TUTTI_LINK_COUNT> processor_gbs_;
  double processors_;
  double switch_us_;
  uint32_t most_ranks_;  ///< of a machine
};

}  // namespace tutti::alpha_beta
