// SPDX-License-Identifier: Apache-2.0
// Messages with flags in the data between GPUs of two hosts, through relays and a network. This test plays both GPUs.
#include "transport/line_relay.h"

#include <gmock/gmock.h>

#include <array>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "unit/relay_end.h"

namespace tutti::transport {
namespace {

using test::eventually;
using testing::AllOf;
using testing::HasSubstr;
using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr uint32_t kSlots = 4;
constexpr uint32_t kLines = 32;
constexpr uint32_t kTag = LineRelay::kTag;
using Header = LineRelay::Header;

tutti_slot_layout layout() {
  tutti_slot_layout layout{};
  layout.slot_count = kSlots;
  layout.slot_bytes = kLines * 8;
  layout.slot_stride = kLines * 16;
  return layout;
}

/// The data of a message: a number of 8 bytes per line.
uint64_t content(uint32_t number, uint32_t line, uint32_t rank) {
  return (uint64_t{number} * 1000 + line) * 2654435761u + rank;
}

/// A rank, with the slots of its GPU.
class Side : public test::RelayEnd<LineRelay> {
 public:
  Side(test::FakeNetwork& fake, uint32_t rank) : RelayEnd(fake, rank, layout()) {}

  void open() {
    LineRelay::Options options;
    options.layout = layout();
    options.to = reinterpret_cast<uint8_t*>(to_.data());
    options.from = reinterpret_cast<uint8_t*>(from_.data());
    start(std::move(options));
  }

  // The work of a kernel.
  void store_line(uint32_t number, uint32_t line) {
    const uint64_t data = content(number, line, rank_);
    const uint64_t flag = uint64_t{number + 1} << 32;
    store_word(to_, number, 2 * line, flag | (data & 0xffffffffu));
    store_word(to_, number, 2 * line + 1, flag | data >> 32);
  }
  void send(uint32_t number, uint32_t lines) {
    for (uint32_t line = 0; line < lines; ++line) store_line(number, line);
  }
  /// As kernels do before numbers repeat.
  void rewrite_flags(uint32_t number) {
    for (uint32_t word = 0; word < 2 * kLines; ++word) store_word(to_, number, word, uint64_t{number} << 32 | number);
  }
  bool has_line(uint32_t number, uint32_t line) {
    return flag_of(word(number, 2 * line)) == number + 1 && flag_of(word(number, 2 * line + 1)) == number + 1;
  }
  bool has(uint32_t number, uint32_t lines) {
    for (uint32_t line = 0; line < lines; ++line) {
      if (!has_line(number, line)) return false;
    }
    return true;
  }
  /// Whether all lines that have come hold what the peer sent.
  bool is_right(uint32_t number, uint32_t lines) {
    for (uint32_t line = 0; line < lines; ++line) {
      const uint64_t data = word(number, 2 * line + 1) << 32 | (word(number, 2 * line) & 0xffffffffu);
      if (data != content(number, line, 1 - rank_)) return false;
    }
    return true;
  }

 private:
  using Words = std::array<uint64_t, size_t{kSlots} * kLines * 2>;
  static void store_word(Words& words, uint32_t number, uint32_t index, uint64_t value) {
    std::atomic_ref(words[number % kSlots * kLines * 2 + index]).store(value, std::memory_order_relaxed);
  }
  uint64_t word(uint32_t number, uint32_t index) {
    return std::atomic_ref(from_[number % kSlots * kLines * 2 + index]).load(std::memory_order_relaxed);
  }
  static uint32_t flag_of(uint64_t word) { return static_cast<uint32_t>(word >> 32); }

