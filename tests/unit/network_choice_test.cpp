// SPDX-License-Identifier: Apache-2.0
// Which networks a communicator uses: by the setting `network`, by plugins.network, and by rules.
#include "communicator/setup/network.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "unit/job_file.h"

namespace tutti::test {
namespace {

using communicator::NetworkChoice;
using testing::ElementsAre;
using testing::HasSubstr;
using Names = std::vector<std::string>;

class NetworkChoiceTest : public testing::Test {
 protected:
  Result<NetworkChoice> choose(const std::string& job) {
    asked_.clear();
    const config::Config config = load_job(job);
    const communicator::NetworkWishes wishes{&config, 4, 2};
    return communicator::choose_networks(wishes, [this](const std::string& name) -> Result<std::string> {
      asked_.push_back(name);
      return broken_.contains(name) ? "rank 1: no " + name : std::string();
    });
  }
  Names used(const std::string& job) {
    const auto choice = choose(job);
    EXPECT_TRUE(choice.ok()) << job << choice.status().to_string();
    return choice.ok() ? choice->used : Names();
  }

  std::set<std::string> broken_;
  Names asked_;  ///< networks that were opened, in this order
};

TEST_F(NetworkChoiceTest, AutoTakesTheFirstThatWorks) {
  EXPECT_THAT(used("plugins.network: [a, b]\n"), ElementsAre("a"));
  EXPECT_THAT(asked_, ElementsAre("a")) << "a network that no call needs is not opened";
  broken_ = {"a"};
  EXPECT_THAT(used("plugins.network: [a, b]\n"), ElementsAre("b"));
}

TEST_F(NetworkChoiceTest, AutoTakesTheNetworksThatRulesNeed) {
  const std::string list = "plugins.network: [a, b]\n";
  EXPECT_THAT(used(list + "rules: [{match: {max_size: 1K}, choose: {network: b}}]\n"), ElementsAre("a", "b"));
  EXPECT_THAT(used(list + "rules: [{match: {max_size: 1K}, choose: {network: c}}]\n"), ElementsAre("a", "c"));
  EXPECT_THAT(used(list + "rules: [{match: {max_size: 1K}, forbid: {network: a}}]\n"), ElementsAre("a", "b"));
  EXPECT_THAT(used(list + "rules: [{match: {max_size: 1K}, forbid: {network: b}}]\n"), ElementsAre("a"));
  EXPECT_THAT(used(list + "rules: [{match: {nodes: 3}, choose: {network: b}}]\n"), ElementsAre("a"))
      << "the rule matches no call of these ranks";
  EXPECT_THAT(used(list + "rules: [{match: {device: host}, choose: {network: b}}]\n"), ElementsAre("a", "b"));
  EXPECT_THAT(used(list + "rules: [{match: {device: cuda}, choose: {network: b}}]\n"), ElementsAre("a"));
  // A rule without conditions decides on all calls, also on the calls of later rules.
  EXPECT_THAT(used(list + "rules: [{forbid: {network: a}}]\n"), ElementsAre("b"));
  EXPECT_THAT(used(list + "rules: [{forbid: {network: a}}, {choose: {network: c}}]\n"), ElementsAre("b"));
  EXPECT_THAT(used("plugins.network: [a]\nrules: [{forbid: {network: a}}]\n"), ElementsAre("a"))
      << "calls name the rule";
}

TEST_F(NetworkChoiceTest, NetworksOfRulesMayNotWork) {
  broken_ = {"b"};
  const auto choice = choose("plugins.network: [a]\nrules: [{match: {max_size: 1K}, choose: {network: b}}]\n");
  ASSERT_TRUE(choice.ok());
  EXPECT_THAT(choice->used, ElementsAre("a"));
  ASSERT_EQ(choice->unused.size(), 1u);
  EXPECT_EQ(choice->unused[0].name, "b");
  EXPECT_EQ(choice->unused[0].why, "it does not work on rank 1: no b");
}

TEST_F(NetworkChoiceTest, NamedNetworksMustWork) {
  EXPECT_THAT(used("network: b\nplugins.network: [a]\n"), ElementsAre("b"));
  EXPECT_THAT(used("network: [b, a]\n"), ElementsAre("b", "a"));
  EXPECT_THAT(used("network: [b, a]\nrules: [{match: {max_size: 1K}, choose: {network: c}}]\n"), ElementsAre("b", "a"));
  broken_ = {"a"};
  EXPECT_THAT(std::string(choose("network: [b, a]\n").status().text()),
              HasSubstr("'a' does not work on rank 1: no a, but 'network' names it"));
  EXPECT_THAT(std::string(choose("network: a\n").status().text()), HasSubstr("no network works on all ranks"));
}

TEST_F(NetworkChoiceTest, TheNetworkInsideRacksIsOpened) {
  const std::string racks = "net: {racks: [left=node*], inside_rack: b}\n";
  EXPECT_THAT(used(racks + "plugins.network: [a]\n"), ElementsAre("a", "b"));
  EXPECT_THAT(used(racks + "network: [a, b]\n"), ElementsAre("a", "b"));
  EXPECT_THAT(std::string(choose(racks + "network: a\n").status().text()),
              HasSubstr("net.inside_rack is 'b', but 'network' ("));
  broken_ = {"b"};
  EXPECT_THAT(std::string(choose(racks + "plugins.network: [a]\n").status().text()),
              HasSubstr("net.inside_rack is 'b', but it does not work on rank 1: no b"));
}

TEST(NetworksOfCalls, WithoutRulesOnNetworksCallsUseTheFirst) {
  const auto count = [](const std::string& job) { return communicator::networks_of_calls(load_job(job), 3); };
  EXPECT_EQ(count("network: [a, b, c]\n"), 1u);
  EXPECT_EQ(count("rules: [{match: {max_size: 1K}, choose: {protocol: ll}}]\n"), 1u);
  EXPECT_EQ(count("rules: [{match: {max_size: 1K}, choose: {network: b}}]\n"), 3u);
  EXPECT_EQ(count("rules: [{match: {max_size: 1K}, forbid: {network: a}}]\n"), 3u);
  EXPECT_EQ(communicator::networks_of_calls(load_job("rules: [{choose: {network: b}}]\n"), 0), 1u);
}

}  // namespace
}  // namespace tutti::test
