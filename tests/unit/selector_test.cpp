// SPDX-License-Identifier: Apache-2.0
// Protocols that need registered buffers: when they compete, and with which plans. Rules on networks.
#include "tuner/selector.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tuner-model/model.h"
#include "unit/plan_support.h"

namespace tutti::test {
namespace {

using testing::HasSubstr;
using testing::Not;
using tuner::Question;
using tuner::Selector;

constexpr uint32_t kRanks = 4;
constexpr size_t kLarge = size_t{64} << 20;  // elements

int32_t predict(void* instance, const tutti_call* call, tutti_candidate* candidates, uint32_t count) {
  for (uint32_t i = 0; i < count; ++i) static_cast<tuner_model::Model*>(instance)->predict(*call, candidates[i]);
  return TUTTI_OK;
}

tuner::Protocol protocol(const char* name, uint32_t needs_registered, double latency_us, double efficiency) {
  tuner::Protocol protocol;
  protocol.name = name;
  protocol.properties.links = 1u << TUTTI_LINK_P2P;
  protocol.properties.max_fan = 64;
  protocol.properties.needs_registered = needs_registered;
  protocol.properties.latency_us[TUTTI_LINK_P2P] = latency_us;
  protocol.properties.efficiency[TUTTI_LINK_P2P] = efficiency;
  protocol.properties.channel_gbs[TUTTI_LINK_P2P] = needs_registered != 0 ? 1000 : 10;
  return protocol;
}

class SelectorTest : public testing::Test {
 protected:
  SelectorTest() { make(1u << TUTTI_LINK_P2P); }

  /// Makes a selector over `links`. Its network is "socket".
  void make(uint32_t links) {
    tutti_topology topology = topology_of(nodes_);
    topology.max_channels = 16;
    tuner::Choices choices;
    for (const Algorithm* algorithm : {&ring_, &direct_}) {
      const plan::AlgorithmPlugin plugin{algorithm->name(), &algorithm->ops(), algorithm->self()};
      auto connected = plan::search_and_connect(plugin, topology);
      EXPECT_TRUE(connected.ok()) << connected.status().to_string();
      choices.algorithms.emplace_back(plugin, *std::move(connected));
    }
    choices.protocols = {protocol("simple", 0, 2, 1), protocol("copy", 1, 18, 1.05)};
    choices.tuner = &kModel;
    choices.tuner_instance = {&model_, [](void*) {}};
    choices.links = links;
    choices.network_name = "socket";
    for (tuner::Protocol& each : choices.protocols) each.properties.links |= links;
    choices.ranks = kRanks;
    choices.max_channels = 16;
    selector_ = std::make_unique<Selector>(config_, std::move(choices));
  }

  /// Takes the rules of this job file.
  void follow(const std::string& job) {
    const std::string file = fmt::format("{}tutti-selector-{}.yaml", testing::TempDir(), getpid());
    std::ofstream(file) << job;
    auto config = config::Config::load({"", file, {}, {}});
    std::filesystem::remove(file);
    ASSERT_TRUE(config.ok()) << config.status().to_string();
    config_ = *std::move(config);
  }

  std::string verdicts(const Question& question) const {
    const auto text = selector_->explain(question);
    EXPECT_TRUE(text.ok()) << text.status().to_string();
    return text.ok() ? *text : "";
  }
  std::string verdict(const Question& question, const std::string& candidate) const {
    const std::string text = verdicts(question);
    const size_t line = text.find("  " + candidate + " ");
    EXPECT_NE(line, std::string::npos) << text;
    return line == std::string::npos ? "" : text.substr(line, text.find('\n', line) - line);
  }

