// SPDX-License-Identifier: Apache-2.0
// Connections that fail over between two networks which break on demand: each message arrives once, and in order.
#include "transport/failover.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <mutex>
#include <random>
#include <thread>

#include "progress/bell.h"
#include "transport/net.h"
#include "unit/failover_rank.h"

namespace tutti::transport {
namespace {

using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;
using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr uint32_t kSlots = 4;
constexpr uint64_t kStride = 64;
using test::Fakes;

Net::Options options_of(bool checks_plugin) {
  Net::Options options;
  options.check_plugins = checks_plugin;
  tutti_slot_layout layout{};
  layout.slot_count = kSlots;
  layout.slot_bytes = layout.slot_stride = kStride;
  options.keys = {1, {layout}};
  return options;
}

/// A rank, and the work of its executor.
class Rank : public test::FailoverRank {
 public:
  Rank(Fakes& fakes, uint32_t rank, std::chrono::nanoseconds limit, bool checks_plugin)
      : FailoverRank(fakes, rank, limit, options_of(checks_plugin)) {}
  tutti_connection& sender() { return *nets.front()->sender(key()); }
  tutti_connection& receiver() { return *nets.front()->receiver(key()); }
  /// Waits as an executor does that drives the engine. False: 20 s have passed, or it gives up.
  bool wait_for(const std::function<bool()>& done) {
    const auto end = Clock::now() + 20s;
    while (!done()) {
      if (Clock::now() > end || (gives_up && gives_up())) return false;
      for (Rank* rank : drives) rank->engine().assist();
      std::this_thread::yield();
    }
    return true;
  }
  /// The executor's part of a send. False: no slot became free.
  bool send(uint64_t value) {
    tutti_connection& to = sender();
    if (!wait_for([&] { return to.step - std::atomic_ref(*to.head).load() < kSlots; })) return false;
    std::memcpy(to.slots + to.step % kSlots * to.slot_stride, &value, sizeof value);
    to.sizes[to.step % kSlots] = sizeof value;
    std::atomic_ref(*to.tail).store(++to.step, std::memory_order_seq_cst);
    progress::ring(*to.peer_bell);
    return true;
  }
  /// And of a receive; nothing: no message came.
  std::optional<uint64_t> receive() {
    tutti_connection& from = receiver();
    if (!wait_for([&] { return std::atomic_ref(*from.tail).load(std::memory_order_seq_cst) != from.step; }))
      return std::nullopt;
    uint64_t value = 0;
    std::memcpy(&value, from.slots + from.step % kSlots * from.slot_stride, sizeof value);
    std::atomic_ref(*from.head).store(++from.step, std::memory_order_seq_cst);
    progress::ring(*from.peer_bell);
    return value;
  }

  std::function<bool()> gives_up;  ///< asked by a thread that waits; null: it never gives up
  std::vector<Rank*> drives;       ///< ranks whose engines the waiting thread drives
};

class FailoverTest : public testing::Test {
 protected:
  explicit FailoverTest(std::chrono::nanoseconds limit = 5s, bool checks_plugin = true)
      : a_{fakes_, 0, limit, checks_plugin}, b_{fakes_, 1, limit, checks_plugin} {
    test::introduce(a_, b_);
  }
  ~FailoverTest() override { test::close(a_, b_); }

