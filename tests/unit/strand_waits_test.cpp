// SPDX-License-Identifier: Apache-2.0
// The waits of strands for each other: time limits, and what they report.
//
// The words of CUDA come before the kernels.
#include "emulator/cuda.h"
// Then:
#include <gtest/gtest.h>

#include "tutti/device/cuda/cta.h"
#include "tutti/device/cuda/strand.h"

namespace tutti::test {
namespace {

/// Runs `action` as each thread of a CTA of one warp.
template <class Action>
void on_gpu(Action&& action) {
  emulator::run_cta({}, [&] { action(); });
}

/// The report of a strand of rank 5 whose wait has reached its limit.
tutti_cuda_control after_time_out(tutti_cuda_control control) {
  tutti_cuda_launch launch{};
  launch.rank = 5;
  launch.timeout_ns = 1;
  launch.control = &control;
  on_gpu([&] {
    if (threadIdx.x != 0) return;
    EXPECT_EQ(device::look_beside(launch, 1), device::kStop);
  });
  return control;
}

TEST(StrandWaits, NameTheOwnRankIfNoWaitForAPeerIsReported) {
  tutti_cuda_control control{};
  control.peer = TUTTI_CUDA_NO_PEER;
  control = after_time_out(control);
  EXPECT_EQ(control.fault, static_cast<uint32_t>(TUTTI_TIMEOUT));
  EXPECT_EQ(control.peer, 5u);
}

/// A wait for a peer stores the peer before the fault.
TEST(StrandWaits, KeepThePeerThatIsReportedAtTheSameTime) {
  tutti_cuda_control control{};
  control.peer = 3;
  control.channel = 7;
  control = after_time_out(control);
  EXPECT_EQ(control.fault, 0u) << "the wait for the peer stores it";
  EXPECT_EQ(control.peer, 3u);
  EXPECT_EQ(control.channel, 7u);
}

TEST(StrandWaits, AreOverWhenTheCountIsLargeEnough) {
  uint32_t count = 0u - 2;  // counts wrap around
  on_gpu([&] {
    if (threadIdx.x != 0) return;
    device::StrandWait wait(&count, 1);
    EXPECT_FALSE(wait.is_over());
    EXPECT_TRUE(wait.has_moved());
    EXPECT_FALSE(wait.is_over());
    EXPECT_FALSE(wait.has_moved());
    count = 0;
    EXPECT_FALSE(wait.is_over());
    EXPECT_TRUE(wait.has_moved());
    count = 1;
    EXPECT_TRUE(wait.is_over());
    EXPECT_TRUE(device::StrandWait().is_over());
  });
}

}  // namespace
}  // namespace tutti::test
