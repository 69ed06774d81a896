// SPDX-License-Identifier: Apache-2.0
// What the selector says of protocols that need registered buffers: when they compete, and with which plans.
#include "tuner/selector.h"

#include <gmock/gmock.h>

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
  SelectorTest() {
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
    choices.links = 1u << TUTTI_LINK_P2P;
    choices.ranks = kRanks;
    choices.max_channels = 16;
    selector_ = std::make_unique<Selector>(config_, std::move(choices));
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

}  // namespace
}  // namespace tutti::test
