// SPDX-License-Identifier: Apache-2.0
// Calls that go through the rendezvous after an abort return the reason as the application gave it. If one rank cannot
// take part, the others return its reason.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tutti/communicator.h"

namespace tutti {
namespace {

TEST(Abort, CallsOfTheRendezvousReturnTheReason) {
  const auto id = UniqueId::create("=lo");
  ASSERT_TRUE(id.ok()) << id.status().to_string();
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([&, rank] {
      Options options;
      options.settings = {{"plugins.path", TUTTI_BINARY_DIR "/lib/tutti/plugins"}};
      auto comm = Communicator::create(*id, rank, 2, options);
      ASSERT_TRUE(comm.ok()) << comm.status().to_string();
      if (rank == 1) comm->abort("a | test");
      const Status split = comm->split(0, 0).status();  // rank 0 waits in it for rank 1
      EXPECT_EQ(split.to_string(), "aborted: a | test") << rank;
      EXPECT_EQ(comm->exchange({}).status().to_string(), "aborted: a | test") << rank;
    });
  }
  for (std::thread& rank : ranks) rank.join();
}

/// Only rank 0 insists on shared memory, which does not reach from host to host.
TEST(Abort, ARankThatCannotTakePartTellsTheReason) {
  const auto id = UniqueId::create("=lo");
  ASSERT_TRUE(id.ok()) << id.status().to_string();
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 3; ++rank) {
    ranks.emplace_back([&, rank] {
      Options options;
      options.settings = {{"plugins.path", TUTTI_BINARY_DIR "/lib/tutti/plugins"},
                          {"host", rank == 0 ? "a" : "b"},
                          {"transport", rank == 0 ? "shm" : "auto"}};
      const Status status = Communicator::create(*id, rank, 3, options).status();
      EXPECT_EQ(status.code(), Code::kConfig) << rank;
      EXPECT_THAT(status.to_string(), testing::HasSubstr("transport is set to 'shm'")) << rank;
      if (rank != 0) {
        EXPECT_THAT(status.to_string(), testing::HasSubstr("rank 0: transport")) << rank;
      }
    });
  }
  for (std::thread& rank : ranks) rank.join();
}

}  // namespace
}  // namespace tutti
