// SPDX-License-Identifier: Apache-2.0
// The ranks and processors of a machine, and the waits that follow from them.
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "communicator/setup/waits.h"
#include "unit/job_file.h"

namespace tutti::communicator {
namespace {

/// A rank of machine `boot_id` that may use the processors of a mask.
bootstrap::HostIdentity rank_on(const char* boot_id, const char* processors, const char* pretended = "") {
  return {
      .boot_id = boot_id, .pid_namespace = 1, .pretended_name = pretended, .host_name = "h", .processors = processors};
}

Crowd crowd(const std::vector<bootstrap::HostIdentity>& ranks, uint32_t own) {
  std::vector<std::byte> bytes;
  std::vector<size_t> sizes;
  for (const bootstrap::HostIdentity& rank : ranks) {
    const std::vector<std::byte> one = bootstrap::encode(rank);
    bytes.insert(bytes.end(), one.begin(), one.end());
    sizes.push_back(one.size());
  }
  std::vector<bootstrap::Gathered::Part> parts;
  size_t begin = 0;
  for (const size_t size : sizes) {
    parts.emplace_back(bytes.data() + begin, size);
    begin += size;
  }
  const auto hosts = bootstrap::Hosts::decode({std::move(bytes), std::move(parts)});
  return crowd_of(hosts.value(), own);
}

TEST(Crowd, CountsTheRanksOfTheMachine) {
  const Crowd here =
      crowd({rank_on("a", "3"), rank_on("b", "f"), rank_on("a", "3", "pretended"), rank_on("a", "3")}, 3);
  EXPECT_EQ(here.ranks, 3u);
  EXPECT_EQ(here.own, 2u);
  EXPECT_EQ(here.processors, 2u);
}

TEST(Crowd, RanksThatAreBoundApartHaveTheProcessorsOfAll) {
  EXPECT_EQ(crowd({rank_on("a", "1"), rank_on("a", "2"), rank_on("a", "00000001,00000000")}, 0).processors, 3u);
}

TEST(Crowd, RanksThatAreBoundTogetherShareTheirProcessors) {
  EXPECT_EQ(crowd({rank_on("a", "6"), rank_on("a", "6"), rank_on("a", "4"), rank_on("b", "ff")}, 0).processors, 2u);
}

TEST(Crowd, ARankThatDoesNotKnowItsProcessorsMayUseAll) {
  EXPECT_EQ(crowd({rank_on("a", "1"), rank_on("a", "")}, 0).processors, std::thread::hardware_concurrency());
  EXPECT_EQ(crowd({rank_on("a", "no mask")}, 0).processors, std::thread::hardware_concurrency());
}

TEST(Crowd, RanksThatShareProcessorsMakeRoomAtOnce) {
  const config::Config config = test::load_job("");
  const auto apart = waits_of(config, {.ranks = 2, .own = 1, .processors = 2});
  const auto together = waits_of(config, {.ranks = 2, .own = 1, .processors = 1});
  EXPECT_GT(apart.spins, together.spins);
  EXPECT_GT(apart.drives.count(), 0);
  EXPECT_EQ(together.drives.count(), 0);
  EXPECT_FALSE(apart.seat.has_value());
  EXPECT_EQ(together.seat, 0u);
}

TEST(Crowd, NeighboursShareAProcessorUnlessTheyUseANetwork) {
  const config::Config config = test::load_job("");
  EXPECT_EQ(waits_of(config, {.ranks = 4, .own = 1, .processors = 2}).seat, 0u);
  EXPECT_EQ(waits_of(config, {.ranks = 4, .own = 1, .processors = 2, .uses_network = true}).seat, 1u);
}

}  // namespace
}  // namespace tutti::communicator
