// SPDX-License-Identifier: Apache-2.0
// Room in the table of the descriptors of this process.
#include "base/descriptors.h"

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/resource.h>

#include <vector>

#include "base/fd.h"
#include "unit/descriptor_room.h"

namespace tutti::test {
namespace {

/// Each case in a process of its own: a table never gets smaller.
void expect_room(size_t open, rlim_t limit, size_t room) {
  const auto look = [&] {
    rlimit now{};
    getrlimit(RLIMIT_NOFILE, &now);
    now.rlim_cur = limit;
    if (setrlimit(RLIMIT_NOFILE, &now) != 0) std::exit(2);
    std::vector<base::Fd> taken(open);
    for (base::Fd& fd : taken) fd = base::Fd(eventfd(0, EFD_CLOEXEC));
    if (descriptor_room() >= room) std::exit(3);  // the test would show nothing
    base::widen_descriptor_table();
    std::exit(descriptor_room() >= room ? 0 : 1);
  };
  EXPECT_EXIT(look(), testing::ExitedWithCode(0), "");
}

TEST(DescriptorsDeathTest, TheTableHasRoomForThousands) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const size_t room = within_limit(base::kLeastDescriptorRoom);
  expect_room(0, room, room);
}

TEST(DescriptorsDeathTest, TheTableHasRoomForTwiceAsManyAsAreOpen) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const size_t most = within_limit(3 * base::kLeastDescriptorRoom);
  if (most < 3 * base::kLeastDescriptorRoom) GTEST_SKIP() << "the limit of open files is " << most;
  expect_room(base::kLeastDescriptorRoom - 100, most, 2 * base::kLeastDescriptorRoom - 200);
}

TEST(DescriptorsDeathTest, ALowerLimitIsRoomEnough) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  expect_room(0, 600, 600);
}

}  // namespace
}  // namespace tutti::test
