// SPDX-License-Identifier: Apache-2.0
// Protocols that need registered buffers: when they compete, and with which plans. Rules on networks. Plans that cannot
// be made or executed.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <array>
#include <set>

#include "backend/limits.h"
#include "plugin/loader.h"
#include "tutti/sdk/algorithm.h"
#include "unit/selector_support.h"

namespace tutti::test {
namespace {

using testing::HasSubstr;
using testing::Not;
using tuner::Question;
using tuner::Selector;

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
       {Collective::kAllGather, Collective::kGather, Collective::kBroadcast, Collective::kScatter}) {
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
  // Three copies of 64 MiB × 4 bytes each. The order is equal for both, and so is their cost without congestion.
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
                        "uses 'socket'; add 'ib' to 'network'"));
  follow("rules: [{forbid: {network: ib}}]");
  EXPECT_TRUE(selector_->choose(all_gather(16, false)).ok());
  follow("rules: [{choose: {network: socket}}]");
  EXPECT_TRUE(selector_->choose(all_gather(16, false)).ok());
  // Both names must hold: this rule leaves the other protocols.
  follow("rules: [{forbid: {network: socket, protocol: copy}}]");
  EXPECT_TRUE(selector_->choose(all_gather(16, false)).ok());
}

TEST_F(SelectorTest, a_rule_decides_the_network_of_each_call) {
  networks_ = {"socket", "ib"};
  make(1u << TUTTI_LINK_P2P | 1u << TUTTI_LINK_NETWORK);
  const auto network = [&](uint64_t count, const std::string& rules) {
    follow(rules);
    const auto decision = selector_->choose(all_gather(count, false));
    EXPECT_TRUE(decision.ok()) << rules << decision.status().to_string();
    return decision.ok() ? networks_.at(decision->network) : "";
  };
  EXPECT_EQ(network(16, "rules: []"), "socket");
  EXPECT_EQ(network(16, "rules: [{choose: {network: ib}}]"), "ib");
  EXPECT_EQ(network(16, "rules: [{forbid: {network: socket}}]"), "ib");
  EXPECT_EQ(network(16, "rules: [{forbid: {network: ib}}]"), "socket");
  const std::string by_size = "rules: [{match: {max_size: 1KiB}, choose: {network: ib}}]";
  EXPECT_EQ(network(256, by_size), "ib");
  EXPECT_EQ(network(257, by_size), "socket");
  const std::string by_collective = "rules: [{match: {collective: all_reduce}, choose: {network: ib}}]";
  EXPECT_EQ(network(16, by_collective), "socket");
  // A rule on a network and a protocol moves the calls of this protocol alone.
  follow("rules: [{forbid: {network: socket, protocol: simple}}]");
  EXPECT_THAT(verdict(all_gather(16, true), "direct/shifted × simple"), HasSubstr("network 'ib'"));
  EXPECT_THAT(verdict(all_gather(16, true), "direct/shifted × copy"), HasSubstr("network 'socket'"));
}

TEST_F(SelectorTest, a_rule_without_a_network_is_not_blamed_for_the_network) {
  make(1u << TUTTI_LINK_P2P);
  follow("rules: [{choose: {algorithm: nosuch}}]");
  const auto decision = selector_->choose(all_gather(16, false));
  EXPECT_EQ(decision.status().code(), Code::kUnsupported);
  EXPECT_THAT(std::string(decision.status().text()), HasSubstr("nothing can run all_gather"));
}

TEST_F(SelectorTest, a_rule_names_why_its_network_is_not_in_use) {
  tuner::Choices with = choices(kRanks, {plugin(ring_)});
  with.links |= 1u << TUTTI_LINK_NETWORK;
  for (tuner::Protocol& each : with.protocols) each.properties.links |= with.links;
  with.networks.push_back({"socket", 10, 5});
  with.unused_networks = {{"ib", "it does not work on rank 1: no device"}};
  selector_ = std::make_unique<Selector>(config_, std::move(with));
  follow("rules: [{choose: {network: ib}}]");
  const auto decision = selector_->choose(all_gather(16, false));
  EXPECT_THAT(std::string(decision.status().text()),
              HasSubstr("this rule chooses network 'ib' for all_gather of 16 × float32, but it does not work on rank "
                        "1: no device; change the rule"));
}

