// SPDX-License-Identifier: Apache-2.0
// Messages between GPUs of two hosts through relays and a network. This test plays both GPUs. Memory that only the
// network and the test's GPUs may touch stands for memory of a GPU: a relay that touches it ends the process.
#include "transport/relay.h"

#include <gmock/gmock.h>

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <filesystem>
#include <functional>
#include <iterator>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "unit/private_memory.h"
#include "unit/relay_end.h"

namespace tutti::transport {
namespace {

using test::eventually;
using testing::AllOf;
using testing::HasSubstr;
using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr uint32_t kSlots = 4;
constexpr uint64_t kBytes = 1024;
constexpr uint64_t kStride = kBytes + Relay::kRecordRoom;
constexpr uint32_t kSignal = Relay::kSignalTag;
constexpr uint32_t kFirstSlice = Relay::kSliceTag;
constexpr uint32_t kLastSlice = Relay::kSliceTag + kSlots - 1;
constexpr uint32_t kFirstRecord = Relay::kRecordTag;
constexpr uint32_t kLastRecord = Relay::kRecordTag + kSlots - 1;

/// The place of slots at both ends, and their access by the network.
struct Ends {
  const char* name;
  bool a_direct = false;
  bool b_direct = false;
  uint64_t capabilities = 0;

  bool direct(uint32_t rank) const { return rank == 0 ? a_direct : b_direct; }
};

tutti_slot_layout layout() {
  tutti_slot_layout layout{};
  layout.slot_count = kSlots;
  layout.slot_bytes = kBytes;
  layout.slot_stride = kStride;
  return layout;
}

/// Slots as the network registers them, and as the GPU sees them.
class Slots {
 public:
  Slots(test::FakeNetwork& fake, bool direct) : memory_(kSlots * kStride), direct_(direct) {
    if (direct) fake.grant(memory_);
  }
  uint8_t* on_gpu(uint32_t number) const { return memory_.alias() + number % kSlots * kStride; }
  MessageMemory for_network(bool dmabuf) const {
    if (!direct_) return {memory_.alias(), memory_.bytes()};
    MessageMemory memory{memory_.view(), memory_.bytes(), TUTTI_MEMORY_CUDA};
    if (dmabuf) memory.dmabuf = memory_.exported();
    return memory;
  }

 private:
  test::PrivateMemory memory_;
  bool direct_;
};

/// A rank, with the slots of its GPU.
class Side : public test::RelayEnd<Relay> {
 public:
  Side(test::FakeNetwork& fake, const Ends& ends, uint32_t rank)
      : RelayEnd(fake, rank, layout(), ends.capabilities),
        ends_(ends),
        to_(fake, ends.direct(rank)),
        from_(fake, ends.direct(rank)) {}

  void open() {
    const bool dmabuf = (ends_.capabilities & TUTTI_NET_CAP_DMABUF) != 0;
    Relay::Options options;
    options.layout = layout();
    options.to = to_.for_network(dmabuf);
    options.from = from_.for_network(dmabuf);
    options.lengths = lengths_.data();
    options.splits = ends_.a_direct || ends_.b_direct;
    options.flushes = ends_.direct(rank_) && (ends_.capabilities & TUTTI_NET_CAP_FLUSH) != 0;
    options.groups = (ends_.capabilities & TUTTI_NET_CAP_GROUPED_RECV) != 0;
    start(std::move(options));
  }

  // The work of a kernel.
  void send(uint32_t number, const std::vector<uint8_t>& data) {
    std::memcpy(to_.on_gpu(number), data.data(), data.size());
    tell_length(number, data.size());
    std::atomic_ref(at_.tail).store(number + 1, std::memory_order_release);
  }
  void tell_length(uint32_t number, uint64_t bytes) {
    std::atomic_ref(lengths_[number % kSlots]).store(bytes << 32 | number, std::memory_order_relaxed);
  }
  bool has(uint32_t number) { return static_cast<int32_t>(load(of_.tail) - number) > 0; }
  std::vector<uint8_t> receive(uint32_t number, size_t bytes) {
    const uint8_t* const slot = from_.on_gpu(number);
    std::vector<uint8_t> data(slot, slot + bytes);
    finish(number + 1);
    return data;
  }
  /// A peer's messages before this number have been here.
  void had(uint32_t tail) { std::atomic_ref(of_.tail).store(tail, std::memory_order_release); }
  void tell_tail(uint32_t tail) { std::atomic_ref(at_.tail).store(tail, std::memory_order_release); }

 private:
  static uint32_t load(uint32_t& word) { return std::atomic_ref(word).load(std::memory_order_acquire); }

