// SPDX-License-Identifier: Apache-2.0
// Messages between GPUs of two hosts over connections that fail over. This test plays both GPUs.
#include "transport/carried_relay.h"

#include <gmock/gmock.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <random>
#include <thread>
#include <vector>

#include "transport/carried_line_relay.h"
#include "transport/carried_task.h"
#include "unit/failover_rank.h"

namespace tutti::transport {
namespace {

using testing::HasSubstr;
using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr uint32_t kSlots = 4;         // of a GPU
constexpr uint64_t kSlotBytes = 1024;  // data of a slot
constexpr uint64_t kPartBytes = 256;   // of a slot of the network connection
constexpr uint32_t kLines = kSlotBytes / LineSlot::kDataBytes;

/// Slots of one protocol.
tutti_slot_layout layout(bool has_flags) {
  tutti_slot_layout layout{};
  layout.slot_count = kSlots;
  layout.slot_bytes = kSlotBytes;
  layout.slot_stride = has_flags ? kLines * LineSlot::kLineBytes : kSlotBytes;
  return layout;
}

Net::Options options() {
  Net::Options options;
  tutti_slot_layout layout{};
  layout.slot_count = 4;
  layout.slot_bytes = layout.slot_stride = kPartBytes;
  options.keys = {1, {layout}};
  options.serves_left = true;
  return options;
}

/// The content of a message: words of 8 bytes.
uint64_t word_of(uint32_t number, uint32_t word) {
  return (uint64_t{number} * 1000 + word) * 0x9e3779b97f4a7c15;
}

/// A rank, its relay, and the work of its kernels.
class Side : public test::FailoverRank {
 public:
  Side(test::Fakes& fakes, uint32_t rank, bool has_flags)
      : FailoverRank(fakes, rank, 5s, options()), has_flags_(has_flags), stride_(layout(has_flags).slot_stride) {}

  void open() {
    if (has_flags_) {
      CarriedLineRelay::Options made;
      fill(made);
      add(std::make_unique<CarriedLineRelay>(std::move(made)));
    } else {
      CarriedRelay::Options made;
      fill(made);
      made.lengths = lengths_.data();
      add(std::make_unique<CarriedRelay>(std::move(made)));
    }
  }
  /// The connection to the peer, moved by the engine.
  tutti_connection& out() { return *nets.front()->sender(key()); }

  /// Sends a message once a slot is free. False: 20 s have passed, or the rank has failed.
  bool send(uint32_t number, uint32_t words) {
    if (!wait_for([&] { return static_cast<int32_t>(number - load(of_.done)) < static_cast<int32_t>(kSlots); }))
      return false;
    uint64_t* const slot = this->slot(to_, number);
    for (uint32_t word = 0; word < words; ++word) {
      const uint64_t data = word_of(number, word);
      if (has_flags_) {
        store(slot[2 * word], uint64_t{number + 1} << 32 | (data & 0xffffffff));
        store(slot[2 * word + 1], uint64_t{number + 1} << 32 | data >> 32);
      } else {
        store(slot[word], data);
      }
    }
    if (has_flags_) return true;
    store(lengths_[number % kSlots], words * sizeof(uint64_t) << 32 | number);
    std::atomic_ref(at_.tail).store(number + 1, std::memory_order_release);
    return true;
  }
  /// Takes a message. Empty: it is as it was sent.
  std::string receive(uint32_t number, uint32_t words) {
    const uint64_t* const slot = this->slot(from_, number);
    const auto has = [&](uint32_t index) { return load(slot[index]) >> 32 == number + 1; };
    const auto is_here = [&] {
      if (!has_flags_) return static_cast<int32_t>(load(of_.tail) - number) > 0;
      for (uint32_t index = 0; index < 2 * words; ++index) {
        if (!has(index)) return false;
      }
      return true;
    };
    if (!wait_for(is_here)) return "the message has not come";
    for (uint32_t word = 0; word < words; ++word) {
      const uint64_t data =
          has_flags_ ? load(slot[2 * word + 1]) << 32 | (load(slot[2 * word]) & 0xffffffff) : load(slot[word]);
      if (data != word_of(number, word)) return "word " + std::to_string(word) + " differs";
    }
    std::atomic_ref(at_.done).store(number + 1, std::memory_order_release);
    return {};
  }

 private:
  template <class Options>
  void fill(Options& made) {
    made.key = key();
    made.layout = layout(has_flags_);
    made.to = reinterpret_cast<uint8_t*>(to_.data());
    made.from = reinterpret_cast<uint8_t*>(from_.data());
    made.at = &at_;
    made.of = &of_;
    connections_ = nets.front()->pair(key());
    made.out = &connections_.sender->connection();
    made.in = &connections_.receiver->connection();
  }
  void add(std::unique_ptr<progress::Task> relay) {
    engine().add(std::make_shared<CarriedTask>(connections_, std::move(relay)));
  }
  bool wait_for(const std::function<bool()>& condition) {
    const auto end = Clock::now() + 20s;
    while (!condition()) {
      if (Clock::now() > end || !failure().ok()) return false;
      std::this_thread::yield();
    }
    return true;
  }
  template <class Word>
  static Word load(const Word& word) {
    return std::atomic_ref(const_cast<Word&>(word)).load(std::memory_order_acquire);
  }
  static void store(uint64_t& word, uint64_t value) { std::atomic_ref(word).store(value, std::memory_order_relaxed); }
  using Words = std::array<uint64_t, kSlots * kLines * 2>;
  uint64_t* slot(Words& words, uint32_t number) const {
    return words.data() + number % kSlots * (stride_ / sizeof(uint64_t));
  }

