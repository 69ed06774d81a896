// SPDX-License-Identifier: Apache-2.0
// Connections over two cables, one of which fails while data is under way. A cable fails in two ways: a port goes down,
// which both ends notice, or packets vanish in one direction. If acknowledgements vanish, data has arrived that the
// sender must repeat if it trusts its own device alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <deque>
#include <functional>
#include <thread>

#include "rdma-vm/ib_network.h"

namespace tutti {
namespace {

using test::IbNetwork;
using test::kLimit;
using test::Memory;
using test::Pair;
using test::random_bytes;
using testing::AllOf;
using testing::HasSubstr;
using Clock = std::chrono::steady_clock;

const IbNetwork::Settings kTwoRails = {{"settings.net.ib.rails", "2"},       {"settings.net.ib.timeout", "14"},
                                       {"settings.net.ib.retry_count", "3"}, {"settings.net.ib.split_min", "16KiB"},
                                       {"settings.net.ib.queue_pairs", "2"}, {"timeouts.peer_loss", "5s"}};

void run(const std::string& command) {
  ASSERT_EQ(std::system(command.c_str()), 0) << command;
}

/// A failure of one of two cables, and its mending.
struct Fault {
  const char* name;
  std::string begin;
  std::string end;
};

Fault down(int interface) {
  const std::string name = "rdma" + std::to_string(interface);
  const std::string peer = "rdma" + std::to_string(interface ^ 1);
  std::string end = "ip link set " + name + " up";
  for (const int one : {interface, interface ^ 1}) {
    end += " && ip route replace 10.78." + std::to_string(one / 2) + ".0/24 dev rdma" + std::to_string(one) +
           " table " + std::to_string(101 + one);
  }
  static const char* const names[] = {"rdma0_down", "rdma1_down", "rdma2_down", "rdma3_down"};
  return {names[interface], "ip link set " + name + " down", end};
}

Fault silent(int interface) {
  const std::string rule = " dev rdma" + std::to_string(interface) + " root";
  static const char* const names[] = {"rdma0_silent", "rdma1_silent", "rdma2_silent", "rdma3_silent"};
  return {names[interface], "tc qdisc add" + rule + " netem loss 100%", "tc qdisc del" + rule};
}

/// Two cables, in order again before each test.
class Rails : public testing::TestWithParam<Fault> {
 protected:
  /// Opens both ends once all four ports are up.
  std::unique_ptr<Pair> connect() {
    const auto end = Clock::now() + kLimit;
    const auto ready = [](const char* devices) {
      const auto plugin = IbNetwork::open(devices, kTwoRails);
      return plugin.ok();
    };
    for (const char* device : {"rxe0", "rxe1", "rxe2", "rxe3"}) {
      while (!ready(device)) {
        if (Clock::now() > end) throw std::runtime_error(std::string(device) + " does not come up");
        std::this_thread::yield();
      }
    }
    return std::make_unique<Pair>(kTwoRails, "rxe0,rxe2", "rxe1,rxe3");
  }
};

/// Messages of random sizes, of which as many as possible are under way. A receive buffer is filled with poison as soon
/// as its message is complete: a part that is written twice would change the poison.
class Stream {
 public:
  static constexpr size_t kWindow = 24;
  static constexpr size_t kMost = 300000;
  static constexpr uint8_t kPoison = 0x5a;

  explicit Stream(Pair& net) : net_(net) {
    for (size_t i = 0; i < kWindow; ++i) {
      out_.push_back(net.outgoing(std::vector<uint8_t>(kMost)));
      in_.push_back(net.incoming(kMost));
    }
  }

  /// Moves `count` messages; calls `when` as soon as message `at` is complete.
  void move(size_t count, size_t at, const std::function<void()>& when) {
    size_t sent = 0, posted = 0, received = 0, acknowledged = 0;
    auto end = Clock::now() + kLimit;
    while (received < count || acknowledged < count) {
      ASSERT_LT(Clock::now(), end) << "nothing moves: " << received << " received, " << acknowledged << " sent";
      for (; posted < count && posted - received < kWindow; ++posted) post(posted);
      for (; sent < count && sent - received < kWindow && sent - acknowledged < kWindow; ++sent) send(sent);
      uint64_t bytes = 0;
      if (received < posted && done(in_requests_[received % kWindow], &bytes)) {
        check(received, bytes);
        if (received++ == at) when();
        end = Clock::now() + kLimit;
      }
      if (testing::Test::HasFatalFailure()) return;
      if (acknowledged < sent && done(out_requests_[acknowledged % kWindow], nullptr)) ++acknowledged;
      if (testing::Test::HasFatalFailure()) return;
    }
    for (size_t i = 0; i < kWindow; ++i) expect_poison(i, kMost);
  }