  Ends ends_;
  Slots to_, from_;
  std::array<uint64_t, kSlots> lengths_{};
};

size_t open_descriptors() {
  const std::filesystem::directory_iterator descriptors("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin(descriptors), end(descriptors)));
}

class RelayTest : public testing::TestWithParam<Ends> {
 protected:
  RelayTest() {
    fake_.set_capabilities(GetParam().capabilities, TUTTI_MEMORY_HOST | TUTTI_MEMORY_CUDA);
    a_ = std::make_unique<Side>(fake_, GetParam(), 0);
    b_ = std::make_unique<Side>(fake_, GetParam(), 1);
    test::introduce(*a_, *b_);
  }
  ~RelayTest() override { test::end(*a_, *b_); }
  void open() {
    a_->open();
    b_->open();
  }
  bool splits() const { return GetParam().a_direct || GetParam().b_direct; }

  test::FakeNetwork fake_;
  std::unique_ptr<Side> a_, b_;
};

TEST_P(RelayTest, KeepsNoDescriptorOfRegisteredMemory) {
  const size_t before = open_descriptors();
  open();
  EXPECT_GE(open_descriptors(), before);
  a_->send(0, {1});
  b_->send(0, {1});
  ASSERT_TRUE(eventually([&] { return a_->has(0) && b_->has(0); }));
  EXPECT_TRUE(eventually([&] { return open_descriptors() == before; }));
}

TEST_P(RelayTest, CarriesASliceAndItsEnd) {
  open();
  a_->send(0, {1, 2, 3});
  ASSERT_TRUE(eventually([&] { return b_->has(0); }));
  EXPECT_FALSE(b_->has(1));
  EXPECT_EQ(b_->receive(0, 3), (std::vector<uint8_t>{1, 2, 3}));
  EXPECT_TRUE(eventually([&] { return a_->done_of_peer() == 1; }));
  EXPECT_TRUE(a_->is_idle_within(10s));
  EXPECT_EQ(fake_.sent(kFirstSlice, kLastSlice), 1);
  EXPECT_EQ(fake_.sent(kFirstRecord, kLastRecord), splits() ? 1 : 0);
  const bool flushes = GetParam().b_direct && (GetParam().capabilities & TUTTI_NET_CAP_FLUSH) != 0;
  EXPECT_EQ(fake_.flushes(), flushes ? 1 : 0);
}

TEST_P(RelayTest, ASliceWaitsUntilTheReceiverHasMadeTheCall) {
  a_->open();
  a_->send(0, {7});
  b_->open();
  ASSERT_TRUE(eventually([&] { return b_->has(0); }));
  EXPECT_EQ(b_->receive(0, 1), std::vector<uint8_t>{7});
}

TEST_P(RelayTest, NumbersThatNoMessageHadTakeNoMessagesOfTheNetwork) {
  open();
  constexpr uint32_t kLast = 1'000'000;
  b_->finish(kLast - 1);
  ASSERT_TRUE(eventually([&] { return a_->has_room(kLast); }));
  a_->send(kLast, {9});
  ASSERT_TRUE(eventually([&] { return b_->has(kLast); }));
  EXPECT_EQ(b_->receive(kLast, 1), std::vector<uint8_t>{9});
  EXPECT_EQ(fake_.sent(kFirstSlice, kLastSlice), 1);
}

/// A network may be done with a send only after its message has arrived and the receiver has made room.
TEST_P(RelayTest, ASlotWaitsUntilItsLastSliceIsSent) {
  fake_.hold_sends(kFirstSlice);
  open();
  a_->send(0, {1});
  ASSERT_TRUE(eventually([&] { return b_->has(0); }));
  EXPECT_EQ(b_->receive(0, 1), std::vector<uint8_t>{1});
  ASSERT_TRUE(eventually([&] { return a_->has_room(kSlots); }));
  a_->send(kSlots, {2});
  const int before = fake_.held(kFirstSlice);
  ASSERT_TRUE(eventually([&] { return fake_.held(kFirstSlice) >= before + 2; })) << "two turns of the relay";
  EXPECT_EQ(fake_.sent(kFirstSlice, kFirstSlice), 1);
  EXPECT_FALSE(a_->is_idle_within(20ms));
  fake_.release_sends();
  ASSERT_TRUE(eventually([&] { return b_->has(kSlots); }));
  EXPECT_EQ(b_->receive(kSlots, 1), std::vector<uint8_t>{2});
  EXPECT_TRUE(a_->is_idle_within(10s));
}

/// The peer hears of the slots that the GPU has read while the network took no slice.
TEST_P(RelayTest, DoneSlotsAreToldAfterASliceThatWasRefused) {
  open();
  b_->send(0, std::vector<uint8_t>(100, 1));
  ASSERT_TRUE(eventually([&] { return a_->has(0); }));
  fake_.refuse_sends(true, kFirstSlice, kLastSlice);
  const int before = fake_.sent(kFirstRecord, kLastRecord);
  a_->send(0, std::vector<uint8_t>(100, 2));
  if (splits()) {
    ASSERT_TRUE(eventually([&] { return fake_.sent(kFirstRecord, kLastRecord) > before; }));
  }
  a_->receive(0, 100);
  fake_.refuse_sends(false, 0, 0);
  ASSERT_TRUE(eventually([&] { return b_->has(0); }));
  EXPECT_TRUE(eventually([&] { return b_->done_of_peer() == 1; }));
}

/// At the end of a wave, a kernel signals the number of the peer with the largest lag.
TEST_P(RelayTest, ADoneSignalThatFallsTakesNoRoomBack) {
  open();
  b_->finish(2);
  ASSERT_TRUE(eventually([&] { return a_->has_room(kSlots + 1); }));
  b_->finish(1);
  a_->send(kSlots + 1, {5});
  ASSERT_TRUE(eventually([&] { return b_->has(kSlots + 1); }));
  EXPECT_EQ(b_->receive(kSlots + 1, 1), std::vector<uint8_t>{5});
  EXPECT_TRUE(eventually([&] { return a_->done_of_peer() == kSlots + 2; }));
}

/// In the first waves, this number lies before the first message.
TEST_P(RelayTest, ADoneSignalBeforeTheFirstMessageTakesNoRoom) {
  open();
  b_->finish(0u - 2 * kSlots);
  for (uint32_t number = 0; number < kSlots; ++number) {
    a_->send(number, {static_cast<uint8_t>(number)});
    ASSERT_TRUE(eventually([&] { return b_->has(number); }));
  }
  EXPECT_EQ(a_->done_of_peer(), 0u);
}

TEST_P(RelayTest, ASlotIsPostedAgainWhenTheGpuIsDoneWithIt) {
  open();
  ASSERT_TRUE(eventually([&] { return fake_.posted(kFirstSlice, kFirstSlice) == 2; })) << "at both ends";
  a_->send(0, {1});
  ASSERT_TRUE(eventually([&] { return b_->has(0); }));
  a_->send(1, {2});
  ASSERT_TRUE(eventually([&] { return b_->has(1); })) << "a later turn of the relay";
  EXPECT_EQ(fake_.posted(kFirstSlice, kFirstSlice), 2);
  EXPECT_EQ(b_->receive(0, 1), std::vector<uint8_t>{1});
  EXPECT_TRUE(eventually([&] { return fake_.posted(kFirstSlice, kFirstSlice) == 3; }));
}

/// A GPU may fill a slot before it tells the message, while the relay looks at an unused number of the same slot.
TEST_P(RelayTest, ALengthThatIsNotToldYetIsNoMessage) {
  open();
  a_->tell_length(kSlots + 1, 5);  // the slot of message 1, which is unused
  a_->send(2, {3});                // tells numbers 0 to 2
  ASSERT_TRUE(eventually([&] { return b_->has(2); }));
  EXPECT_EQ(b_->receive(2, 1), std::vector<uint8_t>{3});
  EXPECT_EQ(fake_.sent(kFirstSlice, kLastSlice), 1);
  b_->finish(4);
  ASSERT_TRUE(eventually([&] { return a_->has_room(kSlots + 1); }));
  a_->send(kSlots + 1, {5, 5, 5, 5, 5});
  ASSERT_TRUE(eventually([&] { return b_->has(kSlots + 1); }));
  EXPECT_EQ(b_->receive(kSlots + 1, 5), std::vector<uint8_t>(5, 5));
}

/// After a long message, a short message has its own length again.
TEST_P(RelayTest, TheLengthIsTheMessages) {
  std::mutex mutex;
  std::vector<size_t> lengths;
  fake_.change_messages([&](std::vector<uint8_t>& message) {
    const std::lock_guard lock(mutex);
    lengths.push_back(message.size());
  });
  open();
  a_->send(0, std::vector<uint8_t>(kBytes, 1));
  a_->send(1, std::vector<uint8_t>(8, 2));
  ASSERT_TRUE(eventually([&] { return b_->has(1); }));
  const std::lock_guard lock(mutex);
  const uint64_t record = splits() ? 0 : sizeof(Relay::Record);
  EXPECT_THAT(lengths, testing::Contains(kBytes + record));
  EXPECT_THAT(lengths, testing::Contains(8 + record));
}

TEST_P(RelayTest, AWrongLengthIsAnErrorThatNamesTheNetwork) {
  open();
  a_->send(0, {4});
  ASSERT_TRUE(eventually([&] { return b_->has(0); }));
  fake_.misreport(1);
  a_->send(1, {1, 2, 3});
  const Status failure = b_->failure_within(10s);
  EXPECT_EQ(failure.code(), Code::kInternal);
  EXPECT_THAT(failure.text(), AllOf(HasSubstr("network 'fake'"), HasSubstr("alpha"), HasSubstr("beta")));
  EXPECT_FALSE(b_->has(1));
}

TEST_P(RelayTest, ABrokenConnectionNamesBothEnds) {
  open();
  // Each direction has a connection of its own, and a connection that does not exist yet would not break.
  a_->send(0, {1});
  b_->send(0, {1});
  ASSERT_TRUE(eventually([&] { return a_->has(0) && b_->has(0); }));
  fake_.break_all(TUTTI_REMOTE, "the cable is cut");
  for (Side* side : {a_.get(), b_.get()}) {
    const Status failure = side->failure_within(10s);
    EXPECT_EQ(failure.code(), Code::kRemote);
    EXPECT_THAT(failure.text(), AllOf(HasSubstr("rank 0"), HasSubstr("rank 1"), HasSubstr("the cable is cut")));
  }
}

/// Messages of many lengths in both directions, with numbers that are skipped, over the end of the numbers.
TEST_P(RelayTest, RandomTrafficArrives) {
  std::random_device device;
  const auto seed = device();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  open();
  constexpr uint32_t kStart = ~uint32_t{0} - 500;
  // Numbers go forward by less than half of their range.
  for (const uint32_t done : {kStart / 3, kStart / 3 * 2, kStart}) {
    for (Side* side : {a_.get(), b_.get()}) side->had(done), side->tell_tail(done), side->finish(done);
    ASSERT_TRUE(eventually([&] { return a_->done_of_peer() == done && b_->done_of_peer() == done; }));
  }
  const auto content = [](uint32_t number, size_t bytes, bool back) {
    std::vector<uint8_t> data(bytes);
    for (size_t i = 0; i < bytes; ++i) data[i] = static_cast<uint8_t>(number * 31 + i + (back ? 128 : 0));
    return data;
  };
  struct Flow {
    Side& from;
    Side& to;
    bool back;
    std::vector<std::pair<uint32_t, size_t>> messages;  // number, bytes
    size_t sent = 0;
    size_t received = 0;
  };
  constexpr size_t kCount = 1000;
  std::array<Flow, 2> flows = {Flow{*a_, *b_, false, {}}, Flow{*b_, *a_, true, {}}};
  for (Flow& flow : flows) {
    uint32_t number = kStart;
    for (size_t i = 0; i < kCount; ++i) {
      if (random() % 4 == 0) number += static_cast<uint32_t>(random() % 12);
      flow.messages.emplace_back(number++, 1 + random() % kBytes);
    }
  }
  const auto pending = [&] { return flows[0].received < kCount || flows[1].received < kCount; };
  for (const auto end = Clock::now() + 60s; pending() && Clock::now() < end;) {
    Flow& flow = flows[random() % 2];
    if (random() % 2 == 0) {
      if (flow.sent == kCount || !flow.from.has_room(flow.messages[flow.sent].first)) continue;
      const auto& [number, bytes] = flow.messages[flow.sent++];
      flow.from.send(number, content(number, bytes, flow.back));
    } else if (flow.received < kCount) {
      const auto& [number, bytes] = flow.messages[flow.received];
      flow.to.finish(number);  // it is done with all numbers before, used or not
      if (!flow.to.has(number)) continue;
      ASSERT_EQ(flow.to.receive(number, bytes), content(number, bytes, flow.back)) << number;
      ++flow.received;
    }
  }
  EXPECT_FALSE(pending());
  EXPECT_EQ(fake_.sent(kFirstSlice, kLastSlice), static_cast<int>(2 * kCount));
  EXPECT_LE(fake_.sent(kSignal, kSignal), static_cast<int>(2 * (kCount * 14 + 10)));
  EXPECT_TRUE(a_->failure_within(0s).ok() && b_->failure_within(0s).ok());
}

constexpr uint64_t kDmabuf = TUTTI_NET_CAP_DMABUF;
constexpr uint64_t kFlush = TUTTI_NET_CAP_FLUSH;
constexpr uint64_t kGroups = TUTTI_NET_CAP_GROUPED_RECV;

INSTANTIATE_TEST_SUITE_P(Shapes, RelayTest,
                         testing::Values(Ends{"Pinned", false, false, 0}, Ends{"Direct", true, true, 0},
                                         Ends{"DirectGrouped", true, true, kGroups},
                                         Ends{"DirectFlushed", true, true, kFlush},
                                         Ends{"DmabufFlushedGrouped", true, true, kDmabuf | kFlush | kGroups},
                                         Ends{"OnlySenderDirect", true, false, kFlush},
                                         Ends{"OnlyReceiverDirect", false, true, kFlush | kGroups}),
                         [](const auto& ends) { return ends.param.name; });

}  // namespace
}  // namespace tutti::transport
