// SPDX-License-Identifier: Apache-2.0
// The largest number of channels of a job.
#include "communicator/setup/limits.h"

#include <gtest/gtest.h>

#include "communicator/setup/contact.h"
#include "unit/job_file.h"

namespace tutti::test {
namespace {

using communicator::max_channels;

TEST(Limits, ChannelsOfGpusFollowThePortsOfTheNetwork) {
  const config::Config config = load_job("");
  const auto over_network = [&](size_t ports) { return max_channels(config, TUTTI_DEVICE_CUDA, true, ports); };
  for (const size_t few : {0, 1, 2}) EXPECT_EQ(over_network(few), 4u) << few;
  EXPECT_EQ(over_network(3), 6u);
  EXPECT_EQ(over_network(8), 16u);
  EXPECT_EQ(over_network(1000), 64u);
  EXPECT_EQ(max_channels(config, TUTTI_DEVICE_CUDA, false, 8), 64u);
  EXPECT_EQ(max_channels(config, TUTTI_DEVICE_HOST, true, 8), 1u);
  EXPECT_EQ(max_channels(load_job("channels: 5"), TUTTI_DEVICE_CUDA, true, 8), 5u);
}

TEST(Limits, TheMachineWithTheMostPortsCounts) {
  const auto rank = [](std::initializer_list<uint64_t> ports) {
    std::vector<communicator::NetworkContact> networks;
    for (const uint64_t count : ports) networks.push_back({0, 0, count, {}});
    return networks;
  };
  EXPECT_EQ(communicator::most_ports({}), 0u);
  EXPECT_EQ(communicator::most_ports({rank({}), rank({})}), 0u);
  EXPECT_EQ(communicator::most_ports({rank({2, 8}), rank({4, 1}), rank({3, 0})}), 4u) << "of the first network";
}

TEST(Limits, RanksShareThePortsOfTheirHost) {
  using Contacts = std::vector<communicator::NetworkContact>;
  const std::vector<uint32_t> nodes = {0, 0, 0, 0, 1};
  const auto share = [&](uint64_t ports, uint32_t channels, double gbs, double gbs_of_last) {
    std::vector<Contacts> ends(4, Contacts{{}, {gbs, 0, ports, {}}});
    ends.push_back({{}, {gbs_of_last, 0, 1, {}}});
    return communicator::share_gbs(ends, 1, nodes, channels, 2);
  };
  EXPECT_DOUBLE_EQ(share(1, 4, 50, 50), 12.5) << "four ranks, one port";
  EXPECT_DOUBLE_EQ(share(8, 4, 50, 100), 100) << "two ports for each of four ranks";
  EXPECT_DOUBLE_EQ(share(16, 2, 50, 1000), 100) << "a rank uses one port for each channel";
  EXPECT_DOUBLE_EQ(share(8, 4, 50, 30), 30) << "the slowest host";
  EXPECT_DOUBLE_EQ(share(0, 4, 0, 0), 0.5) << "unknown ports and speeds";
}

}  // namespace
}  // namespace tutti::test
