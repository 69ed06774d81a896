// SPDX-License-Identifier: Apache-2.0
// check.plugins: plugins that break a rule, each in one entry. The other entries are those of the fake network.
#include "transport/checked_network.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <ctime>
#include <optional>
#include <stdexcept>
#include <thread>
#include <utility>

#include "transport/checked_objects.h"
#include "unit/fake_network.h"

namespace tutti::transport {
namespace {

using testing::HasSubstr;
using namespace std::chrono_literals;

constexpr uint64_t kRoom = 128;

class CheckedNetworkTest : public testing::Test {
 protected:
  ~CheckedNetworkTest() override {
    if (context_ == nullptr) return;
    ops().close_connection(sender_);
    ops().close_connection(receiver_);
    ops().close_listener(listener_);
    ops().destroy(context_);
  }

  /// Connects through the layer over a plugin with this table.
  void connect(const tutti_network_ops& inner) {
    inner_ = inner;
    checked_ = std::make_unique<CheckedNetwork>(CheckedNetwork::Options{
        &inner_, &fake_, 0, [this] { return fake_.take_failure(); }, [this](const Violation& v) { closing_ = v; }});
    ASSERT_EQ(ops().create(checked_.get(), 1, &context_), TUTTI_OK);
    tutti_net_handle handle{};
    ASSERT_EQ(ops().listen(context_, 0, &handle, &listener_), TUTTI_OK);
    void* state = nullptr;
    ASSERT_EQ(ops().connect(context_, 0, &handle, &state, &sender_), TUTTI_OK);
    ASSERT_EQ(ops().accept(listener_, &state, &receiver_), TUTTI_OK);
    void* registration = nullptr;
    ASSERT_EQ(ops().register_memory(receiver_, room_.data(), kRoom, TUTTI_MEMORY_HOST, &registration), TUTTI_OK);
  }
  const tutti_network_ops& ops() const { return checked_->ops(); }

  int32_t send(const std::string& text) {
    void* request = nullptr;
    int32_t done = 0;
    const int32_t code = ops().send(sender_, text.data(), text.size(), 0, nullptr, &request);
    return code == TUTTI_OK ? ops().test(request, &done, nullptr) : code;
  }
  void* post() {
    void* address = room_.data();
    const uint64_t bytes = kRoom;
    const uint32_t tag = 0;
    void* registration = nullptr;
    void* request = nullptr;
    EXPECT_EQ(ops().recv(receiver_, 1, &address, &bytes, &tag, &registration, &request), TUTTI_OK);
    return request;
  }
  /// The rule and the text of the last call's violation; empty: there is none.
  static std::string broken() {
    const auto violation = CheckedNetwork::take_violation();
    return violation ? std::string(violation->status("fake", "here").text()) : "";
  }

