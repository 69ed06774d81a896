// SPDX-License-Identifier: Apache-2.0
// A rank whose connections fail over between two networks in memory of the process.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "progress/bell.h"
#include "transport/failover.h"
#include "transport/net.h"
#include "unit/fake_network.h"
#include "unit/required.h"

namespace tutti::test {

using Fakes = std::array<FakeNetwork, 2>;

/// One of two ranks with two networks, and the failure that it was told.
class FailoverRank {
 public:
  /// `base`: options that differ between tests: the keys, and whether plugins are checked.
  FailoverRank(Fakes& fakes, uint32_t rank, std::chrono::nanoseconds limit, const transport::Net::Options& base)
      : failover(std::make_shared<transport::Failover>(limit)), rank_(rank) {
    progress::init_bell(bell_);
    transport::Net::Options options = base;
    options.on_failure = [this](const Status& failure) {
      const std::lock_guard lock(mutex_);
      failure_ = failure;
    };
    options.engine = required(progress::Engine::create({options.on_failure, 1}));
    options.failover = failover;
    options.standing = [this](uint32_t /*rank*/) { return transport::Net::Standing{peer_left, false, false}; };
    options.ops = FakeNetwork::ops();
    options.communicator = 7;
    options.rank = rank;
    options.bell = &bell_;
    options.break_grace = std::chrono::milliseconds(300);
    std::vector<const transport::Net*> all;
    for (size_t i = 0; i < fakes.size(); ++i) {
      options.plugin = &fakes[i];
      options.name = i == 0 ? "first" : "second";
      options.last_failure = [&fake = fakes[i]] { return fake.take_failure(); };
      nets.push_back(required(transport::Net::create(options)));
      all.push_back(nets.back().get());
    }
    failover->set_nets(std::move(all));
  }
  progress::Engine& engine() { return nets.front()->engine(); }
  Status failure() {
    const std::lock_guard lock(mutex_);
    return failure_;
  }

  std::atomic<bool> peer_left = false;
  std::shared_ptr<transport::Failover> failover;

 protected:
  transport::Key key() const { return {1 - rank_, transport::Traffic::kCollective, 0, 0, TUTTI_NO_NET, TUTTI_NO_NET}; }
  const uint32_t rank_;

 private:
  tutti_bell bell_{};
  std::mutex mutex_;
  Status failure_;

 public:
  std::vector<std::unique_ptr<transport::Net>> nets;
};

/// Tells each rank where the other one listens.
inline void introduce(FailoverRank& a, FailoverRank& b) {
  for (size_t i = 0; i < a.nets.size(); ++i) {
    const std::vector<std::vector<transport::Net::Endpoint>> endpoints = {a.nets[i]->endpoints(),
                                                                          b.nets[i]->endpoints()};
    a.nets[i]->set_peers(endpoints);
    b.nets[i]->set_peers(endpoints);
  }
}

/// No rank connects to a listener that is closed.
inline void close(FailoverRank& a, FailoverRank& b) {
  for (FailoverRank* rank : {&a, &b}) {
    for (const auto& net : rank->nets) net->close();
  }
}

}  // namespace tutti::test