/// The tuner gets the candidates of each network with the figures of this network.
TEST_F(SelectorTest, networks_have_figures_of_their_own) {
  tuner::Choices with = choices(kRanks, {plugin(ring_)});
  with.links = 1u << TUTTI_LINK_NETWORK;
  for (tuner::Protocol& each : with.protocols) each.properties.links |= with.links;
  tutti_topology slow = topology_of(nodes_);
  slow.latency_us[TUTTI_LINK_P2P] = 1000;
  alpha_beta::Model slow_model{alpha_beta::Constants{}, slow};
  with.networks.push_back({"socket", 10, 5});
  with.networks.push_back({"ib", 10, 5, {&slow_model, [](void*) {}}});
  selector_ = std::make_unique<Selector>(config_, std::move(with));
  const auto predicted = [&](const std::string& rules) {
    follow(rules);
    const auto decision = selector_->choose(all_gather(16, false));
    EXPECT_TRUE(decision.ok()) << decision.status().to_string();
    return decision.ok() ? decision->predicted_us : 0;
  };
  EXPECT_GT(predicted("rules: [{choose: {network: ib}}]"), predicted("rules: []") + 1000);
}

// --- Rules

class RulesTest : public SelectorTest {
 protected:
  /// Whether the one rule of a job file, which forbids ring to the calls of `match`, applies to the call.
  bool applies(const std::string& match, const Question& question) {
    follow(fmt::format("rules: [{{match: {{{}}}, forbid: {{algorithm: ring}}}}]", match));
    return verdict(question, "ring × simple").find("excluded: forbidden by the rule at ") != std::string::npos;
  }
  static Question of_bytes(uint64_t bytes) { return all_gather(bytes / size_of(DataType::kFloat32), false); }
};

TEST_F(RulesTest, sizes_are_those_of_a_block_and_both_ends_belong_to_the_range) {
  for (const char* both : {"min_size: 64, max_size: 128"}) {
    EXPECT_FALSE(applies(both, of_bytes(60)));
    EXPECT_TRUE(applies(both, of_bytes(64)));
    EXPECT_TRUE(applies(both, of_bytes(128)));
    EXPECT_FALSE(applies(both, of_bytes(132)));
  }
  EXPECT_TRUE(applies("min_size: 64", of_bytes(1 << 20)));
  EXPECT_FALSE(applies("min_size: 64", of_bytes(60)));
  EXPECT_TRUE(applies("max_size: 64", of_bytes(0)));
  EXPECT_TRUE(applies("min_size: 64, max_size: 64", of_bytes(64)));
  EXPECT_FALSE(applies("max_size: 64", {Collective::kAllGather, DataType::kFloat64, ReduceOp::kSum, 16, false}))
      << "16 elements of 8 bytes";
}

TEST_F(RulesTest, match_collective_and_type) {
  const Question question = of_bytes(64);
  EXPECT_TRUE(applies("collective: all_gather", question));
  EXPECT_FALSE(applies("collective: all_reduce", question));
  EXPECT_TRUE(applies("data_type: float32", question));
  EXPECT_FALSE(applies("data_type: float16", question));
  EXPECT_FALSE(applies("collective: all_gather, data_type: float16", question)) << "all that is named must match";
}

TEST_F(RulesTest, match_the_ranks_and_nodes_of_the_communicator) {
  const Question question = of_bytes(64);
  EXPECT_TRUE(applies("ranks: 4", question));
  EXPECT_FALSE(applies("ranks: 5", question));
  EXPECT_TRUE(applies("nodes: 1", question));
  EXPECT_FALSE(applies("nodes: 2", question));
  EXPECT_FALSE(applies("ranks: 4, nodes: 2", question));
  EXPECT_FALSE(applies("ranks: 5, nodes: 1", question));
  EXPECT_TRUE(applies("ranks: 4, nodes: 1", question));
  tuner::Choices two_nodes = choices(kRanks, {plugin(ring_)});
  two_nodes.nodes = 2;
  selector_ = std::make_unique<Selector>(config_, std::move(two_nodes));
  EXPECT_TRUE(applies("nodes: 2", question));
  EXPECT_FALSE(applies("nodes: 1", question));
}

