// SPDX-License-Identifier: Apache-2.0
// The waits of kernels, from samples of the words that kernels store.
#include "backend/cuda/kernel_waits.h"

#include <gtest/gtest.h>

#include "tutti/plugin/cuda.h"

namespace tutti::backend {
namespace {

using namespace std::chrono_literals;
using Clock = KernelWaits::Clock;

constexpr Clock::time_point kStart{1h};
constexpr uint64_t kSecond = 1'000'000'000;

/// A wait that began at `begin` by the GPU's clock, whose lowest bits are lost.
KernelWaits::Sample sample(uint64_t begin, uint32_t rank, uint64_t seen) {
  return {(begin & ~uint64_t{TUTTI_CUDA_WAIT_RANK}) | rank, seen};
}

TEST(KernelWaits, AreNoneAtFirst) {
  KernelWaits waits;
  EXPECT_FALSE(waits.observe({}, kStart));
}

TEST(KernelWaits, KeepTheirBegin) {
  KernelWaits waits;
  const auto first = waits.observe(sample(50 * kSecond, 3, 51 * kSecond), kStart);
  ASSERT_TRUE(first);
  EXPECT_EQ(first->peer, 3u);
  EXPECT_NEAR(std::chrono::duration<double>(kStart - first->since).count(), 1, 0.001);
  const auto next = waits.observe(sample(50 * kSecond, 3, 52 * kSecond), kStart + 1100ms);  // the clocks may drift
  ASSERT_TRUE(next);
  EXPECT_EQ(next->since, first->since);
}

TEST(KernelWaits, EndWhenNothingIsStored) {
  KernelWaits waits;
  ASSERT_TRUE(waits.observe(sample(50 * kSecond, 3, 51 * kSecond), kStart));
  EXPECT_FALSE(waits.observe(sample(50 * kSecond, 3, 51 * kSecond), kStart + 250ms));
  EXPECT_FALSE(waits.observe(sample(50 * kSecond, 3, 51 * kSecond), kStart + 500ms));
  const auto later = waits.observe(sample(60 * kSecond, 2, 61 * kSecond), kStart + 10s);
  ASSERT_TRUE(later);
  EXPECT_EQ(later->peer, 2u);
  EXPECT_NEAR(std::chrono::duration<double>(kStart + 10s - later->since).count(), 1, 0.001);
}

TEST(KernelWaits, OfSeveralThreadsCountOnce) {
  KernelWaits waits;
  const auto first = waits.observe(sample(50 * kSecond, 3, 51 * kSecond), kStart);
  ASSERT_TRUE(first);
  const auto beside = waits.observe(sample(50 * kSecond + 1'000'000, 2, 51 * kSecond + 1), kStart + 250ms);
  ASSERT_TRUE(beside);
  EXPECT_EQ(beside->since, first->since) << "threads of a kernel begin to wait at nearly the same time";
  EXPECT_EQ(beside->peer, 3u);
}

TEST(KernelWaits, ChangeOnceTheEarliestIsOver) {
  KernelWaits waits;
  const auto first = waits.observe(sample(50 * kSecond, 3, 51 * kSecond), kStart);
  ASSERT_TRUE(first);
  const auto hidden = waits.observe(sample(51 * kSecond, 2, 52 * kSecond), kStart + 1s);
  ASSERT_TRUE(hidden);
  EXPECT_EQ(hidden->peer, 3u) << "a later wait of another thread hides the first for a moment";
  const auto next = waits.observe(sample(51 * kSecond, 2, 54 * kSecond), kStart + 1s + KernelWaits::kForget);
  ASSERT_TRUE(next);
  EXPECT_EQ(next->peer, 2u);
  EXPECT_NEAR(std::chrono::duration<double>(kStart + 3s - next->since).count(), 3, 0.001);
}

TEST(KernelWaits, OfAnEarlierBeginReplaceLaterOnes) {
  KernelWaits waits;
  ASSERT_TRUE(waits.observe(sample(50 * kSecond, 3, 51 * kSecond), kStart));
  const auto earlier = waits.observe(sample(40 * kSecond, 1, 51 * kSecond + 1), kStart + 250ms);
  ASSERT_TRUE(earlier);
  EXPECT_EQ(earlier->peer, 1u);
}

}  // namespace
}  // namespace tutti::backend
