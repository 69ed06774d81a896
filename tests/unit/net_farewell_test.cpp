// SPDX-License-Identifier: Apache-2.0
// A rank that leaves while its peer listens: the farewell on each connection, and the news of the hub.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "unit/net_pair.h"

namespace tutti::transport {
namespace {

using testing::HasSubstr;

/// A rank that leaves says so on its connections. The news of the hub may come later, or never.
class Farewell : public NetTest {
 protected:
  explicit Farewell(bool checks_data = false) : NetTest(0, true, checks_data) {}
  static bool leave(Rank& rank) {
    rank.net->leave();
    return rank.net->engine().flush(Clock::now() + 10s, [] { return false; });
  }
  /// Whether rank 1 has heard that rank 0 leaves.
  bool is_heard() const {
    const auto hears = [&] { return b_->net->describe(0).find("the sender has left") != std::string::npos; };
    for (const auto end = Clock::now() + 10s; !hears() && Clock::now() < end;) std::this_thread::yield();
    return hears();
  }
};

TEST_F(Farewell, MakesABreakNoFailure) {
  exchange_one();
  EXPECT_TRUE(leave(*a_) && is_heard());
  fake_.break_all(TUTTI_REMOTE, "closed");
  EXPECT_TRUE(b_->failure_within(3 * kGrace).ok()) << b_->failure_within(0s).text();
}

TEST_F(Farewell, OfAnAwaitedRankIsAFailureOnlyWithoutTheHub) {
  exchange_one();
  b_->awaited = true;
  EXPECT_TRUE(leave(*a_) && is_heard());
  EXPECT_TRUE(b_->failure_within(3 * kGrace).ok()) << "the hub can tell";
  b_->left = b_->unheard = true;
  EXPECT_TRUE(b_->failure_within(3 * kGrace).ok()) << "the hub has told which calls the rank has made";
  const auto begin = Clock::now();
  b_->left = false;
  const Status failure = b_->failure_within(10s);
  EXPECT_EQ(failure.code(), Code::kRemote);
  EXPECT_GE(Clock::now() - begin, kGrace) << "the hub gets no time to tell more";
  EXPECT_THAT(failure.text(), HasSubstr("network 'fake' waits for data from rank 0 (host alpha, fake0) to rank 1 (host "
                                        "beta, fake0), but the sender has left"));
}

TEST_F(Farewell, IsNoFailureWhileADifferentConnectionStands) {
  exchange_one();
  b_->awaited = b_->unheard = true;
  b_->incoming->add(0);  // of a different network
  EXPECT_TRUE(leave(*a_) && is_heard());
  EXPECT_TRUE(b_->failure_within(3 * kGrace).ok()) << "the data may be on their way over the other connection";
  b_->incoming->remove(0);
  EXPECT_EQ(b_->failure_within(10s).code(), Code::kRemote);
}

TEST_F(Farewell, FollowsAllData) {
  exchange_one();
  for (uint8_t i = 0; i < kSlots; ++i) a_->send({i});
  a_->net->leave();
  for (uint8_t i = 0; i < kSlots; ++i) EXPECT_EQ(b_->receive(1), std::vector<uint8_t>{i});
  EXPECT_TRUE(leave(*a_) && is_heard());
  fake_.break_all(TUTTI_REMOTE, "closed");
  EXPECT_TRUE(b_->failure_within(3 * kGrace).ok()) << b_->failure_within(0s).text();
  EXPECT_FALSE(b_->arrives(0s)) << "a farewell is no data";
}

/// The receiver of the farewell still sends, and learns of the end when it does.
TEST_F(Farewell, EndsOneDirection) {
  exchange_one();
  b_->send({7});
  EXPECT_EQ(a_->receive(1), std::vector<uint8_t>{7});
  EXPECT_TRUE(leave(*a_));
  b_->send({8});
  EXPECT_EQ(a_->receive(1), std::vector<uint8_t>{8});
  fake_.break_all(TUTTI_REMOTE, "closed");
  b_->send({9});
  EXPECT_THAT(b_->failure_within(10s).text(), HasSubstr("lost the connection from rank 1 (host beta, fake0)"));
}

TEST_F(Farewell, KeepsNobodyIfTheConnectionIsBroken) {
  exchange_one();
  fake_.break_all(TUTTI_REMOTE, "closed");
  EXPECT_TRUE(leave(*a_));
}

TEST_F(Farewell, KeepsNobodyWithoutAConnection) {
  EXPECT_TRUE(leave(*a_));
}

class CheckedFarewell : public Farewell {
 protected:
  CheckedFarewell() : Farewell(true) {}
};

TEST_F(CheckedFarewell, HasNoChecksum) {
  exchange_one();
  EXPECT_TRUE(leave(*a_) && is_heard());
  fake_.break_all(TUTTI_REMOTE, "closed");
  EXPECT_TRUE(b_->failure_within(3 * kGrace).ok()) << b_->failure_within(0s).text();
}

}  // namespace
}  // namespace tutti::transport