  Fakes fakes_;
  Rank a_;
  Rank b_;
};

TEST_F(FailoverTest, MessagesArriveOnceAndInOrder) {
  constexpr uint64_t kMessages = 2000;
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  b_.receiver();
  std::thread receiver([&] {
    for (uint64_t i = 0; i < kMessages; ++i) {
      const auto value = b_.receive();
      ASSERT_EQ(value, i * i);
    }
  });
  std::mt19937_64 random(seed);
  uint64_t next_break = 20;
  int breaks = 0;
  for (uint64_t i = 0; i < kMessages; ++i) {
    if (i == next_break) {
      fakes_[static_cast<size_t>(breaks++) % 2].break_all(TUTTI_REMOTE, "the link is cut");
      next_break += 1 + random() % 200;
    }
    if (!a_.send(i * i)) ADD_FAILURE() << "message " << i << " finds no free slot";
    if (HasFailure()) break;
  }
  receiver.join();
  EXPECT_GT(breaks, 5);
  EXPECT_TRUE(a_.failure().ok()) << a_.failure().to_string();
  EXPECT_TRUE(b_.failure().ok()) << b_.failure().to_string();
  EXPECT_THAT(a_.failover->describe(), HasSubstr("fail-over: network 'first', from rank 0 ("));
  EXPECT_THAT(a_.failover->describe(), HasSubstr("goes on by network 'second', from rank 0 ("));
  EXPECT_GE(a_.failover->counts().failovers, 1u);
  EXPECT_LE(a_.failover->counts().failovers, static_cast<uint64_t>(breaks));
  EXPECT_LE(a_.failover->counts().resent_messages, kSlots * a_.failover->counts().failovers);
}

/// Both ranks send, so that messages carry acknowledgements.
TEST_F(FailoverTest, MessagesOfBothRanksArriveOnceAndInOrder) {
  constexpr uint64_t kBursts = 1500;
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::atomic<uint64_t> bursts{0};
  const auto exchange = [&](Rank& rank) {
    std::mt19937_64 random(seed);  // both ranks draw the same lengths
    rank.receiver();
    uint64_t sent = 0;
    uint64_t received = 0;
    for (uint64_t burst = 0; burst < kBursts; ++burst, ++bursts) {
      const uint64_t length = 1 + random() % kSlots;
      for (uint64_t i = 0; i < length; ++i, ++sent) ASSERT_TRUE(rank.send(sent * sent)) << sent;
      for (uint64_t i = 0; i < length; ++i, ++received) ASSERT_EQ(rank.receive(), received * received);
    }
  };
  std::thread first(exchange, std::ref(a_));
  std::thread second(exchange, std::ref(b_));
  std::mt19937_64 random(seed + 1);
  int breaks = 0;
  for (uint64_t next = 20; next < 2 * kBursts && !HasFailure(); next += 1 + random() % 300) {
    while (bursts < next && !HasFailure()) std::this_thread::yield();
    fakes_[static_cast<size_t>(breaks++) % 2].break_all(TUTTI_REMOTE, "the link is cut");
  }
  first.join();
  second.join();
  EXPECT_GT(breaks, 5);
  EXPECT_TRUE(a_.failure().ok()) << a_.failure().to_string();
  EXPECT_TRUE(b_.failure().ok()) << b_.failure().to_string();
  EXPECT_GE(a_.failover->counts().failovers + b_.failover->counts().failovers, 2u);
}

/// A connection by one route has little time. The plugin is not checked: its calls wait for each other, which would
/// count as sleep on a loaded machine (NET-9).
class CutTest : public FailoverTest {
 protected:
  CutTest() : FailoverTest(kLimit, false) {}

  static constexpr auto kLimit = 1s;

  /// One rank's part of an exchange with random pauses, and the end of its engine's work.
  struct Part {
    Rank& rank;
    Rank& peer;
    bool sends;
    bool receives;
    uint64_t seed;       ///< the same on both ranks
    uint64_t sent = 0;   ///< messages
    uint64_t taken = 0;  ///< messages of the peer
    bool flushed = false;