  alignas(16) Words to_{}, from_{};
};

class LineRelayTest : public testing::Test {
 protected:
  LineRelayTest() {
    a_ = std::make_unique<Side>(fake_, 0);
    b_ = std::make_unique<Side>(fake_, 1);
    test::introduce(*a_, *b_);
  }
  ~LineRelayTest() override { test::end(*a_, *b_); }
  void open() {
    a_->open();
    b_->open();
  }
  /// Counts down numbers, from 0 to `number`, in steps of less than half of their range.
  void begin_at(uint32_t number) {
    for (const uint32_t done : {number / 3, number / 3 * 2, number}) {
      a_->finish(done);
      b_->finish(done);
      ASSERT_TRUE(eventually([&] { return a_->done_of_peer() == done && b_->done_of_peer() == done; }));
    }
  }

  test::FakeNetwork fake_;
  std::unique_ptr<Side> a_, b_;
};

TEST_F(LineRelayTest, ASmallMessageIsOneMessageOfTheNetwork) {
  open();
  a_->send(0, 1);
  ASSERT_TRUE(eventually([&] { return b_->has(0, 1); }));
  EXPECT_TRUE(b_->is_right(0, 1));
  EXPECT_FALSE(b_->has_line(0, 1));
  EXPECT_TRUE(a_->is_idle_within(10s));
  EXPECT_EQ(fake_.sent(kTag, kTag), 1);
}

/// Slots are zero at first, and 0 is the flag of a message.
TEST_F(LineRelayTest, NewSlotsHoldNoMessages) {
  open();
  EXPECT_TRUE(a_->is_idle_within(10s));
  for (uint32_t slot = 0; slot < kSlots; ++slot) {
    const uint32_t number = slot - kSlots;  // the numbers before 0
    EXPECT_FALSE(b_->has_line(number, 0)) << slot;
  }
  EXPECT_EQ(fake_.sent(kTag, kTag), 0);
}

TEST_F(LineRelayTest, AMessageWaitsUntilTheReceiverHasMadeTheCall) {
  a_->open();
  a_->send(0, 3);
  b_->open();
  ASSERT_TRUE(eventually([&] { return b_->has(0, 3); }));
  EXPECT_TRUE(b_->is_right(0, 3));
}

/// Different threads of a GPU store lines, in any order.
TEST_F(LineRelayTest, LinesThatComeLaterFollow) {
  open();
  a_->store_line(0, 2);
  a_->store_line(0, 0);
  ASSERT_TRUE(eventually([&] { return b_->has_line(0, 0); }));
  EXPECT_FALSE(b_->has_line(0, 1));
  a_->store_line(0, 1);
  ASSERT_TRUE(eventually([&] { return b_->has(0, 3); }));
  EXPECT_TRUE(b_->is_right(0, 3));
  EXPECT_EQ(fake_.sent(kTag, kTag), 2);
}

/// After a long message, a short message takes its own lines only.
TEST_F(LineRelayTest, OldLinesStay) {
  open();
  a_->send(0, 1);
  b_->send(0, 1);
  ASSERT_TRUE(eventually([&] { return b_->has(0, 1) && a_->has(0, 1); })) << "both connections stand";
  std::atomic<size_t> bytes = 0;
  fake_.change_messages([&](std::vector<uint8_t>& message) { bytes += message.size() - sizeof(Header); });
  a_->send(1, kLines);
  ASSERT_TRUE(eventually([&] { return b_->has(1, kLines); }));
  ASSERT_TRUE(a_->is_idle_within(10s));
  b_->finish(2);
  ASSERT_TRUE(eventually([&] { return a_->has_room(kSlots + 1); }));
  a_->send(kSlots + 1, 2);
  ASSERT_TRUE(eventually([&] { return b_->has(kSlots + 1, 2); }));
  ASSERT_TRUE(a_->is_idle_within(10s));
  EXPECT_FALSE(b_->has_line(kSlots + 1, 2));
  EXPECT_EQ(bytes, (kLines + 2) * 8);
}

/// Numbers that no message had take no messages of the network, but `done` covers them.
TEST_F(LineRelayTest, NumbersMayBeSkipped) {
  open();
  constexpr uint32_t kLast = 1'000'000;
  b_->finish(kLast - 1);
  ASSERT_TRUE(eventually([&] { return a_->has_room(kLast); }));
  b_->finish(kLast);
  a_->send(kLast, 1);
  ASSERT_TRUE(eventually([&] { return b_->has(kLast, 1); }));
  EXPECT_TRUE(b_->is_right(kLast, 1));
}

/// A `done` goes along with data of the other direction, and goes alone if no data comes.
TEST_F(LineRelayTest, DoneIsHeard) {
  open();
  b_->finish(1);
  EXPECT_TRUE(eventually([&] { return a_->done_of_peer() == 1; })) << "no data goes from b";
  b_->send(0, 1);
  ASSERT_TRUE(eventually([&] { return a_->has(0, 1); }));
  b_->finish(2);
  EXPECT_TRUE(eventually([&] { return a_->done_of_peer() == 2; })) << "data went from b";
}

/// Before numbers repeat, the sender's GPU rewrites the flags of its slots, and the relay rewrites those of the
/// receiver.
TEST_F(LineRelayTest, OldFlagsAreRewrittenInTime) {
  open();
  a_->send(1, kLines);
  ASSERT_TRUE(eventually([&] { return b_->has(1, kLines); }));
  constexpr uint32_t kLater = (1u << 30) + 1;  // in the same slot
  b_->finish(kLater);
  ASSERT_TRUE(eventually([&] { return a_->has_room(kLater); }));
  ASSERT_TRUE(a_->is_idle_within(10s));
  const int before = fake_.sent(kTag, kTag);
  a_->rewrite_flags(kLater);
  EXPECT_TRUE(a_->is_idle_within(10s)) << "rewritten flags are no message";
  EXPECT_EQ(fake_.sent(kTag, kTag), before);
  a_->send(kLater, 1);
  ASSERT_TRUE(eventually([&] { return b_->has(kLater, 1); }));
  for (uint32_t line = 1; line < kLines; ++line) EXPECT_FALSE(b_->has_line(1, line)) << line;
}

TEST_F(LineRelayTest, AWrongLengthIsAnErrorThatNamesTheNetwork) {
  open();
  a_->send(0, 1);
  ASSERT_TRUE(eventually([&] { return b_->has(0, 1); }));
  fake_.misreport(8);
  a_->send(1, 3);
  const Status failure = b_->failure_within(10s);
  EXPECT_EQ(failure.code(), Code::kInternal);
  EXPECT_THAT(failure.text(), AllOf(HasSubstr("network 'fake'"), HasSubstr("alpha"), HasSubstr("beta"),
                                    HasSubstr("3 lines of message 1")));
  EXPECT_FALSE(b_->has_line(1, 0));
}

/// A damaged header must not make the relay write outside of the slots, or over a message that the GPU reads.
TEST_F(LineRelayTest, ADamagedHeaderIsAnError) {
  const std::vector<std::function<void(Header&)>> damages = {
      [](Header& header) { header.step = 5; }, [](Header& header) { header.number = kSlots; },
      [](Header& header) { header.first = 32; }, [](Header& header) { header.lines = 2; },
      [](Header& header) { header.first = ~0u; }};
  for (size_t i = 0; i < damages.size(); ++i) {
    test::FakeNetwork fake;
    Side a(fake, 0), b(fake, 1);
    introduce(a, b);
    fake.change_messages([&](std::vector<uint8_t>& message) {
      if (message.size() != sizeof(Header) + 8) return;
      Header header{};
      std::memcpy(&header, message.data(), sizeof header);
      damages[i](header);
      std::memcpy(message.data(), &header, sizeof header);
    });
    a.open();
    b.open();
    a.send(0, 1);
    EXPECT_EQ(b.failure_within(10s).code(), Code::kInternal) << i;
    end(a, b);
  }
}

TEST_F(LineRelayTest, ABrokenConnectionNamesBothEnds) {
  open();
  // Each direction has a connection of its own, and a connection that does not exist yet would not break.
  a_->send(0, 1);
  b_->send(0, 1);
  ASSERT_TRUE(eventually([&] { return a_->has(0, 1) && b_->has(0, 1); }));
  fake_.break_all(TUTTI_REMOTE, "the cable is cut");
  for (Side* side : {a_.get(), b_.get()}) {
    const Status failure = side->failure_within(10s);
    EXPECT_EQ(failure.code(), Code::kRemote);
    EXPECT_THAT(failure.text(), AllOf(HasSubstr("rank 0"), HasSubstr("rank 1"), HasSubstr("the cable is cut")));
  }
}

/// A network that is done with a send late holds later messages back, and loses none.
TEST_F(LineRelayTest, MessagesWaitForFreeBuffers) {
  fake_.hold_sends(kTag);
  open();
  uint32_t number = 0;
  for (; number < LineRelay::kRequests; ++number) {
    a_->send(number, 1);
    b_->finish(number);
    ASSERT_TRUE(eventually([&] { return b_->has(number, 1); })) << number;
    b_->finish(number + 1);
  }
  EXPECT_FALSE(a_->is_idle_within(20ms));
  fake_.release_sends();
  a_->send(number, 1);
  ASSERT_TRUE(eventually([&] { return b_->has(number, 1); }));
  EXPECT_TRUE(a_->is_idle_within(10s));
}

/// Messages of many lengths in both directions, line by line, with numbers that are skipped, over the end of the
/// numbers.
TEST_F(LineRelayTest, RandomTrafficArrives) {
  std::random_device device;
  const auto seed = device();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  open();
  constexpr uint32_t kStart = ~uint32_t{0} - 500;
  begin_at(kStart);
  struct Message {
    uint32_t number;
    uint32_t lines;
  };
  struct Flow {
    Side& from;
    Side& to;
    std::vector<Message> messages;
    size_t sent = 0;
    uint32_t lines = 0;  // lines of the message under way
    size_t received = 0;
  };
  constexpr size_t kCount = 1000;
  std::array<Flow, 2> flows = {Flow{*a_, *b_, {}}, Flow{*b_, *a_, {}}};
  for (Flow& flow : flows) {
    uint32_t number = kStart;
    for (size_t i = 0; i < kCount; ++i) {
      if (random() % 4 == 0) number += static_cast<uint32_t>(random() % 12);
      flow.messages.push_back({number++, static_cast<uint32_t>(1 + random() % kLines)});
    }
  }
  const auto pending = [&] { return flows[0].received < kCount || flows[1].received < kCount; };
  for (const auto end = Clock::now() + 60s; pending() && Clock::now() < end;) {
    Flow& flow = flows[random() % 2];
    if (random() % 2 == 0) {
      if (flow.sent == kCount) continue;
      const Message& message = flow.messages[flow.sent];
      if (flow.lines == 0 && !flow.from.has_room(message.number)) continue;
      const uint32_t part = 1 + static_cast<uint32_t>(random()) % kLines;
      for (uint32_t i = 0; i < part && flow.lines < message.lines; ++i)
        flow.from.store_line(message.number, flow.lines++);
      if (flow.lines < message.lines) continue;
      ++flow.sent;
      flow.lines = 0;
    } else if (flow.received < kCount) {
      const Message& message = flow.messages[flow.received];
      flow.to.finish(message.number);  // it is done with all numbers before, used or not
      if (!flow.to.has(message.number, message.lines)) continue;
      ASSERT_TRUE(flow.to.is_right(message.number, message.lines)) << message.number;
      ++flow.received;
    }
  }
  EXPECT_FALSE(pending());
  EXPECT_TRUE(a_->failure_within(0s).ok() && b_->failure_within(0s).ok());
}

}  // namespace
}  // namespace tutti::transport