  const bool has_flags_;
  const uint64_t stride_;
  alignas(64) Words to_{}, from_{};
  std::array<uint64_t, kSlots> lengths_{};
  tutti_cuda_mailbox at_{}, of_{};
  Net::Pair connections_;
};

/// With flags in the data, and without.
class CarriedRelayTest : public testing::TestWithParam<bool> {
 protected:
  CarriedRelayTest() { test::introduce(a_, b_); }
  ~CarriedRelayTest() override { test::close(a_, b_); }

  test::Fakes fakes_;
  Side a_{fakes_, 0, GetParam()};
  Side b_{fakes_, 1, GetParam()};
};

INSTANTIATE_TEST_SUITE_P(Protocols, CarriedRelayTest, testing::Bool(), [](const auto& param) {
  return param.param ? std::string("FlagsInTheData") : std::string("Signals");
});

/// Messages of both ranks have all lengths, and networks break in turn.
TEST_P(CarriedRelayTest, MessagesArriveOnceThoughNetworksBreak) {
  constexpr uint32_t kMessages = 1200;
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  a_.open();
  b_.open();
  std::atomic<uint32_t> received{0};
  const auto exchange = [&](Side& side) {
    std::mt19937_64 random(seed);  // both ranks draw the same lengths
    for (uint32_t number = 0; number < kMessages; ++number, ++received) {
      const auto words = static_cast<uint32_t>(1 + random() % kLines);
      ASSERT_TRUE(side.send(number, words)) << number << ": " << side.failure().to_string();
      ASSERT_EQ(side.receive(number, words), "") << number << ": " << side.failure().to_string();
    }
  };
  std::thread first(exchange, std::ref(a_));
  std::thread second(exchange, std::ref(b_));
  std::mt19937_64 random(seed + 1);
  size_t breaks = 0;
  for (uint64_t next = 20; next < 2 * kMessages && !HasFailure(); next += 1 + random() % 300) {
    while (received < next && !HasFailure()) std::this_thread::yield();
    fakes_[breaks++ % 2].break_all(TUTTI_REMOTE, "the link is cut");
  }
  first.join();
  second.join();
  EXPECT_GT(breaks, 5u);
  EXPECT_GE(a_.failover->counts().failovers + b_.failover->counts().failovers, 2u);
  // Nothing is held back, though the kernels may take the last messages after both ranks have left.
  a_.peer_left = b_.peer_left = true;
  for (Side* side : {&a_, &b_}) {
    EXPECT_TRUE(side->engine().flush(Clock::now() + 10s, [] { return false; }));
    EXPECT_TRUE(side->failure().ok()) << side->failure().to_string();
  }
}

/// A kernel of a rank that leaves may still wait for data.
TEST_P(CarriedRelayTest, ARankThatLeavesGetsItsData) {
  a_.open();
  b_.open();
  ASSERT_TRUE(a_.send(0, kLines));
  ASSERT_EQ(b_.receive(0, kLines), "");
  a_.peer_left = true;
  fakes_[0].break_all(TUTTI_REMOTE, "the link is cut");
  ASSERT_TRUE(a_.send(1, kLines));
  EXPECT_EQ(b_.receive(1, kLines), "");
  EXPECT_TRUE(a_.engine().flush(Clock::now() + 10s, [] { return false; }));
}

/// A message that is no message of a relay.
TEST_P(CarriedRelayTest, WrongMessagesAreFailures) {
  b_.open();
  tutti_connection& out = a_.out();
  SlotCarrier carrier(out, *a_.nets.front()->receiver({1, Traffic::kCollective, 0, 0}));
  const std::span<uint8_t> room = carrier.room();
  ASSERT_GE(room.size(), 64u);
  std::memset(room.data(), 0x5a, room.size());
  carrier.send(60);
  progress::ring(a_.engine().bell());
  const auto end = Clock::now() + 10s;
  while (b_.failure().ok() && Clock::now() < end) std::this_thread::yield();
  EXPECT_EQ(b_.failure().code(), Code::kInternal);
  EXPECT_THAT(std::string(b_.failure().text()), HasSubstr("rank 0 has sent "));
  EXPECT_THAT(std::string(b_.failure().text()), HasSubstr("of message 1515870810 "));
}

/// Data that does not continue the slice before it, or too many lines, would be written behind the slot.
TEST_P(CarriedRelayTest, DataStaysInItsSlot) {
  b_.open();
  SlotCarrier carrier(a_.out(), *a_.nets.front()->receiver({1, Traffic::kCollective, 0, 0}));
  const auto send = [&](const auto& header, uint64_t bytes) {
    std::memcpy(carrier.room().data(), header.data(), sizeof header);
    carrier.send(sizeof header + bytes);
    progress::ring(a_.engine().bell());
  };
  if (GetParam()) {
    send(std::array<uint32_t, 4>{0, kLines - 1, 2, 0}, 2 * LineSlot::kDataBytes);
  } else {
    send(std::array<uint64_t, 3>{1000, 0, 0}, 200);
    send(std::array<uint64_t, 3>{100, 200, 0}, 50);
  }
  const auto end = Clock::now() + 10s;
  while (b_.failure().ok() && Clock::now() < end) std::this_thread::yield();
  EXPECT_THAT(std::string(b_.failure().text()),
              HasSubstr(GetParam() ? "rank 0 has sent 32 bytes, and calls them 2 lines of message 0 from line 127"
                                   : "rank 0 has sent 50 bytes, and calls them part of message 0 of 100 bytes, from "
                                     "byte 200; 200 bytes of this message are here"));
}

}  // namespace
}  // namespace tutti::transport