TEST_F(RulesTest, match_the_links_that_join_the_ranks) {
  const Question question = of_bytes(64);
  EXPECT_FALSE(applies("link: shm", question));
  EXPECT_FALSE(applies("link: net", question));
  make(1u << TUTTI_LINK_P2P | 1u << TUTTI_LINK_SHM);
  EXPECT_TRUE(applies("link: shm", question));
  EXPECT_FALSE(applies("link: net", question));
  make(1u << TUTTI_LINK_P2P | 1u << TUTTI_LINK_NETWORK);
  EXPECT_FALSE(applies("link: shm", question));
  EXPECT_TRUE(applies("link: net", question));
}

TEST_F(RulesTest, match_the_device_of_the_communicator) {
  const Question question = of_bytes(64);
  EXPECT_TRUE(applies("device: host", question));
  EXPECT_FALSE(applies("device: cuda", question));
  tuner::Choices on_gpus = choices(kRanks, {plugin(ring_)});
  on_gpus.on_gpu = true;
  selector_ = std::make_unique<Selector>(config_, std::move(on_gpus));
  EXPECT_FALSE(applies("device: host", question));
  EXPECT_TRUE(applies("device: cuda", question));
}

TEST_F(RulesTest, the_first_that_matches_decides) {
  follow(
      "rules: [{match: {ranks: 9}, forbid: {algorithm: direct}}, {forbid: {algorithm: ring}}, "
      "{choose: {algorithm: ring}}]");
  EXPECT_THAT(verdict(of_bytes(64), "ring × simple"), HasSubstr("forbidden by the rule at "));
  EXPECT_THAT(verdict(of_bytes(64), "direct/shifted × simple"), Not(HasSubstr("by the rule")));
}

TEST_F(RulesTest, that_choose_exclude_all_else) {
  follow("rules: [{choose: {algorithm: direct/shifted, protocol: simple}}]");
  EXPECT_THAT(verdict(of_bytes(64), "direct/shifted × simple"), HasSubstr("chosen: "));
  EXPECT_THAT(verdict(of_bytes(64), "direct/one-shot × simple"), HasSubstr("not chosen by the rule at "));
  EXPECT_THAT(verdict(of_bytes(64), "ring × simple"), HasSubstr("not chosen by the rule at "));
  EXPECT_THAT(verdict(all_gather(16, true), "direct/shifted × copy"), HasSubstr("not chosen by the rule at "));
  follow("rules: [{choose: {algorithm: direct}}]");
  EXPECT_THAT(verdict(of_bytes(64), "direct/one-shot × simple"), Not(HasSubstr("by the rule"))) << "every variant";
  EXPECT_THAT(verdict(of_bytes(64), "ring × simple"), HasSubstr("not chosen by the rule at "));
}

TEST_F(RulesTest, set_the_number_of_channels_up_to_those_there_are) {
  follow("rules: [{choose: {algorithm: ring, channels: 3}}]");
  EXPECT_EQ(selector_->choose(of_bytes(64))->channels, 3u) << "more than the tuner takes for 64 bytes";
  follow("rules: [{choose: {algorithm: ring, channels: 40}}]");
  EXPECT_EQ(selector_->choose(of_bytes(64))->channels, 16u);
  follow("rules: [{match: {min_size: 65}, choose: {algorithm: ring, channels: 3}}]");
  EXPECT_EQ(selector_->choose(of_bytes(64))->channels, 1u);
}

TEST_F(RulesTest, do_not_spread_copies_over_channels) {
  follow("rules: [{choose: {algorithm: direct/shifted, protocol: copy, channels: 3}}]");
  EXPECT_EQ(selector_->choose(all_gather(kLarge, true))->channels, 1u);
}

TEST_F(RulesTest, on_algorithms_say_nothing_of_messages) {
  const Question message = {Collective::kSendRecv, DataType::kUint8, ReduceOp::kSum, 8, false};
  for (const char* rule :
       {"choose: {algorithm: ring}", "forbid: {algorithm: ring}", "forbid: {algorithm: ring, protocol: simple}",
        "choose: {algorithm: ring, protocol: simple}"}) {
    follow(fmt::format("rules: [{{{}}}]", rule));
    EXPECT_THAT(verdict(message, "p2p × simple"), HasSubstr("chosen: ")) << rule;
  }
  follow("rules: [{forbid: {protocol: simple}}]");
  EXPECT_THAT(verdict(message, "p2p × simple"), HasSubstr("forbidden by the rule at "));
}