 private:
  void post(size_t number) {
    in_requests_[number % kWindow] = net_.recv(*in_[number % kWindow], 0);
    ASSERT_NE(in_requests_[number % kWindow], nullptr);
  }
  void send(size_t number) {
    const auto data = random_bytes(1 + static_cast<size_t>(std::rand()) % kMost);
    std::vector<uint8_t>& to = out_[number % kWindow]->data();
    std::copy(data.begin(), data.end(), to.begin());
    sizes_[number % kWindow] = data.size();
    sent_[number % kWindow] = data;
    out_requests_[number % kWindow] = net_.send(*out_[number % kWindow], data.size(), 0);
    ASSERT_NE(out_requests_[number % kWindow], nullptr);
  }
  bool done(void* request, uint64_t* bytes) {
    int32_t is_done = 0;
    const int32_t code = net_.ops().test(request, &is_done, bytes);
    EXPECT_EQ(code, TUTTI_OK) << plugin::take_failure_text();
    if (code != TUTTI_OK) ADD_FAILURE(), throw std::runtime_error("a request failed");
    return is_done != 0;
  }
  void check(size_t number, uint64_t bytes) {
    const size_t place = number % kWindow;
    std::vector<uint8_t>& got = in_[place]->data();
    ASSERT_EQ(bytes, sent_[place].size()) << "message " << number;
    ASSERT_TRUE(std::equal(sent_[place].begin(), sent_[place].end(), got.begin())) << "message " << number;
    std::fill(got.begin(), got.end(), kPoison);
  }
  /// The next message of the place has not been posted yet.
  void expect_poison(size_t place, size_t bytes) {
    const std::vector<uint8_t>& data = in_[place]->data();
    EXPECT_TRUE(std::all_of(data.begin(), data.begin() + static_cast<long>(bytes), [](uint8_t byte) {
      return byte == kPoison;
    })) << "a complete receive was written again";
  }

  Pair& net_;
  std::vector<std::unique_ptr<Memory>> out_, in_;
  void* out_requests_[kWindow] = {};
  void* in_requests_[kWindow] = {};
  size_t sizes_[kWindow] = {};
  std::vector<uint8_t> sent_[kWindow];
};

TEST_P(Rails, EachMessageArrivesOnce) {
  const auto seed = static_cast<unsigned>(std::random_device{}());
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::srand(seed);
  const auto net = connect();
  Stream stream(*net);
  std::thread failing;
  stream.move(150, 40, [&] { failing = std::thread([] { run(GetParam().begin); }); });
  failing.join();
  // The rail that is left serves alone.
  if (!HasFatalFailure()) stream.move(50, 0, [] {});
  run(GetParam().end);
}

INSTANTIATE_TEST_SUITE_P(Ib, Rails,
                         testing::Values(down(0), down(1), down(3), silent(0), silent(1), silent(2), silent(3)),
                         [](const auto& fault) { return std::string(fault.param.name); });

using LastRail = Rails;

TEST_F(LastRail, ItsEndNamesEachRail) {
  const auto net = connect();
  const auto out = net->outgoing(random_bytes(1 << 20));
  const auto in = net->incoming(1 << 20);
  net->recv(*in, 0);
  run(down(0).begin);
  run(down(2).begin);
  EXPECT_EQ(net->finish(net->send(*out, 0)), TUTTI_REMOTE);
  EXPECT_THAT(plugin::take_failure_text(),
              AllOf(HasSubstr("all rails are lost"), HasSubstr("rxe0 to rxe1"), HasSubstr("rxe2 to rxe3")));
  run(down(0).end);
  run(down(2).end);
}

TEST_F(LastRail, BothEndsAgreeOnTheRails) {
  // The other end has one port only.
  Pair net(kTwoRails, "rxe0,rxe2", "rxe1");
  const auto out = net.outgoing(random_bytes(1 << 20));
  const auto in = net.incoming(1 << 20);
  ASSERT_TRUE(net.finish_all({net.recv(*in, 0), net.send(*out, 0)})) << plugin::take_failure_text();
  EXPECT_EQ(in->data(), out->data());
  EXPECT_THAT(
      [] {
        auto plugin = IbNetwork::open("rxe0", {{"settings.net.ib.rails", "4"}, {"settings.net.ib.queue_pairs", "5"}});
        return plugin.ok() ? "opened" : plugin.status().to_string();
      }(),
      HasSubstr("16 at most"));
}

}  // namespace
}  // namespace tutti