    bool has_failed() const { return !rank.failure().ok() || !peer.failure().ok(); }
    void run() {
      std::mt19937_64 lengths(seed);
      std::mt19937_64 pauses(std::random_device{}());
      rank.gives_up = [this] { return has_failed(); };
      if (receives) rank.receiver();
      const uint64_t bursts = 1 + lengths() % 300;
      const bool is_busy = lengths() % 2 == 0;
      for (uint64_t burst = 0; burst < bursts; ++burst) {
        if (!is_busy) std::this_thread::sleep_for(std::chrono::microseconds(pauses() % 4000));
        const uint64_t length = 1 + lengths() % kSlots;
        for (uint64_t i = 0; sends && i < length; ++i, ++sent) {
          if (!rank.send(sent * sent)) return;
        }
        for (uint64_t i = 0; receives && i < length; ++i, ++taken) {
          const auto value = rank.receive();
          if (!value) return;
          EXPECT_EQ(value, taken * taken) << "seed " << seed;
        }
      }
      flushed = rank.engine().flush(Clock::now() + 20s, [this] { return has_failed(); });
    }
  };
};

/// Cuts that one end may never notice, at any moment of an exchange and of its end. If many cuts follow each other, no
/// route may serve for long enough: then the ranks fail.
TEST_F(CutTest, NoCutStopsAnExchange) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  const bool one_way = random() % 3 == 0;
  std::array<Part, 2> parts = {Part{a_, b_, true, !one_way, seed}, Part{b_, a_, !one_way, true, seed}};
  std::atomic<int> ended{0};
  std::vector<std::thread> threads;
  for (Part& part : parts) {
    threads.emplace_back([&part, &ended] {
      part.run();
      ++ended;
    });
  }
  for (int cuts = 0; ended < 2; ++cuts) {
    const uint64_t most_us = random() % 3 == 0 ? 1000 : 40'000;
    std::this_thread::sleep_for(std::chrono::microseconds(random() % most_us));  // the random time of the cut
    test::FakeNetwork& fake = fakes_[random() % fakes_.size()];
    fake.delay_connections(random() % 4 == 0);
    if (cuts < 6) fake.cut_some(random() % 2 == 0 ? 1.0 : 0.4, random());
    std::this_thread::sleep_for(std::chrono::microseconds(random() % most_us));  // the random time of the delay
    fake.delay_connections(false);
  }
  for (std::thread& thread : threads) thread.join();
  for (const Part& part : parts) {
    EXPECT_TRUE(part.flushed || part.has_failed()) << "sent " << part.sent << ", received " << part.taken << ": "
                                                   << part.rank.nets.front()->describe(&part == &parts[0] ? 1 : 0);
  }
  for (Rank* rank : {&a_, &b_}) {
    const Status failure = rank->failure();
    if (failure.ok()) continue;
    EXPECT_THAT(failure.to_string(), AnyOf(HasSubstr("no network reaches rank"), HasSubstr("has not connected again")));
  }
}

/// The message that names the sender is lost, and with it all others. So the receiver cannot tell of the loss, and the
/// sender has no slot for a message whose send would fail.
TEST_F(CutTest, AConnectionThatItsReceiverNeverKnewIsMadeAgain) {
  b_.receiver();
  fakes_[0].cut_next_connection();
  for (uint64_t i = 0; i < 2 * kSlots; ++i) {
    if (i >= kSlots) {
      ASSERT_EQ(b_.receive(), i - kSlots);
    }
    ASSERT_TRUE(a_.send(i)) << i;
  }
  for (uint64_t i = kSlots; i < 2 * kSlots; ++i) ASSERT_EQ(b_.receive(), i);
  EXPECT_GE(fakes_[0].connections(0, 0), 3) << "two or more of the sender, one of the acknowledgements";
  EXPECT_EQ(a_.failover->counts().failovers, 0u) << "the route has not changed";
}

/// The acknowledgements are lost before the sender knows their connection.
TEST_F(CutTest, AcknowledgementsThatTheSenderNeverKnewAreMadeAgain) {
  ASSERT_TRUE(a_.send(0));
  const auto end = Clock::now() + 20s;
  while (fakes_[0].connections(0, 0) == 0 && Clock::now() < end) std::this_thread::yield();
  fakes_[0].cut_next_connection();
  for (uint64_t i = 1; i < 4 * kSlots; ++i) {
    ASSERT_EQ(b_.receive(), i - 1);
    ASSERT_TRUE(a_.send(i)) << i;
  }
  EXPECT_EQ(b_.receive(), 4 * kSlots - 1);
  EXPECT_GE(fakes_[0].connections(0, 0), 4) << "two or more of each rank";
  EXPECT_EQ(a_.failover->counts().failovers, 0u) << "the route has not changed";
}

/// A receiver that comes late is no lost route, however often its sender connects again.
TEST_F(CutTest, ASenderWaitsForALateReceiver) {
  ASSERT_TRUE(a_.send(1));
  const auto end = Clock::now() + 20s;
  while (fakes_[0].connections(0, 0) < 3 && Clock::now() < end) std::this_thread::yield();
  EXPECT_GE(fakes_[0].connections(0, 0), 3);
  EXPECT_EQ(b_.receive(), 1u);
  EXPECT_TRUE(a_.failure().ok()) << a_.failure().to_string();
  EXPECT_EQ(a_.failover->counts().failovers, 0u);
}

/// The sender has no reason to touch the connection, and never notices the cut itself.
TEST_F(CutTest, AReceiverTellsOfALoss) {
  ASSERT_TRUE(a_.send(0));
  ASSERT_EQ(b_.receive(), 0u);
  tutti_connection& sender = a_.sender();
  ASSERT_TRUE(a_.wait_for([&] { return std::atomic_ref(*sender.head).load() == sender.step; })) << "acknowledged";
  fakes_[0].cut(0);
  ASSERT_TRUE(a_.send(1));
  EXPECT_EQ(b_.receive(), 1u);
  EXPECT_EQ(a_.failover->counts().failovers, 1u);
}

/// Messages that are not acknowledged for long are no reason to make the connection again.
TEST_F(CutTest, ASlowReceiverKeepsItsConnection) {
  ASSERT_TRUE(a_.send(0));
  ASSERT_EQ(b_.receive(), 0u);
  for (uint64_t i = 1; i <= kSlots; ++i) ASSERT_TRUE(a_.send(i));
  const auto end = Clock::now() + 3 * kLimit;
  while (Clock::now() < end) std::this_thread::yield();
  for (uint64_t i = 1; i <= kSlots; ++i) ASSERT_EQ(b_.receive(), i);
  EXPECT_EQ(fakes_[0].connections(0, 0), 2) << "one of each rank";
}

/// Almost no acknowledgement is a message of its own where each message has an answer.
TEST_F(FailoverTest, AnswersCarryAcknowledgements) {
  constexpr int kMessages = 2000;
  // The first task starts an engine's thread, which leaves the work to the drive. One thread drives both engines, so
  // the rounds that an engine makes for a message do not depend on the load of the machine.
  for (Rank* rank : {&a_, &b_}) {
    rank->receiver();
    rank->sender();
  }
  const progress::Engine::Drive drive_a(&a_.engine()), drive_b(&b_.engine());
  a_.drives = b_.drives = {&a_, &b_};
  for (uint64_t i = 0; i < kMessages; ++i) {
    ASSERT_TRUE(a_.send(i) && b_.send(i)) << i;
    ASSERT_EQ(a_.receive(), i);
    ASSERT_EQ(b_.receive(), i);
  }
  EXPECT_GE(fakes_[0].sent(0, 0), 2 * kMessages);
  EXPECT_LT(fakes_[0].sent(0, 0), 2 * kMessages + kMessages / 10);
}

/// The peer takes no message before it has sent more than its slots hold. So a message that carries an acknowledgement
/// does not reach it.
TEST_F(FailoverTest, AStuckAcknowledgementGoesOutAlone) {
  for (Rank* rank : {&a_, &b_}) rank->receiver();
  for (uint64_t i = 0; i < kSlots; ++i) ASSERT_TRUE(a_.send(i));
  const progress::Engine::Drive drive(&a_.engine());
  a_.drives = b_.drives = {&a_};
  for (uint64_t i = 0; i < 4 * kSlots; ++i) {
    ASSERT_TRUE(b_.send(i)) << i;
    ASSERT_EQ(a_.receive(), i);
    if (i < kSlots) {
      ASSERT_TRUE(a_.send(kSlots + i)) << i;
    }
  }
  for (uint64_t i = 0; i < 2 * kSlots; ++i) ASSERT_EQ(b_.receive(), i);
}

/// The sender has nothing to send, and is told of the loss.
TEST_F(FailoverTest, AnIdleConnectionFailsOverToo) {
  b_.receiver();
  ASSERT_TRUE(a_.send(1));
  ASSERT_EQ(b_.receive(), 1u);
  fakes_[0].break_all(TUTTI_REMOTE, "the link is cut");
  const auto end = Clock::now() + 20s;
  while (a_.failover->describe().empty() && Clock::now() < end) std::this_thread::yield();
  EXPECT_FALSE(a_.failover->describe().empty());
  ASSERT_TRUE(a_.send(2));
  EXPECT_EQ(b_.receive(), 2u);
}

/// A rank that leaves closes its connections. Its peer may hear only later that the rank has left.
TEST_F(FailoverTest, ARankThatLeavesIsNoLoss) {
  b_.receiver();
  ASSERT_TRUE(a_.send(1));
  ASSERT_EQ(b_.receive(), 1u);
  tutti_connection& sender = a_.sender();
  ASSERT_TRUE(a_.wait_for([&] { return std::atomic_ref(*sender.head).load() == sender.step; })) << "acknowledged";
  b_.peer_left = true;  // a rank that leaves asks for no connection
  fakes_[0].break_all(TUTTI_REMOTE, "the process at the other end closed it");
  const auto until = [](Clock::time_point end) {
    while (Clock::now() < end) std::this_thread::yield();
  };
  const auto begin = Clock::now();
  until(begin + 100ms);
  a_.peer_left = true;
  until(begin + 1s);
  EXPECT_EQ(a_.failover->counts().failovers, 0u);
  EXPECT_EQ(fakes_[1].connections(0, 0), 0);
}

/// A route is tried again after all others. The failure names all routes.
TEST_F(FailoverTest, WithoutAnyNetworkTheFailureNamesAll) {
  b_.receiver();
  ASSERT_TRUE(a_.send(1));
  ASSERT_EQ(b_.receive(), 1u);
  for (test::FakeNetwork& fake : fakes_) fake.refuse_connections(true);
  for (test::FakeNetwork& fake : fakes_) fake.break_all(TUTTI_REMOTE, "the link is cut");
  const auto end = Clock::now() + 20s;
  while (a_.failure().ok() && Clock::now() < end) std::this_thread::yield();
  EXPECT_EQ(a_.failure().code(), Code::kRemote);
  EXPECT_THAT(std::string(a_.failure().text()),
              AllOf(HasSubstr("no network reaches rank 1 any more: network 'first', from rank 0 ("),
                    HasSubstr("the link is cut; network 'second', from rank 0 ("), HasSubstr("cannot connect")));
  EXPECT_TRUE(a_.failover->describe().empty());
  EXPECT_EQ(a_.failover->counts().failovers, 0u);
}

TEST_F(FailoverTest, OtherFailuresEndTheJob) {
  b_.receiver();
  ASSERT_TRUE(a_.send(1));
  ASSERT_EQ(b_.receive(), 1u);
  fakes_[0].break_all(TUTTI_SYSTEM, "the device is on fire");
  const auto end = Clock::now() + 20s;
  while (a_.failure().ok() && b_.failure().ok() && Clock::now() < end) std::this_thread::yield();
  EXPECT_THAT(a_.failure().to_string() + b_.failure().to_string(), HasSubstr("the device is on fire"));
}

}  // namespace
}  // namespace tutti::transport
