// SPDX-License-Identifier: Apache-2.0
// What GPUs of two hosts see through relays: this test plays both GPUs, and memory in place of the network.
#include "transport/relay.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <random>
#include <vector>

#include "transport/connection.h"

namespace tutti::transport {
namespace {

constexpr uint32_t kSlots = 4;
constexpr uint64_t kBytes = 256;

tutti_slot_layout layout(uint64_t stride) {
  tutti_slot_layout layout{};
  layout.slot_count = kSlots;
  layout.slot_bytes = layout.slot_stride = stride;
  return layout;
}

/// One direction of the network: what one side fills the other finds.
struct Wire {
  std::vector<uint8_t> memory = std::vector<uint8_t>(connection_bytes(layout(kBytes + Relay::kHeaderBytes)));
  tutti_connection out = connection_at(memory.data(), layout(kBytes + Relay::kHeaderBytes), 1);
  tutti_connection in = connection_at(memory.data(), layout(kBytes + Relay::kHeaderBytes), 0);
};

/// A GPU's side: what a kernel keeps and does.
struct Side {
  Side(Wire& out, Wire& in) : longest(std::make_shared<std::atomic<uint64_t>>(0)) {
    relay = std::make_unique<Relay>(layout(kBytes), &out.out, &in.in, longest);
    relay->memory().at = &at;
    relay->memory().of = &of;
  }
  void connect() {
    relay->memory().to = to.data();
    relay->memory().from = from.data();
  }
  bool has_room(uint32_t number) const { return static_cast<int32_t>(number - of.done) < static_cast<int32_t>(kSlots); }
  void send(uint32_t number, const std::vector<uint8_t>& data) {
    longest->store(std::max<uint64_t>(*longest, data.size()));
    std::memcpy(to.data() + number % kSlots * kBytes, data.data(), data.size());
    at.tail = number + 1;
  }
  bool has(uint32_t number) const { return static_cast<int32_t>(of.tail - number) > 0; }
  std::vector<uint8_t> receive(uint32_t number, size_t bytes) {
    const uint8_t* const slot = from.data() + number % kSlots * kBytes;
    std::vector<uint8_t> data(slot, slot + bytes);
    at.done = number + 1;
    return data;
  }

  tutti_cuda_mailbox at{}, of{};
  std::array<uint8_t, kSlots * kBytes> to{}, from{};
  std::shared_ptr<std::atomic<uint64_t>> longest;
  std::unique_ptr<Relay> relay;
};

class RelayTest : public testing::Test {
 protected:
  /// Until nothing moves any more. Progress moves all that there is room for, so few turns suffice.
  void run() {
    int turns = 0;
    for (bool moved = true; moved;) {
      ASSERT_LE(++turns, 100);
      const auto a = a_.relay->progress();
      const auto b = b_.relay->progress();
      ASSERT_TRUE(a.ok() && b.ok());
      moved = *a || *b;
    }
  }
  Wire there_, back_;
  Side a_{there_, back_};
  Side b_{back_, there_};
};

TEST_F(RelayTest, CarriesASlotAndWhatIsDone) {
  a_.connect();
  b_.connect();
  a_.send(0, {1, 2, 3});
  EXPECT_FALSE(a_.relay->idle());
  run();
  EXPECT_TRUE(a_.relay->idle());
  ASSERT_TRUE(b_.has(0));
  EXPECT_FALSE(b_.has(1));
  EXPECT_EQ(b_.receive(0, 3), (std::vector<uint8_t>{1, 2, 3}));
  run();
  EXPECT_EQ(a_.of.done, 1u);
}

TEST_F(RelayTest, ASlotWaitsUntilTheReceiverHasMadeTheCall) {
  a_.connect();
  a_.send(0, {7});
  run();
  EXPECT_FALSE(b_.has(0));
  b_.connect();
  run();
  ASSERT_TRUE(b_.has(0));
  EXPECT_EQ(b_.receive(0, 1), std::vector<uint8_t>{7});
}

TEST_F(RelayTest, NumbersThatNoMessageHadTakeNoMessagesOfTheNetwork) {
  a_.connect();
  b_.connect();
  const uint64_t before = there_.out.step;
  constexpr uint32_t kLast = 1'000'000;
  a_.send(kLast, {9});
  run();
  EXPECT_LE(there_.out.step - before, kSlots) << "only the slots that there are can hold messages";
  ASSERT_TRUE(b_.has(kLast));
  EXPECT_EQ(b_.receive(kLast, 1), std::vector<uint8_t>{9});
}

TEST_F(RelayTest, WithoutSlotsThereAreNoMessages) {
  b_.connect();
  a_.at.tail = 5;  // numbers of calls that use other connections
  run();
  EXPECT_EQ(there_.out.step, 0u);
  EXPECT_TRUE(a_.relay->idle());
  EXPECT_FALSE(b_.has(0));
}

TEST_F(RelayTest, RefusesSlicesThatDoNotFit) {
  a_.connect();
  b_.connect();
  a_.longest->store(kBytes);
  a_.send(0, {1});
  ASSERT_TRUE(a_.relay->progress().ok());
  uint64_t bytes = kBytes + 1;
  std::memcpy(there_.out.slots + 16, &bytes, sizeof bytes);  // as a peer with longer slots would say
  EXPECT_EQ(b_.relay->progress().status().code(), Code::kMismatch);
}

/// Calls of many lengths in both directions, with numbers that are skipped, over the end of the numbers.
TEST_F(RelayTest, RandomTrafficArrives) {
  std::random_device device;
  const auto seed = device();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  a_.connect();
  b_.connect();
  constexpr uint32_t kStart = ~uint32_t{0} - 500;
  for (Side* side : {&a_, &b_}) side->at.tail = side->at.done = kStart;
  run();
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
  std::array<Flow, 2> flows = {Flow{a_, b_, false, {}}, Flow{b_, a_, true, {}}};
  for (Flow& flow : flows) {
    uint32_t number = kStart;
    for (int i = 0; i < 1000; ++i) {
      if (random() % 4 == 0) number += static_cast<uint32_t>(random() % 12);
      flow.messages.emplace_back(number++, 1 + random() % kBytes);
    }
  }
  const auto pending = [&] { return flows[0].received < 1000 || flows[1].received < 1000; };
  for (int turn = 0; pending() && turn < 100'000; ++turn) {
    Flow& flow = flows[random() % 2];
    switch (random() % 4) {
      case 0:
        if (flow.sent < 1000 && flow.from.has_room(flow.messages[flow.sent].first)) {
          const auto& [number, bytes] = flow.messages[flow.sent++];
          flow.from.send(number, content(number, bytes, flow.back));
        }
        break;
      case 1:
        if (flow.received < 1000) {
          const auto& [number, bytes] = flow.messages[flow.received];
          // Numbers up to this one are done with, used or not, when the receiver comes to it.
          flow.to.at.done = number;
          if (!flow.to.has(number)) break;
          ASSERT_EQ(flow.to.receive(number, bytes), content(number, bytes, flow.back)) << number;
          ++flow.received;
        }
        break;
      default:
        ASSERT_TRUE((random() % 2 == 0 ? a_ : b_).relay->progress().ok());
    }
  }
  EXPECT_FALSE(pending());
  // A message of the network per number that may have been used, and at most one per message that is done with.
  for (const Flow& flow : flows) {
    const uint32_t numbers = flow.messages.back().first + 1 - kStart;
    const Wire& wire = flow.back ? back_ : there_;
    EXPECT_LE(wire.out.step, numbers + 1000 + 2) << "network messages";
  }
}

}  // namespace
}  // namespace tutti::transport
