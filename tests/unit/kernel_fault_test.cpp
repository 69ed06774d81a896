// SPDX-License-Identifier: Apache-2.0
// The texts of failures that kernels report.
#include "backend/cuda/kernel_fault.h"

#include <gmock/gmock.h>

namespace tutti::backend {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr uint32_t kRank = 2;

Status fault(int32_t code, uint32_t peer, std::string_view connections = "", bool shares_context = false) {
  tutti_cuda_control control{};
  control.fault = static_cast<uint32_t>(code);
  control.peer = peer;
  control.channel = 5;
  return kernel_fault(control, kRank, 1500ms, connections, shares_context);
}

TEST(KernelFault, NamesTheRankThatDidNotCome) {
  const Status status = fault(TUTTI_TIMEOUT, 3);
  EXPECT_EQ(status.code(), Code::kTimeout);
  EXPECT_THAT(
      std::string(status.text()),
      AllOf(HasSubstr("for 1.5 s"), HasSubstr("rank 2 waits for rank 3 on channel 5"), Not(HasSubstr("connections"))));
  EXPECT_THAT(std::string(fault(TUTTI_TIMEOUT, 3, "one is closed").text()),
              HasSubstr("did? The connections: one is closed"));
  EXPECT_THAT(std::string(fault(TUTTI_TIMEOUT, 3, "one is closed", true).text()),
              HasSubstr("use each stream once before the first call of any rank. The connections: one is closed"));
}

TEST(KernelFault, SaysThatThreadBlocksWaitForEachOther) {
  const Status status = fault(TUTTI_TIMEOUT, kRank, "none");
  EXPECT_EQ(status.code(), Code::kTimeout);
  EXPECT_THAT(std::string(status.text()),
              AllOf(HasSubstr("at least 1.5 s"), HasSubstr("on channel 5, a thread block of rank 2 waits for work"),
                    Not(HasSubstr("rank 2 waits for rank 2")), Not(HasSubstr("did that rank make"))));
}

TEST(KernelFault, NamesBothRanksOfDifferentPlaces) {
  const Status status = fault(TUTTI_MISMATCH, 3);
  EXPECT_EQ(status.code(), Code::kMismatch);
  EXPECT_THAT(std::string(status.text()), HasSubstr("the outputs of ranks 2 and 3"));
}

}  // namespace
}  // namespace tutti::backend
