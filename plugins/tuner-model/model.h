// SPDX-License-Identifier: Apache-2.0
// The α–β model: what a call will cost, from what links can do and what an algorithm asks of them.
#pragma once

#include <array>

#include "tutti/plugin/tuner.h"

namespace tutti::tuner_model {

/// What the topology does not say. The plugin's settings.
struct Constants {
  double memory_gbs = 1000;        ///< bandwidth of a rank's own memory, reads and writes together
  double channel_gbs = 45;         ///< what one channel can move
  double channel_bytes = 1 << 16;  ///< fewer bytes than this are not worth a channel of their own
  double call_us = 0;              ///< added to every call
};

/// T = call + Σ (hops · (latency + protocol latency) + further messages · gap) + max wire bytes / (bandwidth ·
/// efficiency) + memory bytes / memory
///
/// over the kinds of links. The sum is the critical path of one small message (α); kinds of links carry data at the
/// same time, so that the slowest counts (β). Thread-safe: nothing changes after construction.
class Model {
 public:
  Model(const Constants& constants, const tutti_topology& topology);

  /// Fills predicted_us and channels, or excludes the candidate with a reason. Leaves alone what is already excluded.
  void predict(const tutti_call& call, tutti_candidate& candidate) const;

 private:
  /// Why a candidate cannot run; null if it can.
  const char* obstacle(const tutti_candidate& candidate) const;
  uint32_t channels(const tutti_candidate& candidate, double bytes) const;
  double channel_gbs(const tutti_candidate& candidate, uint32_t link) const;
  double link_gbs(const tutti_candidate& candidate, uint32_t link, uint32_t channels) const;
  double microseconds(const tutti_candidate& candidate, double bytes, uint32_t channels) const;

  Constants constants_;
  std::array<double, TUTTI_LINK_COUNT> bandwidth_gbs_;
  std::array<double, TUTTI_LINK_COUNT> latency_us_;
  std::array<double, TUTTI_LINK_COUNT> gap_us_;
};

}  // namespace tutti::tuner_model