  test::FakeNetwork fake_;
  tutti_network_ops inner_{};
  std::unique_ptr<CheckedNetwork> checked_;
  std::optional<Violation> closing_;
  std::array<uint8_t, kRoom + 16> room_{};
  void *context_ = nullptr, *listener_ = nullptr, *sender_ = nullptr, *receiver_ = nullptr;
};

TEST_F(CheckedNetworkTest, passes_messages_on) {
  connect(*test::FakeNetwork::ops());
  for (int i = 0; i < 500; ++i) {
    void* const request = post();
    int32_t done = -1;
    uint64_t bytes = 0;
    EXPECT_EQ(ops().test(request, &done, &bytes), TUTTI_AGAIN);
    EXPECT_EQ(done, 0);
    const std::string text = "message " + std::to_string(i);
    ASSERT_EQ(send(text), TUTTI_OK);
    ASSERT_EQ(ops().test(request, &done, &bytes), TUTTI_OK) << broken();
    ASSERT_EQ(done, 1);
    ASSERT_EQ(std::string(reinterpret_cast<char*>(room_.data()), bytes), text);
    ASSERT_EQ(broken(), "");
  }
}

TEST_F(CheckedNetworkTest, names_the_rule_of_an_exception_and_of_a_failure_without_a_reason) {
  auto throwing = *test::FakeNetwork::ops();
  throwing.send = [](void*, const void*, uint64_t, uint32_t, void*, void**) -> int32_t {
    throw std::runtime_error("no way out");
  };
  connect(throwing);
  EXPECT_EQ(send("x"), TUTTI_INTERNAL);
  EXPECT_EQ(broken(),
            "the plugin of network 'fake' breaks rule NET-2 in entry 'send' here: it throws 'no way out'; the rule "
            "says: No exception leaves an entry (PLG-4)");
  inner_.send = [](void*, const void*, uint64_t, uint32_t, void*, void**) { return int32_t{TUTTI_SYSTEM}; };
  EXPECT_EQ(send("x"), TUTTI_INTERNAL);
  EXPECT_THAT(broken(), HasSubstr("NET-3 in entry 'send' here: it returns 'system error' and gives no reason"));
  inner_.send = [](void*, const void*, uint64_t, uint32_t, void*, void**) { return int32_t{77}; };
  EXPECT_EQ(send("x"), TUTTI_INTERNAL);
  EXPECT_THAT(broken(), HasSubstr("NET-3 in entry 'send' here: it returns 77, which is no TUTTI_* code"));
}

TEST_F(CheckedNetworkTest, passes_failures_with_a_reason_on) {
  connect(*test::FakeNetwork::ops());
  fake_.break_all(TUTTI_REMOTE, "cable gone");
  EXPECT_EQ(send("x"), TUTTI_REMOTE);
  EXPECT_EQ(broken(), "");
  EXPECT_EQ(CheckedNetwork::take_failure_text(), "cable gone");
}

/// A receive that is done in the way of `test`.
struct EarlyDone {
  const char* name;
  int32_t (*test)(void*, int32_t*, uint64_t*);
  const char* says;
};
class WrongTest : public CheckedNetworkTest, public testing::WithParamInterface<EarlyDone> {};

TEST_P(WrongTest, names_the_rule) {
  auto wrong = *test::FakeNetwork::ops();
  wrong.test = GetParam().test;
  connect(wrong);
  int32_t done = -1;
  uint64_t bytes = 0;
  EXPECT_EQ(ops().test(post(), &done, &bytes), TUTTI_INTERNAL);
  EXPECT_EQ(done, 0) << "the message is not to be used";
  EXPECT_THAT(broken(), HasSubstr(GetParam().says));
}

INSTANTIATE_TEST_SUITE_P(
    Faults, WrongTest,
    testing::Values(EarlyDone{"Undecided", [](void*, int32_t*, uint64_t*) { return int32_t{TUTTI_OK}; },
                              "NET-19 in entry 'test' here: it does not set *done"},
                    EarlyDone{"Unclear",
                              [](void*, int32_t* done, uint64_t*) {
                                *done = 2;
                                return int32_t{TUTTI_OK};
                              },
                              "NET-19 in entry 'test' here: *done is 2"},
                    EarlyDone{"NoLength",
                              [](void*, int32_t* done, uint64_t*) {
                                *done = 1;
                                return int32_t{TUTTI_OK};
                              },
                              "NET-14 in entry 'test' here: a receive is done, but its length is not reported"},
                    EarlyDone{"TooLong",
                              [](void*, int32_t* done, uint64_t* bytes) {
                                *done = 1;
                                *bytes = kRoom + 1;
                                return int32_t{TUTTI_OK};
                              },
                              "NET-14 in entry 'test' here: it reports 129 bytes for a buffer of 128 bytes"},
                    EarlyDone{"Empty",
                              [](void*, int32_t* done, uint64_t* bytes) {
                                *done = 1;
                                *bytes = 0;
                                return int32_t{TUTTI_OK};
                              },
                              "NET-19 in entry 'test' here: a receive is done with 0 bytes"},
                    EarlyDone{
                        "NotWritten",
                        [](void*, int32_t* done, uint64_t* bytes) {
                          *done = 1;
                          *bytes = 100;
                          return int32_t{TUTTI_OK};
                        },
                        "NET-19 in entry 'test' here: a receive of 100 bytes is done, but its buffer is not written"}),
    [](const auto& fault) { return fault.param.name; });

TEST_F(CheckedNetworkTest, finds_bytes_behind_a_message) {
  connect(*test::FakeNetwork::ops());
  void* const request = post();
  fake_.change_messages([](std::vector<uint8_t>& message) { message.push_back(0); });
  fake_.misreport(-1);
  ASSERT_EQ(send("twelve bytes"), TUTTI_OK);
  int32_t done = 0;
  uint64_t bytes = 0;
  EXPECT_EQ(ops().test(request, &done, &bytes), TUTTI_INTERNAL);
  EXPECT_THAT(broken(), HasSubstr("NET-14 in entry 'test' here: it reports 12 bytes, but wrote more"));
}

TEST_F(CheckedNetworkTest, finds_a_length_beyond_the_bytes_that_were_written) {
  connect(*test::FakeNetwork::ops());
  void* const request = post();
  fake_.misreport(80);
  ASSERT_EQ(send("twenty bytes arrive."), TUTTI_OK);
  int32_t done = 0;
  uint64_t bytes = 0;
  EXPECT_EQ(ops().test(request, &done, &bytes), TUTTI_INTERNAL);
  EXPECT_THAT(broken(),
              HasSubstr("NET-14 in entry 'test' here: it reports 100 bytes, but the last of them are not written"));
}

TEST_F(CheckedNetworkTest, reports_calls_that_the_core_must_not_make) {
  connect(*test::FakeNetwork::ops());
  void* const request = post();
  ASSERT_EQ(send("x"), TUTTI_OK);
  int32_t done = 0;
  uint64_t bytes = 0;
  ASSERT_EQ(ops().test(request, &done, &bytes), TUTTI_OK);
  EXPECT_EQ(ops().test(request, &done, &bytes), TUTTI_INTERNAL);
  EXPECT_EQ(broken(), "");
  EXPECT_EQ(CheckedNetwork::take_failure_text(),
            "a bug of Tutti's core: it calls 'test' with a request that is complete or has failed");
  void* const closed = sender_;
  tutti_net_handle handle{};
  void *listener = nullptr, *state = nullptr;
  ASSERT_EQ(ops().listen(context_, 0, &handle, &listener), TUTTI_OK);
  ASSERT_EQ(ops().connect(context_, 0, &handle, &state, &sender_), TUTTI_OK);
  ops().close_connection(closed);
  void* posted = nullptr;
  EXPECT_EQ(ops().send(closed, "x", 1, 0, nullptr, &posted), TUTTI_INTERNAL);
  EXPECT_EQ(CheckedNetwork::take_failure_text(), "a bug of Tutti's core: it calls 'send' on a closed connection");
  ops().close_listener(listener);
}

TEST_F(CheckedNetworkTest, reports_an_exception_of_an_entry_that_returns_nothing) {
  auto throwing = *test::FakeNetwork::ops();
  throwing.close_listener = [](void* listener) {
    test::FakeNetwork::ops()->close_listener(listener);
    throw std::runtime_error("the door is stuck");
  };
  connect(throwing);
  ops().close_listener(std::exchange(listener_, nullptr));
  ASSERT_TRUE(closing_.has_value());
  EXPECT_EQ(closing_->rule->number, "NET-2");
  EXPECT_EQ(closing_->what, "it throws 'the door is stuck'");
  inner_.close_listener = test::FakeNetwork::ops()->close_listener;
  tutti_net_handle handle{};
  ASSERT_EQ(ops().listen(context_, 0, &handle, &listener_), TUTTI_OK);
}

TEST_F(CheckedNetworkTest, finds_devices_that_change_or_are_out_of_range) {
  connect(*test::FakeNetwork::ops());
  static uint32_t asked;
  asked = 0;
  inner_.device_count = [](void*, uint32_t* count) {
    *count = ++asked;
    return int32_t{TUTTI_OK};
  };
  uint32_t count = 0;
  EXPECT_EQ(ops().device_count(context_, &count), TUTTI_INTERNAL);
  EXPECT_THAT(broken(), HasSubstr("NET-5 in entry 'device_count' here: it says 2 after it said 1"));
  tutti_net_properties properties{};
  fake_.set_capabilities(0, TUTTI_MEMORY_CUDA);
  EXPECT_EQ(ops().properties(context_, 0, &properties), TUTTI_INTERNAL);
  EXPECT_THAT(broken(), HasSubstr("NET-6 in entry 'properties' here: device 0: memory is 0x2"));
  fake_.set_capabilities(0, TUTTI_MEMORY_HOST | TUTTI_MEMORY_CUDA);
  EXPECT_EQ(ops().properties(context_, 0, &properties), TUTTI_INTERNAL);
  EXPECT_THAT(broken(), HasSubstr("NET-7 in entry 'properties' here: device 0: the device reports TUTTI_MEMORY_CUDA"));
}

TEST_F(CheckedNetworkTest, finds_an_arm_that_never_lets_the_thread_sleep) {
  auto restless = *test::FakeNetwork::ops();
  restless.arm = [](void*) { return int32_t{TUTTI_AGAIN}; };
  connect(restless);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  int32_t code = TUTTI_AGAIN;
  while (code == TUTTI_AGAIN && std::chrono::steady_clock::now() < end) code = ops().arm(context_);
  EXPECT_EQ(code, TUTTI_INTERNAL);
  EXPECT_THAT(broken(), HasSubstr("NET-37 in entry 'arm' here: 'arm' has returned TUTTI_AGAIN "));
}

class ArmingTest : public testing::Test {
 protected:
  ArmingTest() {
    EXPECT_EQ(pipe(ends_.data()), 0);
    arming_.set_fd(ends_[0]);
  }
  ~ArmingTest() override {
    for (const int end : ends_) close(end);
  }
  /// A thread sleeps to the end of its limit, and then finds a message.
  std::string sleep_and_find() {
    EXPECT_EQ(arming_.armed(true), "");
    std::this_thread::sleep_for(95ms);  // the time that the rule is about
    arming_.look();
    return arming_.arrived();
  }
  std::array<int, 2> ends_{};
  checked::Arming arming_;
};

TEST_F(ArmingTest, FindsMessagesThatWereNotAnnounced) {
  EXPECT_EQ(sleep_and_find(), "");
  EXPECT_EQ(sleep_and_find(), "") << "the message may have come at the last moment";
  EXPECT_THAT(sleep_and_find(), HasSubstr("3 messages in a row were there after 'arm' had returned TUTTI_OK"));
}

TEST_F(ArmingTest, AcceptsAnnouncedMessages) {
  ASSERT_EQ(write(ends_[1], "x", 1), 1);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(sleep_and_find(), "");
}

TEST(BudgetTest, FindsAnEntryThatSleepsAgainAndAgain) {
  checked::Budget budget;
  std::string text;
  for (int i = 0; i < 3; ++i) {
    budget.begin();
    std::this_thread::sleep_for(25ms);  // the time that the rule is about
    EXPECT_EQ(budget.end("send"), "");
  }
  budget.begin();
  std::this_thread::sleep_for(25ms);
  EXPECT_THAT(budget.end("send"), HasSubstr("'send' slept for "));
}

int64_t processor_ns() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

TEST(BudgetTest, FindsAnEntryThatComputesForLong) {
  checked::Budget budget;
  std::string text;
  for (int i = 0; i < 3 * 31 && text.empty(); ++i) {
    budget.begin();
    const int64_t end = processor_ns() + 2'000'000;
    while (processor_ns() < end) {
    }
    text = budget.end("test");
  }
  EXPECT_THAT(text, HasSubstr("of its processor in the median of 31 calls"));
}

}  // namespace
}  // namespace tutti::transport
