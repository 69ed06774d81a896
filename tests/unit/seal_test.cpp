// SPDX-License-Identifier: Apache-2.0
// Sealed contributions: they open where they belong, and in no other place, form or group.
#include "bootstrap/seal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "bootstrap/sealed_calls.h"
#include "unit/required.h"

namespace tutti::bootstrap {
namespace {

using test::required;
using testing::HasSubstr;
using Contributions = std::vector<Bytes>;

std::mt19937& random_source() {
  static std::mt19937 source(std::random_device{}());
  return source;
}

Bytes random_bytes(size_t size) {
  Bytes bytes(size);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random_source()());
  return bytes;
}

Secret random_secret() {
  Secret secret;
  for (std::byte& byte : secret) byte = static_cast<std::byte>(random_source()());
  return secret;
}

TEST(Seal, OpensWhatItClosed) {
  const auto seal = required(Seal::create(random_secret()));
  for (const size_t size : {0, 1, 15, 16, 17, 1000, 1 << 20}) {
    const Bytes plain = random_bytes(size);
    const Bytes sealed = required(seal->close(plain, {7, 3}));
    EXPECT_EQ(sealed.size(), size + Seal::kMoreBytes);
    EXPECT_EQ(required(seal->open(sealed, {7, 3})), plain);
  }
}

TEST(Seal, HidesTheBytesAndIsNeverTheSame) {
  const auto seal = required(Seal::create(random_secret()));
  const Bytes plain = random_bytes(64);
  const Bytes first = required(seal->close(plain, {1, 0}));
  const Bytes second = required(seal->close(plain, {1, 0}));
  EXPECT_NE(first, second);
  for (const Bytes& sealed : {first, second}) {
    EXPECT_EQ(std::search(sealed.begin(), sealed.end(), plain.begin(), plain.begin() + 8), sealed.end());
  }
}

TEST(Seal, NoticesAChangeOfAnyBitAndAnyLength) {
  const auto seal = required(Seal::create(random_secret()));
  const Bytes sealed = required(seal->close(random_bytes(40), {2, 1}));
  for (size_t bit = 0; bit < sealed.size() * 8; ++bit) {
    Bytes changed = sealed;
    changed[bit / 8] ^= std::byte{1} << bit % 8;
    const auto opened = seal->open(changed, {2, 1});
    ASSERT_EQ(opened.status().code(), Code::kMismatch) << "bit " << bit;
  }
  for (size_t size = 0; size < sealed.size(); ++size) {
    const auto opened = seal->open(Bytes(sealed.begin(), sealed.begin() + static_cast<ptrdiff_t>(size)), {2, 1});
    ASSERT_EQ(opened.status().code(), Code::kMismatch) << size << " bytes";
  }
  Bytes longer = sealed;
  longer.push_back(std::byte{0});
  EXPECT_EQ(seal->open(longer, {2, 1}).status().code(), Code::kMismatch);
}

TEST(Seal, OpensWithItsAssociatedDataAlone) {
  const Secret secret = random_secret();
  const auto seal = required(Seal::create(secret));
  const Bytes sealed = required(seal->close(random_bytes(9), {5, 2}));
  for (const Seal::AssociatedData associated : {Seal::AssociatedData{4, 2}, {6, 2}, {5, 1}, {5, 3}, {2, 5}}) {
    const auto opened = seal->open(sealed, associated);
    EXPECT_EQ(opened.status().code(), Code::kMismatch);
    EXPECT_THAT(std::string(opened.status().text()), HasSubstr("has been changed on its way"));
  }
  EXPECT_TRUE(required(Seal::create(secret))->open(sealed, {5, 2}).ok());
  EXPECT_EQ(required(Seal::create(random_secret()))->open(sealed, {5, 2}).status().code(), Code::kMismatch);
}

Contributions parts_of(const Gathered& gathered) {
  Contributions parts;
  for (const Gathered::Part part : gathered) parts.emplace_back(part.begin(), part.end());
  return parts;
}

/// A hub's answer to one rank, from the contributions that the test puts there.
struct Hub {
  Contributions contributions;
  Header last = {};
  Bytes own;

  SealedCalls::Exchange exchange() {
    return [this](const Header& call, Bytes contribution, base::Time) -> Result<Bytes> {
      last = call;
      own = std::move(contribution);
      if (call.code == static_cast<uint16_t>(Operation::kAllGather)) return pack(contributions);
      return contributions.at(static_cast<size_t>(call.rank));
    };
  }
};

class SealedCallsTest : public testing::Test {
 protected:
  /// The sealed contributions of ranks 0 to 2 to one call.
  Contributions sealed_for(uint32_t call) const {
    Contributions all;
    for (int32_t rank = 0; rank < 3; ++rank) all.push_back(required(seal_->close(plain_[size_t(rank)], {call, rank})));
    return all;
  }