  static constexpr tutti_tuner_ops kModel = {sizeof(tutti_tuner_ops), 0, nullptr, nullptr, predict};
  const NodeOfRank nodes_ = split(kRanks, 1);
  Algorithm ring_{"ring"};
  Algorithm direct_{"direct"};
  tuner_model::Model model_{tuner_model::Constants{}, topology_of(nodes_)};
  config::Config config_ = *config::Config::load({});
  std::unique_ptr<Selector> selector_;
};

Question all_gather(uint64_t count, bool registered) {
  return {Collective::kAllGather, DataType::kFloat32, ReduceOp::kSum, count, registered};
}

TEST_F(SelectorTest, leaves_them_out_without_registered_buffers) {
  EXPECT_THAT(verdict(all_gather(kLarge, false), "direct/shifted × copy"),
              HasSubstr("excluded: protocol needs registered buffers: Communicator::register_buffer"));
  EXPECT_THAT(verdicts({Collective::kSendRecv, DataType::kUint8, ReduceOp::kSum, 8, true}),
              HasSubstr("excluded: protocol is for collectives only"));
}

TEST_F(SelectorTest, takes_them_for_large_calls_with_registered_buffers) {
  const auto large = selector_->choose(all_gather(kLarge, true));
  ASSERT_TRUE(large.ok());
  EXPECT_EQ(large->protocol, 1u);
  EXPECT_EQ(large->channels, 1u);
  const auto small = selector_->choose(all_gather(16, true));
  ASSERT_TRUE(small.ok());
  EXPECT_EQ(small->protocol, 0u);
}

TEST_F(SelectorTest, takes_them_for_each_collective_whose_output_all_ranks_have) {
  for (const Collective collective :
       {Collective::kAllGather, Collective::kAllToAll, Collective::kBroadcast, Collective::kScatter}) {
    const auto decision = selector_->choose({collective, DataType::kFloat32, ReduceOp::kSum, kLarge, true});
    ASSERT_TRUE(decision.ok());
    EXPECT_EQ(decision->protocol, 1u) << static_cast<int>(collective);
  }
}

TEST_F(SelectorTest, leaves_out_plans_that_are_more_than_copies) {
  EXPECT_THAT(verdict(all_gather(kLarge, true), "ring × copy"), HasSubstr("is more than copies"));
  EXPECT_THAT(
      verdict({Collective::kAllReduce, DataType::kFloat32, ReduceOp::kSum, kLarge, true}, "direct/two-shot × copy"),
      HasSubstr("is more than copies: it reduces"));
}

TEST_F(SelectorTest, counts_copies_one_after_another) {
  // Three copies of 64 MiB × 4 bytes each; the order is the same for both, and so is what they cost but for congestion.
  const auto decision = selector_->choose(all_gather(kLarge, true));
  ASSERT_TRUE(decision.ok());
  const double bytes = 3.0 * 4 * kLarge;
  EXPECT_NEAR(decision->predicted_us, 3 * (1 + 18) + bytes / (350e3 * 1.05), 1);
}

TEST_F(SelectorTest, a_rule_on_networks_excludes_nothing_where_no_network_is_used) {
  for (const char* rule :
       {"forbid: {network: socket}", "choose: {network: ib}", "choose: {network: socket, protocol: copy}"}) {
    follow(fmt::format("rules: [{{{}}}]", rule));
    EXPECT_THAT(verdicts(all_gather(16, false)), Not(HasSubstr("by the rule"))) << rule;
    EXPECT_TRUE(selector_->choose(all_gather(16, false)).ok()) << rule;
  }
  // The next rule decides.
  follow("rules: [{forbid: {network: socket}}, {forbid: {algorithm: ring}}]");
  EXPECT_THAT(verdict(all_gather(16, false), "ring × simple"), HasSubstr("forbidden by the rule at "));
}

TEST_F(SelectorTest, a_rule_that_excludes_the_network_fails_with_its_place) {
  make(1u << TUTTI_LINK_P2P | 1u << TUTTI_LINK_NETWORK);
  const auto failure = [&](const std::string& rules) {
    follow(rules);
    const auto decision = selector_->choose(all_gather(16, false));
    EXPECT_FALSE(decision.ok()) << rules;
    return std::string(decision.status().to_string());
  };
  EXPECT_THAT(
      failure("rules:\n- forbid: {network: socket}\n"),
      HasSubstr(":2:21: this rule forbids network 'socket' for all_gather of 16 × float32, but the communicator "
                "has no other network; narrow 'match' of the rule"));
  EXPECT_THAT(failure("rules:\n- choose: {network: ib}\n"),
              HasSubstr(":2:21: this rule chooses network 'ib' for all_gather of 16 × float32, but the communicator "
                        "uses 'socket'; set 'network: ib'"));
  follow("rules: [{forbid: {network: ib}}]");
  EXPECT_TRUE(selector_->choose(all_gather(16, false)).ok());
  follow("rules: [{choose: {network: socket}}]");
  EXPECT_TRUE(selector_->choose(all_gather(16, false)).ok());
  // Both names must hold: this rule leaves the other protocols.
  follow("rules: [{forbid: {network: socket, protocol: copy}}]");
  EXPECT_TRUE(selector_->choose(all_gather(16, false)).ok());
}

}  // namespace
}  // namespace tutti::test
