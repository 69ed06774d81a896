// SPDX-License-Identifier: Apache-2.0
// The two ranks of a test of relays (transport/relay.h, transport/line_relay.h). The test plays both GPUs.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "progress/bell.h"
#include "transport/net.h"
#include "unit/fake_network.h"
#include "unit/required.h"
#include "unit/told_failure.h"

namespace tutti::test {

/// One of two ranks: its network, its relay, and the mailboxes of its GPU.
template <class Relay>
class RelayEnd {
 public:
  using Clock = std::chrono::steady_clock;

  RelayEnd(FakeNetwork& fake, uint32_t rank, const tutti_slot_layout& layout, uint64_t capabilities = 0)
      : rank_(rank), slots_(layout.slot_count) {
    progress::init_bell(bell_);
    transport::Net::Options options;
    options.ops = FakeNetwork::ops();
    options.plugin = &fake;
    options.capabilities = capabilities;
    options.name = "fake";
    options.communicator = 0x1234;
    options.rank = rank;
    options.keys = {1, {layout}};
    options.bell = &bell_;
    options.on_failure = told_.listener();
    options.hosts = {"alpha", "beta"};
    options.break_grace = std::chrono::milliseconds(10);
    options.last_failure = [&fake] { return fake.take_failure(); };
    net = required(transport::Net::create(std::move(options)));
  }

  // The work of a kernel.
  uint32_t done_of_peer() { return std::atomic_ref(of_.done).load(std::memory_order_acquire); }
  bool has_room(uint32_t number) {
    return static_cast<int32_t>(number - done_of_peer()) < static_cast<int32_t>(slots_);
  }
  void finish(uint32_t done) { std::atomic_ref(at_.done).store(done, std::memory_order_release); }

  /// True once the relay has no data that must go out. The relay itself belongs to its polling thread.
  bool is_idle_within(std::chrono::nanoseconds limit) {
    return net->engine().flush(Clock::now() + limit, [] { return false; });
  }
  Status failure_within(std::chrono::nanoseconds limit) { return told_.within(limit); }

  std::unique_ptr<transport::Net> net;
  std::shared_ptr<Relay> relay;

 protected:
  /// As a rank does at the first call. `options` lack the key and the mailboxes.
  void start(typename Relay::Options options) {
    options.key = {1 - rank_, transport::Traffic::kCollective, 0, 0};
    options.at = &at_;
    options.of = &of_;
    const transport::Key key = options.key;
    relay = std::make_shared<Relay>(*net, std::move(options));
    net->expect(key, relay);
    net->engine().add(relay);
  }

  const uint32_t rank_;
  tutti_cuda_mailbox at_{}, of_{};

 private:
  const uint32_t slots_;
  tutti_bell bell_{};
  ToldFailure told_;
};

/// Tells each end where the other one listens.
template <class End>
void introduce(End& a, End& b) {
  const std::vector<std::vector<transport::Net::Endpoint>> endpoints = {a.net->endpoints(), b.net->endpoints()};
  a.net->set_peers(endpoints);
  b.net->set_peers(endpoints);
}

/// Both engines end first: a relay that still connects would reach for the listener of the peer.
template <class End>
void end(End& a, End& b) {
  for (End* each : {&a, &b}) each->net->engine().stop();
  for (End* each : {&a, &b}) {
    each->relay.reset();
    each->net.reset();
  }
}

inline bool eventually(const std::function<bool()>& condition) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (!condition() && std::chrono::steady_clock::now() < limit) std::this_thread::yield();
  return condition();
}

}  // namespace tutti::test