TEST_F(RulesTest, a_setting_excludes_like_a_rule) {
  follow("{algorithm: direct/one-shot, protocol: simple}");
  EXPECT_THAT(verdict(of_bytes(64), "direct/one-shot × simple"), HasSubstr("chosen: "));
  EXPECT_THAT(verdict(of_bytes(64), "direct/shifted × simple"), HasSubstr("algorithm is set to 'direct/one-shot' ("));
  EXPECT_THAT(verdict(all_gather(16, true), "direct/one-shot × copy"), HasSubstr("protocol is set to 'simple' ("));
  EXPECT_THAT(verdicts({Collective::kSendRecv, DataType::kUint8, ReduceOp::kSum, 8, false}), HasSubstr("chosen: "));
}

// --- Links and devices

TEST_F(SelectorTest, leaves_out_protocols_that_lack_a_link_or_the_device) {
  tuner::Choices with_network = choices(kRanks, {plugin(ring_)});
  with_network.links |= 1u << TUTTI_LINK_NETWORK;
  selector_ = std::make_unique<Selector>(config_, std::move(with_network));
  EXPECT_THAT(verdicts(all_gather(16, false)), HasSubstr("excluded: protocol does not work over the network"));
  tuner::Choices on_host = choices(kRanks, {plugin(ring_)});
  on_host.device = TUTTI_DEVICE_HOST;
  on_host.protocols[0].properties.devices = TUTTI_DEVICE_CUDA;
  selector_ = std::make_unique<Selector>(config_, std::move(on_host));
  EXPECT_THAT(verdict(all_gather(16, false), "ring × simple"),
              HasSubstr("excluded: protocol does not run on the host"));
  EXPECT_TRUE(selector_->check().ok());
}

TEST_F(SelectorTest, refuses_a_protocol_setting_that_the_device_cannot_follow) {
  const auto check_on = [&](uint32_t device) {
    tuner::Choices wanted = choices(kRanks, {plugin(ring_)});
    wanted.device = device;
    wanted.protocols[0].properties.devices = TUTTI_DEVICE_CUDA;
    selector_ = std::make_unique<Selector>(config_, std::move(wanted));
    return selector_->check();
  };
  follow("{protocol: simple}");
  EXPECT_TRUE(check_on(TUTTI_DEVICE_CUDA).ok());
  const Status refused = check_on(TUTTI_DEVICE_HOST);
  EXPECT_EQ(refused.code(), Code::kUnsupported);
  EXPECT_THAT(std::string(refused.text()), AllOf(HasSubstr("protocol is set to 'simple' ("),
                                                 HasSubstr("but this protocol does not run on the host")));
}

// --- Plans that cannot be made or executed

/// Each rank receives a peer's block at the position of its own block: copies in place would overwrite data that is
/// still to be sent. (The result would be wrong, too; the selector does not prove results.)
class Shuffle : public sdk::Algorithm {
 public:
  std::span<const sdk::Algorithm::Variant> variants() const override {
    static constexpr std::array<sdk::Algorithm::Variant, 1> kOne = {{{"", 1u << TUTTI_ALL_GATHER}}};
    return kOne;
  }
  Result<std::unique_ptr<sdk::AlgorithmInstance>> connect(const tutti_topology& topology,
                                                          std::span<const tutti_graph> /*graphs*/) override {
    return std::unique_ptr<sdk::AlgorithmInstance>(std::make_unique<Instance>(topology.rank_count));
  }

 private:
  class Instance : public sdk::AlgorithmInstance {
   public:
    explicit Instance(uint32_t ranks) : ranks_(ranks) {}
    uint32_t channel_count() const override { return 1; }
    Result<sdk::PlanBuilder> plan(const tutti_plan_request& request) const override {
      sdk::PlanBuilder builder(request, ranks_, 1);
      for (uint32_t step = 1; step < ranks_; ++step) {
        builder.step().own(sdk::Buffer::kInput, 0).send((request.rank + step) % ranks_);
        const uint32_t from = (request.rank + ranks_ - step) % ranks_;
        builder.step().recv(from).to_output((from + 1) % ranks_);
      }
      return builder;
    }
    Result<tutti_algorithm_cost> cost(uint32_t /*collective*/, uint32_t /*variant*/) const override {
      tutti_algorithm_cost cost{};
      cost.hops[TUTTI_LINK_P2P] = 1;
      cost.wire[TUTTI_LINK_P2P] = 1;
      return cost;
    }

