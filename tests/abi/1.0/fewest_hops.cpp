// SPDX-License-Identifier: Apache-2.0
// A tuner outside Tutti's tree. The time of a call is the time of its hops plus the time of its bytes. So few hops win
// for small calls, and few bytes win for large calls.
#include <algorithm>
#include <array>

#include "tutti/sdk/tuner.h"

namespace {

using namespace tutti;

constexpr double kBytesPerUs = 1e3;  // of 1 GB/s

class Choice : public sdk::TunerInstance {
 public:
  explicit Choice(const tutti_topology& topology) {
    std::copy_n(topology.bandwidth_gbs, TUTTI_LINK_COUNT, bandwidth_gbs_.begin());
    std::copy_n(topology.latency_us, TUTTI_LINK_COUNT, latency_us_.begin());
  }

  Status choose(const tutti_call& call, const sdk::Candidates& candidates) const override {
    const double bytes = static_cast<double>(call.block_bytes) * static_cast<double>(call.blocks);
    for (tutti_candidate& candidate : candidates) {
      if (candidate.predicted_us < 0) continue;  // the host has excluded it
      predict(bytes, candidate);
    }
    return {};
  }

 private:
  void predict(double bytes, tutti_candidate& candidate) const {
    double us = 0;
    for (uint32_t link = 0; link < TUTTI_LINK_COUNT; ++link) {
      const uint32_t hops = candidate.hops[link];
      const double wire = candidate.wire[link];
      if (hops == 0 && wire <= 0) continue;
      const double gbs = bandwidth_gbs_[link] * candidate.protocol_efficiency[link];
      if (gbs <= 0) return exclude(candidate);
      us += hops * (latency_us_[link] + candidate.protocol_latency_us[link]) + wire * bytes / (gbs * kBytesPerUs);
    }
    if (candidate.max_channels == 0) return exclude(candidate);
    candidate.predicted_us = us;
    candidate.channels = candidate.max_channels;
  }

  static void exclude(tutti_candidate& candidate) {
    candidate.predicted_us = -1;
    candidate.reason = sdk::borrow("a link or a channel that the candidate needs is missing");
  }

  std::array<double, TUTTI_LINK_COUNT> bandwidth_gbs_{};
  std::array<double, TUTTI_LINK_COUNT> latency_us_{};
};

class FewestHopsTuner : public sdk::Tuner {
 public:
  Result<std::unique_ptr<sdk::TunerInstance>> create(const tutti_topology& topology) override {
    return std::unique_ptr<sdk::TunerInstance>(std::make_unique<Choice>(topology));
  }
};

}  // namespace

TUTTI_PLUGIN(FewestHopsTuner, "fewest_hops", "1.0.0", "few hops for small calls, few bytes for large calls")
