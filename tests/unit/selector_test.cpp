// SPDX-License-Identifier: Apache-2.0
// Protocols that need registered buffers: when they compete, and with which plans. Rules on networks. Plans that cannot
// be made or executed.
#include "tuner/selector.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "communicator/gpu_limits.h"
#include "plugin/loader.h"
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

  static plan::AlgorithmPlugin plugin(const Algorithm& algorithm) {
    return {algorithm.name(), &algorithm.ops(), algorithm.self()};
  }

  /// Makes a selector over `links`. Its network is "socket".
  void make(uint32_t links) {
    tuner::Choices choices = this->choices(kRanks, {plugin(ring_), plugin(direct_)});
    choices.links = links;
    choices.network_name = "socket";
    for (tuner::Protocol& each : choices.protocols) each.properties.links |= links;
    selector_ = std::make_unique<Selector>(config_, std::move(choices));
  }

  /// The choices of GPUs of one machine.
  tuner::Choices choices(uint32_t ranks, const std::vector<plan::AlgorithmPlugin>& plugins) {
    const NodeOfRank nodes = split(ranks, 1);
    tutti_topology topology = topology_of(nodes);
    topology.min_channels = topology.max_channels = 16;
    tuner::Choices choices;
    for (const plan::AlgorithmPlugin& plugin : plugins) {
      auto connected = plan::search_and_connect(plugin, topology);
      EXPECT_TRUE(connected.ok()) << connected.status().to_string();
      choices.algorithms.emplace_back(plugin, *std::move(connected));
    }
    choices.protocols = {protocol("simple", 0, 2, 1), protocol("copy", 1, 18, 1.05)};
    choices.tuner = &kModel;
    choices.tuner_instance = {&model_, [](void*) {}};
    choices.links = 1u << TUTTI_LINK_P2P;
    choices.ranks = ranks;
    choices.max_channels = 16;
    return choices;
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

// --- Plans that cannot be made or executed

constexpr uint32_t kMostOnGpus = 16;
const Question kAllReduce = {Collective::kAllReduce, DataType::kFloat32, ReduceOp::kSum, kLarge, false};

TEST_F(SelectorTest, leaves_out_what_kernels_do_not_run) {
  const Algorithm tree("tree");
  selector_ = std::make_unique<Selector>(config_, choices(kMostOnGpus, {plugin(tree)}));
  EXPECT_THAT(verdict(kAllReduce, "tree/pipelined × simple"), HasSubstr("predicted")) << "no back end, no limit";

  tuner::Choices on_gpus = choices(kMostOnGpus, {plugin(tree)});
  on_gpus.back_end = &communicator::gpu_back_end();
  selector_ = std::make_unique<Selector>(config_, std::move(on_gpus));
  EXPECT_THAT(verdict(kAllReduce, "tree/pipelined × simple"),
              HasSubstr("excluded: needs 120 steps; this back end runs up to 64"));
  const auto decision = selector_->choose(kAllReduce);
  ASSERT_TRUE(decision.ok()) << decision.status().to_string();
  EXPECT_EQ(selector_->choices().algorithms[0].variants[decision->variant].name, "direct");
}

TEST_F(SelectorTest, fails_with_the_limit_where_nothing_else_is_allowed) {
  const Algorithm tree("tree");
  config::LoadOptions options;
  options.settings = {{"algorithm", "tree/pipelined"}};
  config_ = *config::Config::load(options);
  tuner::Choices on_gpus = choices(kMostOnGpus, {plugin(tree)});
  on_gpus.back_end = &communicator::gpu_back_end();
  selector_ = std::make_unique<Selector>(config_, std::move(on_gpus));
  const auto decision = selector_->choose(kAllReduce);
  EXPECT_EQ(decision.status().code(), Code::kUnsupported);
  EXPECT_THAT(decision.status().text(), HasSubstr("needs 120 steps; this back end runs up to 64"));
}

TEST(GpuBackEnd, takes_as_many_ranks_as_kernels_know) {
  EXPECT_TRUE(communicator::gpu_back_end().takes(TUTTI_CUDA_MAX_RANKS).ok());
  const Status refused = communicator::gpu_back_end().takes(TUTTI_CUDA_MAX_RANKS + 1);
  EXPECT_EQ(refused.code(), Code::kUnsupported);
  EXPECT_THAT(refused.text(), HasSubstr("takes up to 16 ranks, not 17"));
}

/// Refuses one rank's plans of one channel under one root, and notes which plans it saw.
class OneRefusal : public tuner::BackEnd {
 public:
  OneRefusal(uint32_t rank, uint32_t channel, uint32_t root) : rank_(rank), channel_(channel), root_(root) {}
  Status takes(uint32_t /*rank_count*/) const override { return {}; }
  Status runs(const plan::Plan& plan) const override {
    ++questions;
    if (plan.rank != rank_ || plan.channel != channel_ || plan.root != root_) return {};
    return {Code::kUnsupported, "does not like it"};
  }
  mutable uint32_t questions = 0;

 private:
  uint32_t rank_, channel_, root_;
};

TEST_F(SelectorTest, asks_the_back_end_about_all_ranks_channels_and_roots_once) {
  const OneRefusal back_end(3, 15, 2);
  tuner::Choices with_limits = choices(kRanks, {plugin(ring_)});
  with_limits.back_end = &back_end;
  ASSERT_EQ(with_limits.algorithms[0].channels, 16u);
  selector_ = std::make_unique<Selector>(config_, std::move(with_limits));
  const Question broadcast = {Collective::kBroadcast, DataType::kFloat32, ReduceOp::kSum, kLarge, false};
  EXPECT_THAT(verdict(broadcast, "ring × simple"), HasSubstr("excluded: does not like it"));
  EXPECT_EQ(back_end.questions, 3 * 16 * kRanks) << "roots 0 to 2, channels 0 to 15, four ranks";
  EXPECT_THAT(verdict(broadcast, "ring × simple"), HasSubstr("excluded: does not like it"));
  EXPECT_EQ(back_end.questions, 3 * 16 * kRanks) << "answers are kept";
  EXPECT_THAT(verdict(kAllReduce, "ring × simple"), HasSubstr("chosen")) << "it has no root 2";
}

TEST_F(SelectorTest, says_why_an_algorithm_declines) {
  const std::string file = TUTTI_BINARY_DIR "/tests/zoo/tutti-algo-declines.so";
  auto image = plugin::Image::load(plugin::Kind::kAlgorithm, file, file);
  ASSERT_TRUE(image.ok()) << image.status().to_string();
  const auto declines = plugin::Plugin::open(*std::move(image), config_);
  ASSERT_TRUE(declines.ok()) << declines.status().to_string();
  const plan::AlgorithmPlugin declining{"declines", (*declines)->ops<tutti_algorithm_ops>(), (*declines)->self()};
  selector_ = std::make_unique<Selector>(config_, choices(kRanks, {declining, plugin(ring_)}));
  EXPECT_THAT(verdict(kAllReduce, "declines/plan × simple"),
              HasSubstr("excluded: its plan cannot be made: ranks must form a hypercube"));
  EXPECT_THAT(verdict(kAllReduce, "declines/cost × simple"),
              HasSubstr("excluded: algorithm gives no cost for it: nobody has measured it"));
  const auto decision = selector_->choose(kAllReduce);
  ASSERT_TRUE(decision.ok()) << decision.status().to_string();
  EXPECT_EQ(selector_->choices().algorithms[decision->algorithm].name, "ring");
  selector_.reset();  // its instances go before their plugin
}

}  // namespace
}  // namespace tutti::test
