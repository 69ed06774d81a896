// SPDX-License-Identifier: Apache-2.0
// Two ranks that are joined by a network which fails on demand.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "progress/bell.h"
#include "transport/net.h"
#include "unit/fake_network.h"
#include "unit/required.h"
#include "unit/told_failure.h"

namespace tutti::transport {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

inline constexpr uint64_t kStride = 256;
inline constexpr uint32_t kSlots = 4;
inline constexpr auto kGrace = 300ms;
inline constexpr uint64_t kCommunicator = 0x1234;

/// One rank with its network, and the failure that it was told.
class Rank {
 public:
  Rank(test::FakeNetwork& fake, uint32_t rank, bool checks_plugin, bool checks_data,
       std::vector<std::string> hosts = {"alpha", "beta"})
      : rank_(rank) {
    progress::init_bell(bell_);
    Net::Options options;
    options.check_plugins = checks_plugin;
    options.check_data = checks_data;
    options.ops = test::FakeNetwork::ops();
    options.plugin = &fake;
    options.name = "fake";
    options.communicator = kCommunicator;
    options.rank = rank;
    tutti_slot_layout layout{};
    layout.slot_count = kSlots;
    layout.slot_bytes = layout.slot_stride = kStride;
    options.keys = {1, {layout}};
    options.bell = &bell_;
    options.on_failure = told_.listener();
    options.standing = [this](uint32_t /*rank*/) { return Net::Standing{left, unheard, awaited}; };
    options.incoming = incoming;
    options.hosts = std::move(hosts);
    options.break_grace = kGrace;
    options.last_failure = [&fake] { return fake.take_failure(); };
    net = test::required(Net::create(std::move(options)));
  }

  tutti_connection& sender() { return *net->sender(key()); }
  tutti_connection& receiver() { return *net->receiver(key()); }
  /// The executor's part of a send. Waits for a free slot.
  void send(const std::vector<uint8_t>& data) {
    tutti_connection& to = sender();
    const auto is_full = [&] { return to.step - std::atomic_ref(*to.head).load() >= kSlots; };
    for (const auto end = Clock::now() + 10s; is_full() && Clock::now() < end;) std::this_thread::yield();
    ASSERT_FALSE(is_full());
    std::memcpy(to.slots + to.step % kSlots * to.slot_stride, data.data(), data.size());
    to.sizes[to.step % kSlots] = data.size();
    std::atomic_ref(*to.tail).store(++to.step, std::memory_order_seq_cst);
    progress::ring(*to.peer_bell);
  }
  /// And to receive; the bytes that a slot holds are not told, so `bytes` says how many to take.
  std::vector<uint8_t> receive(size_t bytes) {
    tutti_connection& from = receiver();
    if (!arrives(10s)) return {};
    const uint8_t* const slot = from.slots + from.step % kSlots * from.slot_stride;
    std::vector<uint8_t> data(slot, slot + bytes);
    std::atomic_ref(*from.head).store(++from.step, std::memory_order_seq_cst);
    progress::ring(*from.peer_bell);
    return data;
  }
  /// Sleeps on the bell as executors do.
  bool arrives(std::chrono::nanoseconds limit) {
    tutti_connection& from = receiver();
    const auto arrived = [&] { return std::atomic_ref(*from.tail).load(std::memory_order_seq_cst) > from.step; };
    const auto end = Clock::now() + limit;
    while (!arrived() && Clock::now() < end) {
      progress::Sleeper announced(bell_);
      if (arrived()) break;
      announced.sleep(std::chrono::duration_cast<std::chrono::milliseconds>(limit));
    }
    return arrived();
  }
  Status failure_within(std::chrono::nanoseconds limit) { return told_.within(limit); }

  std::atomic<bool> left = false, unheard = false, awaited = false;  // state of the peer
  const std::shared_ptr<Incoming> incoming = std::make_shared<Incoming>();
  std::unique_ptr<Net> net;

 private:
  Key key() const { return {1 - rank_, Traffic::kCollective, 0, 0, 0, 0}; }

  uint32_t rank_;
  tutti_bell bell_{};
  test::ToldFailure told_;
};

class NetTest : public testing::Test {
 protected:
  explicit NetTest(uint32_t max_connections = 0, bool checks_plugin = true, bool checks_data = false) {
    fake_.limit_connections(max_connections);
    a_ = std::make_unique<Rank>(fake_, 0, checks_plugin, checks_data);
    b_ = std::make_unique<Rank>(fake_, 1, checks_plugin, checks_data);
    const std::vector<std::vector<Net::Endpoint>> endpoints = {a_->net->endpoints(), b_->net->endpoints()};
    a_->net->set_peers(endpoints);
    b_->net->set_peers(endpoints);
  }
  ~NetTest() override {
    a_->net.reset();
    b_->net.reset();
  }
  void exchange_one() {
    a_->send({1, 2, 3});
    ASSERT_EQ(b_->receive(3), (std::vector<uint8_t>{1, 2, 3}));
  }
  /// Rank 1 drops all connections that have come, after so many receives have failed.
  void expect_drops(int failed) {
    const auto end = Clock::now() + 10s;
    const auto waits = [&] { return fake_.failed_receives() < failed || fake_.open_receivers() > 0; };
    while (waits() && Clock::now() < end) b_->net->engine().assist();
    EXPECT_EQ(fake_.open_receivers(), 0);
  }

  test::FakeNetwork fake_;
  std::unique_ptr<Rank> a_, b_;
};

}  // namespace tutti::transport
