// SPDX-License-Identifier: Apache-2.0
// The failure that a network tells its rank.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>

#include "tutti/status.h"

namespace tutti::test {

/// Any thread.
class ToldFailure {
 public:
  /// For transport::Net::Options::on_failure. This object outlives the network.
  std::function<void(const Status&)> listener() {
    return [this](const Status& failure) {
      const std::lock_guard lock(mutex_);
      failure_ = failure;
      changed_.notify_all();
    };
  }
  /// The failure, or Ok at the end of the limit.
  Status within(std::chrono::nanoseconds limit) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, limit, [&] { return !failure_.ok(); });
    return failure_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  Status failure_;
};

}  // namespace tutti::test
