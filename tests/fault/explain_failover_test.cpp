// SPDX-License-Identifier: Apache-2.0
// Communicator::explain() and counters() tell the fail-overs of a rank's connections. A preloaded library breaks
// connections at random times (break_sockets.c).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "tutti/communicator.h"

namespace tutti {
namespace {

using testing::HasSubstr;

constexpr size_t kCount = 100'000;
constexpr std::chrono::seconds kLimit{60};

struct Told {
  std::string before, after;
  Counters counters;
};

/// All-reduces until a connection of any rank has failed over. The last element of each call is the number of
/// fail-overs that the ranks had counted before it.
Told reduce_until_a_fail_over(const UniqueId& id, int rank) {
  Options options;
  options.settings = {{"plugins.path", TUTTI_BINARY_DIR "/lib/tutti/plugins"},
                      {"host", rank == 0 ? "a" : "b"},
                      {"network", "socket"},
                      {"settings.net.socket.interface", "[=lo]"},
                      {"settings.net.socket.congestion", "reno"},
                      {"net.failover", "true"}};
  auto comm = Communicator::create(id, rank, 2, options);
  EXPECT_TRUE(comm.ok()) << comm.status().to_string();
  if (!comm.ok()) return {};
  const auto explain = [&] {
    return comm->explain(Collective::kAllReduce, kCount, DataType::kInt64, ReduceOp::kSum).value();
  };
  Told told;
  told.before = explain();
  const auto end = std::chrono::steady_clock::now() + kLimit;
  std::vector<int64_t> input(kCount), output(kCount);
  for (int64_t call = 0; output.back() == 0 && std::chrono::steady_clock::now() < end; ++call) {
    for (size_t i = 0; i + 1 < kCount; ++i) input[i] = call + static_cast<int64_t>(i) * (rank + 1);
    input.back() = static_cast<int64_t>(comm->counters().failovers);
    const Status done = comm->all_reduce(input.data(), output.data(), kCount, DataType::kInt64, ReduceOp::kSum);
    EXPECT_TRUE(done.ok()) << done.to_string();
    if (!done.ok()) break;
    for (size_t i = 0; i + 1 < kCount; ++i) {
      const int64_t expected = 2 * call + static_cast<int64_t>(i) * 3;
      EXPECT_EQ(output[i], expected) << "element " << i << " of call " << call;
      if (output[i] != expected) return told;
    }
  }
  told.counters = comm->counters();
  told.after = explain();
  return told;
}

TEST(FailOver, IsToldByExplainAndCounters) {
  const auto id = UniqueId::create("=lo");
  ASSERT_TRUE(id.ok()) << id.status().to_string();
  std::array<Told, 2> told;
  std::array<std::thread, 2> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks[static_cast<size_t>(rank)] =
        std::thread([&, rank] { told[static_cast<size_t>(rank)] = reduce_until_a_fail_over(*id, rank); });
  }
  for (std::thread& rank : ranks) rank.join();
  EXPECT_GE(told[0].counters.failovers + told[1].counters.failovers, 1u);
  for (const Told& each : told) {
    EXPECT_THAT(each.before, HasSubstr("chosen"));
    EXPECT_THAT(each.before, testing::Not(HasSubstr("fail-over")));
    if (each.counters.failovers > 0) {
      EXPECT_THAT(each.after, HasSubstr("fail-over: network 'socket', from rank"));
      EXPECT_THAT(each.after, HasSubstr("goes on by network 'socket', from rank"));
    }
  }
}

}  // namespace
}  // namespace tutti