   private:
    uint32_t ranks_;
  };
};

TEST_F(SelectorTest, leaves_out_plans_that_are_copies_only_out_of_place) {
  Shuffle shuffle;
  const program::AlgorithmPlugin shuffling{"shuffle", Shuffle::table(), &shuffle};
  selector_ = std::make_unique<Selector>(config_, choices(kRanks, {shuffling, plugin(ring_)}));
  EXPECT_THAT(verdict(all_gather(kLarge, true), "shuffle × copy"),
              HasSubstr("in place, rank 0 receives in block 0 what it has to send"));
  selector_.reset();  // its instances go before the algorithm
}

constexpr uint32_t kMany = TUTTI_CUDA_MAX_CONNECTIONS + 7;
const Question kAllReduce = {Collective::kAllReduce, DataType::kFloat32, ReduceOp::kSum, kLarge, false};
const Question kGather = {Collective::kGather, DataType::kFloat32, ReduceOp::kSum, kLarge, false};

TEST_F(SelectorTest, leaves_out_what_kernels_do_not_run) {
  const Algorithm direct("direct");
  const Algorithm tree("tree");
  selector_ = std::make_unique<Selector>(config_, choices(kMany, {plugin(direct), plugin(tree)}));
  EXPECT_THAT(verdict(kGather, "direct/shifted × simple"), HasSubstr("predicted")) << "no back end, no limit";

  tuner::Choices on_gpus = choices(kMany, {plugin(direct), plugin(tree)});
  on_gpus.back_end = &backend::gpu_back_end();
  selector_ = std::make_unique<Selector>(config_, std::move(on_gpus));
  EXPECT_THAT(verdict(kGather, "direct/shifted × simple"),
              HasSubstr("excluded: needs 69 connections; this back end runs up to 63"));
  EXPECT_THAT(verdict(kAllReduce, "tree/pipelined × simple"), HasSubstr("predicted")) << "few connections";
  const Question all_to_all = {Collective::kAllToAll, DataType::kFloat32, ReduceOp::kSum, kLarge, false};
  EXPECT_THAT(verdict(all_to_all, "direct/shifted × simple"), HasSubstr("chosen")) << "it runs as messages";
  const auto decision = selector_->choose(kAllReduce);
  ASSERT_TRUE(decision.ok()) << decision.status().to_string();
  EXPECT_EQ(decision->algorithm, 1u);
}

TEST_F(SelectorTest, fails_with_the_limit_where_nothing_else_is_allowed) {
  const Algorithm direct("direct");
  config::LoadOptions options;
  options.settings = {{"algorithm", "direct/shifted"}};
  config_ = *config::Config::load(options);
  tuner::Choices on_gpus = choices(kMany, {plugin(direct)});
  on_gpus.back_end = &backend::gpu_back_end();
  selector_ = std::make_unique<Selector>(config_, std::move(on_gpus));
  const auto decision = selector_->choose(kGather);
  EXPECT_EQ(decision.status().code(), Code::kUnsupported);
  EXPECT_THAT(decision.status().text(), HasSubstr("needs 69 connections; this back end runs up to 63"));
}

