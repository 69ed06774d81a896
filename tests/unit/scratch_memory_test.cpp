// SPDX-License-Identifier: Apache-2.0
// A communicator's scratch buffer grows, and earlier launches keep theirs.
#include "backend/cuda/scratch_memory.h"

#include <gmock/gmock.h>

#include <deque>
#include <vector>

namespace tutti::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// Memory of up to `most` bytes in all.
class ScratchMemoryTest : public testing::Test {
 protected:
  Result<uint8_t*> allocate(uint64_t bytes) {
    asked_.push_back(bytes);
    uint64_t sum = bytes;
    for (const auto& buffer : buffers_) sum += buffer.size();
    if (sum > most_) return Status(Code::kDevice, "cudaMalloc: out of memory");
    return buffers_.emplace_back(bytes).data();
  }

  uint64_t most_ = 10'000;
  std::vector<uint64_t> asked_;
  std::deque<std::vector<uint8_t>> buffers_;
  backend::ScratchMemory memory_{[this](uint64_t bytes) { return allocate(bytes); }};
};

TEST_F(ScratchMemoryTest, IsAllocatedOnceForAllCallsThatFit) {
  uint8_t* const first = *memory_.reserve(100);
  EXPECT_EQ(first, buffers_[0].data());
  EXPECT_EQ(*memory_.reserve(100), first);
  EXPECT_EQ(*memory_.reserve(1), first);
  EXPECT_THAT(asked_, ElementsAre(100));
}

TEST_F(ScratchMemoryTest, GetsTwiceAsLargeAndKeepsTheBufferBefore) {
  std::vector<uint8_t*> given;
  for (const uint64_t bytes : {100, 101, 200, 1000}) given.push_back(*memory_.reserve(bytes));
  EXPECT_THAT(asked_, ElementsAre(100, 200, 1000));
  ASSERT_EQ(buffers_.size(), 3u);
  EXPECT_THAT(given, ElementsAre(buffers_[0].data(), buffers_[1].data(), buffers_[1].data(), buffers_[2].data()));
}

TEST_F(ScratchMemoryTest, TakesWhatItNeedsWhereMemoryIsShort) {
  static_cast<void>(memory_.reserve(4000));
  uint8_t* const second = *memory_.reserve(5000);
  ASSERT_EQ(buffers_.size(), 2u);
  EXPECT_EQ(second, buffers_[1].data());
  EXPECT_THAT(asked_, ElementsAre(4000, 8000, 5000));
}

TEST_F(ScratchMemoryTest, NamesTheSizeThatIsNotThere) {
  uint8_t* const first = *memory_.reserve(4000);
  const Status failed = memory_.reserve(7000).status();
  EXPECT_EQ(failed.code(), Code::kDevice);
  EXPECT_THAT(failed.to_string(),
              testing::AllOf(HasSubstr("a scratch buffer of 7000 bytes"), HasSubstr("out of memory")));
  EXPECT_EQ(*memory_.reserve(4000), first) << "calls before still run";
}

}  // namespace
}  // namespace tutti::test