  const Secret secret_ = random_secret();
  const std::unique_ptr<const Seal> seal_ = required(Seal::create(secret_));
  const Contributions plain_ = {random_bytes(5), random_bytes(0), random_bytes(300)};
  const base::Time deadline_ = base::Clock::now() + std::chrono::seconds(10);
  Hub hub_;
  const std::unique_ptr<SealedCalls> calls_ = required(SealedCalls::create(secret_, {1, 3}, hub_.exchange()));
};

TEST_F(SealedCallsTest, GatherGivesTheBytesOfEveryRank) {
  for (uint32_t call = 1; call <= 3; ++call) {
    hub_.contributions = sealed_for(call);
    EXPECT_EQ(parts_of(required(calls_->all_gather(plain_[1], deadline_))), plain_);
    EXPECT_EQ(required(seal_->open(hub_.own, {call, 1})), plain_[1])
        << "the hub gets it sealed, with its call and rank";
  }
}

/// Ranks of one process share the result of equal bytes alone.
TEST_F(SealedCallsTest, RanksOfAProcessShareAResult) {
  const auto other = required(SealedCalls::create(secret_, {0, 3}, hub_.exchange()));
  hub_.contributions = sealed_for(1);
  const Gathered one = required(calls_->all_gather(plain_[1], deadline_));
  const Gathered two = required(other->all_gather(plain_[0], deadline_));
  EXPECT_EQ(parts_of(two), plain_);
  EXPECT_EQ(one[2].data(), two[2].data());
  {
    const auto late = required(SealedCalls::create(secret_, {2, 3}, hub_.exchange()));
    const Gathered three = required(late->all_gather(plain_[2], deadline_));
    EXPECT_EQ(parts_of(three), plain_);
    EXPECT_NE(three[2].data(), one[2].data()) << "a result that all ranks of the process have is forgotten";
  }
  hub_.contributions = sealed_for(2);
  const Gathered before = required(calls_->all_gather(plain_[1], deadline_));
  hub_.contributions = sealed_for(2);  // with other nonces
  const Gathered after = required(other->all_gather(plain_[0], deadline_));
  EXPECT_EQ(parts_of(before), plain_);
  EXPECT_EQ(parts_of(after), plain_);
  EXPECT_NE(before[2].data(), after[2].data());
  EXPECT_EQ(parts_of(one), plain_) << "a later result does not replace an earlier one";
  hub_.contributions = sealed_for(3);
  EXPECT_TRUE(calls_->all_gather(plain_[1], deadline_).ok());
  hub_.contributions[2].back() ^= std::byte{1};
  EXPECT_EQ(other->all_gather(plain_[0], deadline_).status().code(), Code::kMismatch);
}

TEST_F(SealedCallsTest, SwappedRepeatedAndMissingContributionsAreRefused) {
  const Contributions first = sealed_for(1);
  hub_.contributions = {first[1], first[0], first[2]};  // call 1
  EXPECT_EQ(calls_->all_gather(plain_[1], deadline_).status().code(), Code::kMismatch);
  hub_.contributions = first;  // call 2 gets the contributions of call 1
  EXPECT_EQ(calls_->all_gather(plain_[1], deadline_).status().code(), Code::kMismatch);
  hub_.contributions = sealed_for(3);
  hub_.contributions.pop_back();
  const auto missing = calls_->all_gather(plain_[1], deadline_);
  EXPECT_EQ(missing.status().code(), Code::kMismatch);
  EXPECT_THAT(std::string(missing.status().text()), HasSubstr("contributions of 2 ranks, not of 3"));
}

TEST_F(SealedCallsTest, OnlyTheRootGivesBytesToABroadcast) {
  hub_.contributions = sealed_for(1);
  EXPECT_EQ(required(calls_->broadcast(2, random_bytes(4), deadline_)), plain_[2]);
  EXPECT_TRUE(hub_.own.empty());
  EXPECT_EQ(hub_.last.rank, 2);
  hub_.contributions = sealed_for(2);
  EXPECT_EQ(required(calls_->broadcast(1, plain_[1], deadline_)), plain_[1]);
  EXPECT_EQ(required(seal_->open(hub_.own, {2, 1})), plain_[1]);
  hub_.contributions = {plain_[0], plain_[1], plain_[2]};  // not sealed
  EXPECT_EQ(calls_->broadcast(2, {}, deadline_).status().code(), Code::kMismatch);
}

TEST_F(SealedCallsTest, RootsAndSizesOutOfRangeAreRefused) {
  for (const int root : {-1, 3}) {
    const auto result = calls_->broadcast(root, {}, deadline_);
    EXPECT_EQ(result.status().code(), Code::kInvalidArgument);
    EXPECT_THAT(std::string(result.status().text()), HasSubstr("ranks 0..2"));
  }
  const Bytes large(kMaxPayloadBytes);
  EXPECT_EQ(calls_->all_gather(large, deadline_).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(calls_->broadcast(1, large, deadline_).status().code(), Code::kInvalidArgument);
  EXPECT_TRUE(hub_.own.empty()) << "the hub was not asked";
}

}  // namespace
}  // namespace tutti::bootstrap