TEST_F(SelectorTest, leaves_protocols_of_the_small_form_what_it_holds) {
  const Algorithm tree("tree");
  const auto on_gpus = [&](uint32_t ranks) {
    tuner::Choices choices = this->choices(ranks, {plugin(tree)});
    choices.back_end = &backend::gpu_back_end();
    choices.protocols.push_back(protocol("small", 0, 1, 1));
    choices.protocols.back().properties.large_launches = 0;
    selector_ = std::make_unique<Selector>(config_, std::move(choices));
  };
  on_gpus(TUTTI_CUDA_SMALL_RANKS);
  EXPECT_THAT(verdict(kAllReduce, "tree/pipelined × small"),
              HasSubstr("excluded: needs 120 steps; this protocol runs up to 64"));
  EXPECT_THAT(verdict(kAllReduce, "tree/pipelined × simple"), HasSubstr("predicted"));
  EXPECT_THAT(verdict(kAllReduce, "tree/direct × small"), HasSubstr("predicted"));
  on_gpus(TUTTI_CUDA_SMALL_RANKS + 1);
  for (const char* candidate : {"tree/direct × small", "tree/direct × copy"}) {
    EXPECT_THAT(verdict(kAllReduce, candidate), HasSubstr("excluded: needs 17 ranks; this protocol runs up to 16"));
  }
  EXPECT_THAT(verdict(kAllReduce, "tree/direct × simple"), HasSubstr("chosen"));
  const Question message = {Collective::kSendRecv, DataType::kFloat32, ReduceOp::kSum, kLarge, false};
  EXPECT_THAT(verdict(message, "p2p × small"), HasSubstr("excluded: needs 17 ranks; this protocol runs up to 16"));
  EXPECT_THAT(verdict(message, "p2p × simple"), HasSubstr("chosen"));
}

TEST(GpuBackEnd, takes_as_many_ranks_as_kernels_know) {
  EXPECT_TRUE(backend::gpu_back_end().takes(TUTTI_CUDA_MAX_RANKS).ok());
  const Status refused = backend::gpu_back_end().takes(TUTTI_CUDA_MAX_RANKS + 1);
  EXPECT_EQ(refused.code(), Code::kUnsupported);
  EXPECT_THAT(refused.text(),
              HasSubstr(fmt::format("takes up to {} ranks, not {}", TUTTI_CUDA_MAX_RANKS, TUTTI_CUDA_MAX_RANKS + 1)));
}

