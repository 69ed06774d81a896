// SPDX-License-Identifier: Apache-2.0
// The times of a ping-pong.
#pragma once

#include <chrono>
#include <utility>
#include <vector>

namespace tutti::net_bench {

/// Times consecutive round trips. It reads the clock once for each round trip.
class RoundTrips {
 public:
  explicit RoundTrips(size_t count) { one_way_us_.reserve(count); }
  /// Ends a round trip, and begins the next one.
  void end() {
    const auto now = Clock::now();
    one_way_us_.push_back(std::chrono::duration<double, std::micro>(now - begin_).count() / 2);
    begin_ = now;
  }
  /// Half of each round trip, in µs.
  std::vector<double> take() { return std::move(one_way_us_); }

 private:
  using Clock = std::chrono::steady_clock;
  std::vector<double> one_way_us_;
  Clock::time_point begin_ = Clock::now();
};

}  // namespace tutti::net_bench
