// SPDX-License-Identifier: Apache-2.0
// Slots over a network that fails on demand: the arrived data, the failures, and the ranks that are told.
#include "transport/net.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <mutex>
#include <optional>
#include <random>
#include <thread>

#include "transport/net_tasks.h"
#include "unit/descriptor_room.h"
#include "unit/net_pair.h"

namespace tutti::transport {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// The kernel lets a thread sleep that opens a descriptor for which the table has no room, also in connect (NET-9).
TEST_F(NetTest, DescriptorsHaveRoomBeforeConnects) {
  EXPECT_GE(test::descriptor_room(), test::within_limit(base::kLeastDescriptorRoom));
}

TEST(Net, RanksOfAHostShareItsDevices) {
  test::FakeNetwork fake;
  fake.set_devices(2);
  std::vector<std::unique_ptr<Rank>> ranks;
  std::vector<std::vector<Net::Endpoint>> endpoints;
  for (uint32_t rank = 0; rank < 4; ++rank) {
    const std::vector<std::string> hosts = {"alpha", "alpha", "beta", "beta"};
    ranks.push_back(std::make_unique<Rank>(fake, rank, false, false, hosts));
    endpoints.push_back(ranks.back()->net->endpoints());
  }
  EXPECT_THAT(ranks[0]->net->fastest_devices(), testing::ElementsAre(0, 1));
  const auto ends = [&](uint32_t from, uint32_t to, uint32_t device = TUTTI_NO_NET) {
    ranks[from]->net->set_peers(endpoints);
    return ranks[from]->net->ends({to, Traffic::kCollective, 0, 0, device, device}, true);
  };
  EXPECT_EQ(ends(0, 2), "from rank 0 (host alpha, fake0) to rank 2 (host beta, fake0)");
  EXPECT_EQ(ends(1, 3), "from rank 1 (host alpha, fake1) to rank 3 (host beta, fake1)");
  EXPECT_EQ(ends(1, 2), "from rank 1 (host alpha, fake0) to rank 2 (host beta, fake0)");
  EXPECT_EQ(ends(2, 1), "from rank 2 (host beta, fake0) to rank 1 (host alpha, fake0)") << "the same device both ways";
  EXPECT_EQ(ends(0, 2, 1), "from rank 0 (host alpha, fake1) to rank 2 (host beta, fake1)") << "as the key names it";
  for (const auto& rank : ranks) rank->net->share_devices({0, 0, 1, 1}, {{1, 0}, {0, 0}});
  EXPECT_EQ(ends(0, 2), "from rank 0 (host alpha, fake1) to rank 2 (host beta, fake0)");
  EXPECT_EQ(ends(2, 0), "from rank 2 (host beta, fake0) to rank 0 (host alpha, fake1)");
  EXPECT_EQ(ends(1, 3), "from rank 1 (host alpha, fake0) to rank 3 (host beta, fake0)");
  EXPECT_EQ(ends(1, 2), "from rank 1 (host alpha, fake1) to rank 2 (host beta, fake0)");
  EXPECT_EQ(ends(2, 1), "from rank 2 (host beta, fake0) to rank 1 (host alpha, fake1)") << "the same devices both ways";
  EXPECT_EQ(ends(0, 2, 0), "from rank 0 (host alpha, fake0) to rank 2 (host beta, fake0)") << "as the key names it";
  for (const auto& rank : ranks) rank->net->share_devices({0, 0, 1, 1}, {{7, 7}, {7, 7}});
  EXPECT_EQ(ends(0, 2), "from rank 0 (host alpha, fake0) to rank 2 (host beta, fake0)") << "no rank has device 7";
  for (const auto& rank : ranks) rank->net->close();
}

TEST_F(NetTest, SlotsArriveInOrderAndWakeTheReceiver) {
  std::mt19937 random(7);
  for (uint32_t i = 0; i < 200; ++i) {
    std::vector<uint8_t> data(1 + random() % kStride);
    for (uint8_t& byte : data) byte = static_cast<uint8_t>(random());
    const auto begin = Clock::now();
    a_->send(data);
    ASSERT_EQ(b_->receive(data.size()), data) << i;
    ASSERT_LT(Clock::now() - begin, 5s) << "a receiver that is not rung sleeps 10 s for each message";
  }
}

TEST_F(NetTest, ADriverMovesItsDataItself) {
  a_->sender();
  b_->receiver();
  const progress::Engine::Drive drive_a(&a_->net->engine()), drive_b(&b_->net->engine());
  for (int i = 0; i < 50; ++i) {
    a_->send({1, 2, 3});
    const auto end = Clock::now() + 10s;
    tutti_connection& from = b_->receiver();
    while (std::atomic_ref(*from.tail).load(std::memory_order_seq_cst) == from.step && Clock::now() < end) {
      a_->net->engine().assist();
      b_->net->engine().assist();
    }
    ASSERT_EQ(b_->receive(3), (std::vector<uint8_t>{1, 2, 3})) << i;
  }
}

TEST_F(NetTest, DataThatADriverLeavesGoesOut) {
  for (int i = 0; i < 20; ++i) {
    {
      const progress::Engine::Drive drive(&a_->net->engine());
      a_->send({static_cast<uint8_t>(i)});
    }
    ASSERT_EQ(b_->receive(1), (std::vector<uint8_t>{static_cast<uint8_t>(i)}));
  }
}

TEST_F(NetTest, ADriverThatSleepsIsWoken) {
  exchange_one();
  for (int i = 0; i < 20; ++i) {
    progress::Engine::Drive drive(&b_->net->engine());
    drive.pause();
    a_->send({static_cast<uint8_t>(i)});
    ASSERT_TRUE(b_->arrives(10s)) << i;
    drive.resume();
    ASSERT_EQ(b_->receive(1), (std::vector<uint8_t>{static_cast<uint8_t>(i)}));
  }
}

TEST_F(NetTest, TheEngineTakesOverWhereNobodyDrives) {
  exchange_one();
  std::optional<progress::Engine::Drive> drive(std::in_place, &b_->net->engine());
  std::this_thread::sleep_for(20ms);  // the engine's thread rests by now, and is on its own from the next line on
  drive.reset();
  a_->send({4});
  EXPECT_EQ(b_->receive(1), (std::vector<uint8_t>{4}));
}

TEST_F(NetTest, AFullSlotArrives) {
  const std::vector<uint8_t> data(kStride, 0x5a);
  a_->send(data);
  EXPECT_EQ(b_->receive(kStride), data);
}

TEST_F(NetTest, AHelloOfAnotherCommunicatorIsDropped) {
  NetHello hello{};
  hello.communicator = kCommunicator + 1;
  std::vector<uint8_t> bytes(sizeof hello);
  std::memcpy(bytes.data(), &hello, sizeof hello);
  fake_.visit(1, bytes);  // claims to be rank 0
  hello.communicator = kCommunicator;
  hello.rank = 2;  // there is none
  std::memcpy(bytes.data(), &hello, sizeof hello);
  fake_.visit(1, bytes);
  b_->receiver();
  expect_drops(0);
  exchange_one();
}

TEST_F(NetTest, GuestsAreBounded) {
  for (int i = 0; i < 1000; ++i) fake_.visit(1, {});
  exchange_one();
  EXPECT_LE(fake_.open_receivers(), 80);
}

TEST_F(NetTest, ABreakFailsBothIdleEndsAndNamesThem) {
  exchange_one();
  const auto begin = Clock::now();
  fake_.break_all(TUTTI_REMOTE, "10.0.0.1:4000 to 10.0.0.2:4001: no sign");
  const Status failure = b_->failure_within(10s);
  EXPECT_EQ(failure.code(), Code::kRemote);
  EXPECT_GE(Clock::now() - begin, kGrace) << "the hub gets no time to tell more";
  EXPECT_THAT(failure.text(), AllOf(HasSubstr("network 'fake' lost the connection from rank 0 (host alpha, fake0) to "
                                              "rank 1 (host beta, fake0)"),
                                    HasSubstr("10.0.0.1:4000 to 10.0.0.2:4001: no sign")));
  // The sender learns of it when it sends.
  EXPECT_TRUE(a_->failure_within(0s).ok());
  a_->send({4});
  EXPECT_THAT(a_->failure_within(10s).text(),
              HasSubstr("from rank 0 (host alpha, fake0) to rank 1 (host beta, fake0)"));
}

TEST_F(NetTest, OtherFailuresAreToldAtOnce) {
  exchange_one();
  fake_.break_all(TUTTI_SYSTEM, "out of memory");
  EXPECT_EQ(b_->failure_within(1s).code(), Code::kSystem);
}

TEST_F(NetTest, ABreakOfARankThatLeftIsNoFailureUnlessItIsAwaited) {
  exchange_one();
  b_->left = true;
  fake_.break_all(TUTTI_REMOTE, "closed");
  EXPECT_TRUE(b_->failure_within(2 * kGrace).ok());
  b_->awaited = true;
  EXPECT_EQ(b_->failure_within(10s).code(), Code::kRemote);
}

TEST_F(NetTest, WithoutTheHubAnIdleBreakIsNoFailureUnlessDataIsLost) {
  exchange_one();
  a_->unheard = b_->unheard = true;
  fake_.break_all(TUTTI_REMOTE, "closed");
  EXPECT_TRUE(b_->failure_within(2 * kGrace).ok());
  b_->awaited = true;
  EXPECT_EQ(b_->failure_within(10s).code(), Code::kRemote);
  a_->send({1});
  EXPECT_EQ(a_->failure_within(10s).code(), Code::kRemote);
}

TEST_F(NetTest, DataForARankThatLeftKeepsNobody) {
  exchange_one();
  fake_.break_all(TUTTI_REMOTE, "closed");
  a_->left = true;
  a_->send({1});
  EXPECT_TRUE(a_->net->engine().flush(Clock::now() + 10s, [] { return false; }));
  EXPECT_TRUE(a_->failure_within(0s).ok());
}

struct Fault {
  const char* name;
  const char* says;
  int64_t misreport;
  std::function<void(std::vector<uint8_t>&)> change;
};

TEST_F(NetTest, DescribesItsConnectionsForTimeOuts) {
  EXPECT_EQ(a_->net->describe(1), "");
  EXPECT_EQ(b_->net->describe(0), "");
  b_->receiver();
  EXPECT_EQ(b_->net->describe(0),
            "network 'fake', from rank 0 (host alpha, fake0) to rank 1 (host beta, fake0): not connected: the sender "
            "has not come");
  fake_.hold_sends(0);
  a_->send({1, 2, 3});
  const auto waits_for = [](const std::function<bool()>& holds) {
    const auto end = Clock::now() + 10s;
    while (!holds() && Clock::now() < end) std::this_thread::yield();
    return holds();
  };
  EXPECT_TRUE(waits_for([&] { return a_->net->describe(1).find("names the sender") != std::string::npos; }))
      << a_->net->describe(1);
  fake_.release_sends();
  ASSERT_EQ(b_->receive(3), (std::vector<uint8_t>{1, 2, 3}));
  fake_.hold_sends(0);
  a_->send({4});
  EXPECT_TRUE(waits_for([&] {
    return a_->net->describe(1) ==
           "network 'fake', from rank 0 (host alpha, fake0) to rank 1 (host beta, fake0): connected; oldest of 1 "
           "outstanding requests: send of message 2";
  })) << a_->net->describe(1);
  EXPECT_EQ(a_->net->describe(std::nullopt), a_->net->describe(1));
  EXPECT_EQ(b_->net->describe(std::nullopt), "") << "it has nothing to send";
  ASSERT_EQ(b_->receive(1), (std::vector<uint8_t>{4}));
  EXPECT_TRUE(waits_for([&] {
    return b_->net->describe(0) ==
           "network 'fake', from rank 0 (host alpha, fake0) to rank 1 (host beta, fake0): connected; oldest of 4 "
           "outstanding requests: receive of message 3";
  })) << b_->net->describe(0);
  fake_.release_sends();
}

class BusyDevice : public NetTest {
 protected:
  BusyDevice() : NetTest(1) {}
};

TEST_F(BusyDevice, AConnectionAboveTheLimitIsAnErrorThatNamesDeviceAndRemedy) {
  exchange_one();
  b_->sender();
  const Status failure = b_->failure_within(10s);
  EXPECT_EQ(failure.code(), Code::kUnsupported);
  EXPECT_THAT(failure.text(),
              AllOf(HasSubstr("device 'fake0' of network 'fake' takes 1 connections"), HasSubstr("lower channels")));
}

/// The core compares messages with the ends that their senders gave them, also if it does not check the plugin.
class WrongMessages : public NetTest, public testing::WithParamInterface<Fault> {
 protected:
  WrongMessages() : NetTest(0, false) {}
};

TEST_P(WrongMessages, AreAFailureThatNamesTheConnectionAndTheRule) {
  exchange_one();
  fake_.misreport(GetParam().misreport);
  fake_.change_messages(GetParam().change);
  for (uint8_t i = 0; i < 3; ++i) a_->send({9, 9, 9});
  const Status failure = b_->failure_within(10s);
  EXPECT_EQ(failure.code(), Code::kInternal);
  EXPECT_THAT(failure.text(), AllOf(HasSubstr("network 'fake'"),
                                    HasSubstr("from rank 0 (host alpha, fake0) to rank 1 (host beta, fake0)"),
                                    HasSubstr(GetParam().says)));
}

/// As if the first message came again.
void renumber(std::vector<uint8_t>& message) {
  const uint64_t step = 0;
  std::memcpy(message.data() + message.size() - sizeof(MessageEnd), &step, sizeof step);
}

/// As if a later message came first.
void skip(std::vector<uint8_t>& message) {
  const uint64_t step = 2;
  std::memcpy(message.data() + message.size() - sizeof(MessageEnd), &step, sizeof step);
}

INSTANTIATE_TEST_SUITE_P(
    Faults, WrongMessages,
    testing::Values(
        Fault{"ReportedOneShorter", "message 1 has 18 bytes, but does not end as the sender ended it (NET-14)", -1, {}},
        Fault{"ReportedOneLonger", "message 1 has 20 bytes, but does not end as the sender ended it (NET-14)", 1, {}},
        Fault{"ReportedEmpty", "message 1 has 0 bytes; 16 to 272 are possible (NET-14)", -19, {}},
        Fault{"ReportedHuge", "16 to 272 are possible (NET-14)", int64_t{1} << 40, {}},
        Fault{"Cut", "(NET-14)", 0, [](std::vector<uint8_t>& message) { message.pop_back(); }},
        Fault{"Longer", "(NET-14)", 0, [](std::vector<uint8_t>& message) { message.push_back(0); }},
        Fault{"OtherLength", "(NET-14)", 0, [](std::vector<uint8_t>& message) { message.erase(message.begin()); }},
        Fault{"Repeated", "message 0 came again (NET-20)", 0, renumber},
        Fault{"Lost", "message 2 came instead (NET-13)", 0, skip}),
    [](const auto& fault) { return fault.param.name; });

class QuietListeners : public NetTest {
 protected:
  QuietListeners() : NetTest(0, false) {}
};

TEST_F(QuietListeners, AreAskedSeldomWhileNoReceiverWaits) {
  exchange_one();
  const progress::Engine::Drive drive(&b_->net->engine());
  const auto begin = Clock::now();
  const int before = fake_.accepts();
  for (int i = 0; i < 20000; ++i) b_->net->engine().assist();
  const auto looks = (Clock::now() - begin) / 500ms + 1;
  EXPECT_LE(fake_.accepts() - before, 2 * looks) << "both ranks look every 500 ms";
}

class CheckedData : public NetTest {
 protected:
  CheckedData() : NetTest(0, true, true) {}
};

TEST_F(NetTest, ABrokenRuleIsAFailureThatNamesRuleEntryAndConnection) {
  exchange_one();
  fake_.misreport(int64_t{1} << 40);
  a_->send({9, 9, 9});
  const Status failure = b_->failure_within(10s);
  EXPECT_EQ(failure.code(), Code::kInternal);
  EXPECT_THAT(failure.text(),
              HasSubstr("the plugin of network 'fake' breaks rule NET-14 in entry 'test' on the connection from rank 0 "
                        "(host alpha, fake0) to rank 1 (host beta, fake0): it reports 1099511627795 bytes for a buffer "
                        "of 320 bytes"));
}

TEST_F(NetTest, ABrokenRuleOfAGuestIsAFailure) {
  fake_.misreport(int64_t{1} << 40);
  fake_.visit(1, {1, 2, 3});
  b_->receiver();
  EXPECT_THAT(b_->failure_within(10s).text(),
              HasSubstr("breaks rule NET-14 in entry 'test' on the connection at rank 1"));
}

/// Connections that have not said their rank, on a network whose plugin is not checked.
class UncheckedGuests : public QuietListeners {};

TEST_F(UncheckedGuests, AreDroppedIfTheyEnd) {
  fake_.fail_receives(TUTTI_REMOTE, "closed");
  fake_.visit(1, {1, 2, 3});
  b_->receiver();
  expect_drops(1);
  EXPECT_TRUE(b_->failure_within(0s).ok());
  fake_.fail_receives(TUTTI_OK, "");
  exchange_one();
}

TEST_F(UncheckedGuests, WhoseReceivesFailAreAFailure) {
  fake_.fail_receives(TUTTI_DEVICE, "bad key of the memory");
  fake_.visit(1, {1, 2, 3});
  b_->receiver();
  EXPECT_THAT(b_->failure_within(10s).to_string(), testing::ContainsRegex("^device error: .*: bad key of the memory"));
}

TEST_F(UncheckedGuests, WithAWrongLengthOfTheFirstMessageAreAFailure) {
  fake_.misreport(-1);
  b_->receiver();
  a_->send({1, 2, 3});
  EXPECT_THAT(b_->failure_within(10s).to_string(),
              testing::ContainsRegex("^internal error: .* first message of rank 0 has .* reports [0-9]+ .NET-14"));
}

TEST_F(CheckedData, Arrives) {
  for (uint32_t i = 0; i < 20; ++i) {
    const std::vector<uint8_t> data(1 + i * 13 % kStride, static_cast<uint8_t>(i));
    a_->send(data);
    ASSERT_EQ(b_->receive(data.size()), data) << i;
  }
}

TEST_F(CheckedData, AChangedByteIsAFailureThatNamesConnectionAndMessage) {
  exchange_one();
  fake_.change_messages([](std::vector<uint8_t>& message) { message[1] ^= 4; });
  a_->send({9, 9, 9});
  const Status failure = b_->failure_within(10s);
  EXPECT_EQ(failure.code(), Code::kInternal);
  EXPECT_THAT(
      failure.text(),
      AllOf(HasSubstr("network 'fake' delivers other messages than were sent on the connection from rank 0 (host "
                      "alpha, fake0) to rank 1 (host beta, fake0): the 3 bytes of message 1 have the checksum "),
            HasSubstr("(check.data, NET-14)")));
  EXPECT_FALSE(b_->arrives(0s)) << "the data is not to be used";
}

TEST_F(NetTest, AChangedByteIsNotNoticedWithoutChecksums) {
  exchange_one();
  fake_.change_messages([](std::vector<uint8_t>& message) { message[1] ^= 4; });
  a_->send({9, 9, 9});
  EXPECT_EQ(b_->receive(3), (std::vector<uint8_t>{9, 13, 9}));
}

}  // namespace
}  // namespace tutti::transport