/// Refuses one rank's plans of one channel under one root, and notes which plans it saw.
class OneRefusal : public tuner::BackEnd {
 public:
  OneRefusal(uint32_t rank, uint32_t channel, uint32_t root) : rank_(rank), channel_(channel), root_(root) {}
  Status takes(uint32_t /*rank_count*/) const override { return {}; }
  Status runs(const program::Plan& plan) const override {
    ++questions;
    roots.insert(plan.root);
    if (plan.rank != rank_ || plan.channel != channel_ || plan.root != root_) return {};
    return {Code::kUnsupported, "does not like it"};
  }
  Status runs_together(std::span<const program::Plan> /*all_ranks*/) const override { return {}; }
  std::string why_lists(std::span<const program::Plan> /*all_ranks*/) const override { return {}; }
  Status takes_small(uint32_t /*rank_count*/) const override { return {}; }
  Status runs_small(const program::Plan& /*plan*/) const override { return {}; }
  mutable uint32_t questions = 0;
  mutable std::set<uint32_t> roots;

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

TEST_F(SelectorTest, asks_the_back_end_about_some_roots_of_many_ranks) {
  constexpr uint32_t kHundred = 100;
  const OneRefusal back_end(0, 0, kHundred - 1);
  const Algorithm tree("tree");
  tuner::Choices with_limits = choices(kHundred, {plugin(tree)});
  with_limits.back_end = &back_end;
  selector_ = std::make_unique<Selector>(config_, std::move(with_limits));
  const Question broadcast = {Collective::kBroadcast, DataType::kFloat32, ReduceOp::kSum, kLarge, false};
  EXPECT_THAT(verdict(broadcast, "tree/direct × simple"), HasSubstr("excluded: does not like it"));
  EXPECT_EQ(back_end.roots.size(), 40u) << "4096 / 100";
  EXPECT_EQ(*back_end.roots.begin(), 0u);
  EXPECT_EQ(*back_end.roots.rbegin(), kHundred - 1);
}

TEST_F(SelectorTest, gives_the_reason_of_a_tuner_that_fails) {
  const std::string file = TUTTI_BINARY_DIR "/tests/zoo/tutti-algo-declines.so";
  auto image = plugin::Image::load(plugin::Kind::kAlgorithm, file, file);
  ASSERT_TRUE(image.ok()) << image.status().to_string();
  const auto declines = plugin::Plugin::open(*std::move(image), config_);
  ASSERT_TRUE(declines.ok()) << declines.status().to_string();
  // The tuner asks the plugin, which leaves its reason.
  struct Asks {
    const tutti_algorithm_ops* ops;
    void* instance;
  };
  auto with = choices(kRanks, {plugin(ring_)});
  const program::AlgorithmPlugin declining{"declines", (*declines)->ops<tutti_algorithm_ops>(), (*declines)->self()};
  auto declined = choices(kRanks, {declining});
  Asks asks{declined.algorithms[0].ops, declined.algorithms[0].instance.get()};
  static constexpr tutti_tuner_ops kAsks = {sizeof(tutti_tuner_ops), 0, nullptr, nullptr,
                                            [](void* raw, const tutti_call*, tutti_candidate* const*, uint32_t) {
                                              const auto& of = *static_cast<Asks*>(raw);
                                              tutti_algorithm_cost cost{};
                                              return of.ops->cost(of.instance, TUTTI_ALL_REDUCE, 1, &cost);
                                            }};
  with.tuner = &kAsks;
  with.tuner_instance = {&asks, [](void*) {}};
  with.tuner_name = "asks";
  selector_ = std::make_unique<Selector>(config_, std::move(with));
  EXPECT_THAT(std::string(selector_->choose(kAllReduce).status().text()),
              testing::AllOf(HasSubstr("tuner 'asks' declines the call"), HasSubstr("nobody has measured it")));
  selector_.reset();
  static constexpr tutti_tuner_ops kSilent = {
      sizeof(tutti_tuner_ops), 0, nullptr, nullptr,
      [](void*, const tutti_call*, tutti_candidate* const*, uint32_t) { return int32_t{TUTTI_INTERNAL}; }};
  auto silent = choices(kRanks, {plugin(ring_)});
  silent.tuner = &kSilent;
  selector_ = std::make_unique<Selector>(config_, std::move(silent));
  EXPECT_THAT(std::string(selector_->choose(kAllReduce).status().text()), HasSubstr("it does not say why (PLG-14)"));
}

/// Of 16 floats in a line, two-shot cuts a block for four ranks into four chunks.
TEST_F(SelectorTest, tells_tuners_of_host_ranks_the_share_of_chunks_with_data) {
  static constexpr tutti_tuner_ops kNotes = {
      sizeof(tutti_tuner_ops), 0, nullptr, nullptr,
      [](void* raw, const tutti_call*, tutti_candidate* const* candidates, uint32_t count) {
        for (uint32_t i = 0; i < count; ++i) {
          const std::string variant(candidates[i]->variant.data, candidates[i]->variant.size);
          if (candidates[i]->predicted_us >= 0 && variant == "two-shot") {
            *static_cast<double*>(raw) = candidates[i]->filled_chunks;
          }
        }
        return int32_t{TUTTI_OK};
      }};
  const auto share = [&](uint64_t floats, bool on_gpu) {
    double noted = -1;
    auto with = choices(kRanks, {plugin(direct_)});
    with.on_gpu = on_gpu;
    with.tuner = &kNotes;
    with.tuner_instance = {&noted, [](void*) {}};
    selector_ = std::make_unique<Selector>(config_, std::move(with));
    EXPECT_TRUE(selector_->choose({.count = floats}).ok());
    selector_.reset();
    return noted;
  };
  EXPECT_EQ(share(0, false), 0.25);
  EXPECT_EQ(share(1, false), 0.25);
  EXPECT_EQ(share(16, false), 0.25);
  EXPECT_EQ(share(17, false), 0.5);
  EXPECT_EQ(share(49, false), 1);
  EXPECT_EQ(share(65, false), 0.75) << "a chunk has two of five lines";
  EXPECT_EQ(share(1 << 20, false), 1);
  EXPECT_EQ(share(1, true), 0) << "GPUs cut otherwise";
}

TEST_F(SelectorTest, says_why_an_algorithm_declines) {
  const std::string file = TUTTI_BINARY_DIR "/tests/zoo/tutti-algo-declines.so";
  auto image = plugin::Image::load(plugin::Kind::kAlgorithm, file, file);
  ASSERT_TRUE(image.ok()) << image.status().to_string();
  const auto declines = plugin::Plugin::open(*std::move(image), config_);
  ASSERT_TRUE(declines.ok()) << declines.status().to_string();
  const program::AlgorithmPlugin declining{"declines", (*declines)->ops<tutti_algorithm_ops>(), (*declines)->self()};
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
