// SPDX-License-Identifier: Apache-2.0
// Which network carries the connections between two ranks, by the racks of their hosts.
#include "communicator/setup/racks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unit/job_file.h"

namespace tutti::test {
namespace {

using communicator::Racks;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using Hosts = std::vector<std::string>;
using Path = transport::Paths::value_type;

constexpr Path kOfCall = std::nullopt;

std::vector<tuner::Network> networks() {
  std::vector<tuner::Network> networks(2);
  networks[0].name = "socket";
  networks[1].name = "ib";
  return networks;
}

/// The paths of rank 0.
transport::Paths paths(const std::string& job, const Hosts& hosts) {
  const auto racks = Racks::read(load_job("network: [socket, ib]\nnet:\n" + job), hosts);
  EXPECT_TRUE(racks.ok()) << racks.status().to_string();
  return racks.ok() ? racks->paths(0, networks()) : transport::Paths();
}

std::string failure(const std::string& job) {
  return std::string(Racks::read(load_job(job), {"node1", "node2"}).status().text());
}

TEST(Racks, TheNetworkInsideARackCarriesItsConnections) {
  const std::string racks = "  racks: [left=node1 node2, right=node3*]\n  inside_rack: ib\n";
  EXPECT_THAT(paths(racks, {"node1", "node2", "node3", "node4"}), ElementsAre(Path(1), Path(1), kOfCall, kOfCall));
  EXPECT_THAT(paths(racks, {"node30", "node2", "node31", "node1"}), ElementsAre(Path(1), kOfCall, Path(1), kOfCall));
}

TEST(Racks, HostsOutsideOfRacksShareNone) {
  const std::string racks = "  racks: [left=node1 node2]\n  inside_rack: ib\n";
  EXPECT_THAT(paths(racks, {"node8", "node8", "node1", "node2"}), ElementsAre(kOfCall, kOfCall, kOfCall, kOfCall));
}

TEST(Racks, RacksWithoutAnyHostAreTold) {
  const std::string racks = "net: {racks: [left=node1*], inside_rack: ib}\nnetwork: [socket, ib]\n";
  const auto warning = [](const std::string& job, const Hosts& hosts) {
    return Racks::read(load_job(job), hosts)->warning();
  };
  EXPECT_EQ(
      warning(racks, {"alpha", "beta", "alpha"}),
      "net.inside_rack is 'ib' and has no effect: no rack of net.racks holds one of the hosts alpha, beta; correct "
      "the patterns");
  EXPECT_EQ(warning(racks, {"alpha", "node12"}), "");
  EXPECT_EQ(warning(racks, {"alpha", "alpha"}), "");
  EXPECT_EQ(warning("net: {racks: [left=node1*]}\n", {"alpha", "beta"}), "");
}

TEST(Racks, WithoutANetworkTheyHaveNoEffect) {
  EXPECT_THAT(paths("  racks: [left=node*]\n", {"node1", "node2"}), ElementsAre(kOfCall, kOfCall));
}

TEST(Racks, ARackWithOneHostHasNoPath) {
  EXPECT_THAT(paths("  racks: [left=node*]\n  inside_rack: ib\n", {"node1", "node1"}), ElementsAre(kOfCall, kOfCall));
}

TEST(Racks, WrongRacksAreErrors) {
  EXPECT_THAT(failure("net: {racks: [node1]}\n"),
              AllOf(HasSubstr(":1:15: net.racks: 'node1' is no rack"), HasSubstr("NAME=PATTERN PATTERN")));
  EXPECT_THAT(failure("net: {racks: ['a=']}\n"), HasSubstr("'a=' is no rack"));
  EXPECT_THAT(failure("net: {racks: [=node1]}\n"), HasSubstr("'=node1' is no rack"));
  EXPECT_THAT(failure("net: {racks: [a=x, a=y]}\n"), HasSubstr(":1:20: net.racks: a rack 'a' stands before ("));
  EXPECT_THAT(failure("net: {racks: [a=node*, b=node2]}\n"),
              HasSubstr("the racks 'a' and 'b' both hold host 'node2'; let the patterns of one rack match it"));
}

TEST(Racks, ANetworkWithoutEffectIsAnError) {
  EXPECT_THAT(failure("net: {inside_rack: ib}\n"), HasSubstr(":1:20: net.inside_rack is 'ib', but net.racks names no"));
  EXPECT_EQ(failure("device: cuda\nnet: {racks: [a=node*], inside_rack: ib}\n"), "");
}

}  // namespace
}  // namespace tutti::test
