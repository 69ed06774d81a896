// SPDX-License-Identifier: Apache-2.0
// Plugins that decline or throw: the selector excludes the candidate, or the call fails, with the plugin's own text.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backend/plans.h"
#include "communicator/setup/layouts.h"
#include "plugin/loader.h"
#include "program/channels.h"
#include "tuner/selector.h"
#include "unit/plan_support.h"

namespace tutti::test {
namespace {

using plugin::Kind;
using testing::HasSubstr;
using tuner::Question;
using tuner::Selector;

constexpr uint32_t kRanks = 4;
const Question kAllReduce = {Collective::kAllReduce, DataType::kFloat32, ReduceOp::kSum, 1 << 20, false};

/// Predicts the same time for all candidates.
int32_t predict_equal(void* /*instance*/, const tutti_call* /*call*/, tutti_candidate* const* candidates,
                      uint32_t count) {
  for (uint32_t i = 0; i < count; ++i) {
    if (candidates[i]->predicted_us >= 0) candidates[i]->predicted_us = 1;
    candidates[i]->channels = 1;
  }
  return TUTTI_OK;
}
constexpr tutti_tuner_ops kEqual = {sizeof(tutti_tuner_ops), 0, nullptr, nullptr, predict_equal};

class DeclinesTest : public testing::Test {
 protected:
  std::shared_ptr<plugin::Plugin> open(Kind kind, const std::string& name) {
    const std::string file = TUTTI_BINARY_DIR "/tests/zoo/" + plugin::file_name(kind, name);
    auto image = plugin::Image::load(kind, file, file);
    EXPECT_TRUE(image.ok()) << image.status().to_string();
    auto opened = plugin::Plugin::open(*std::move(image), config_);
    EXPECT_TRUE(opened.ok()) << opened.status().to_string();
    plugins_.push_back(*opened);
    return *opened;
  }

  static tuner::Protocol protocol_of(const plugin::Plugin& plugin) {
    tuner::Protocol protocol{plugin.name(), plugin.ops<tutti_protocol_ops>(), plugin.self(), {}, {}};
    EXPECT_EQ(protocol.ops->properties(protocol.plugin, &protocol.properties), TUTTI_OK);
    return protocol;
  }

  tuner::Choices choices() {
    tuner::Choices made;
    made.protocols.push_back({"always", nullptr, nullptr, {}, {}});
    made.protocols[0].properties.links = ~0u;
    made.protocols[0].properties.devices = TUTTI_DEVICE_HOST;
    made.protocols[0].properties.max_fan = 64;
    made.tuner = &kEqual;
    made.links = 1u << TUTTI_LINK_SHM;
    made.ranks = kRanks;
    return made;
  }
  void add(tuner::Choices& to, const program::AlgorithmPlugin& algorithm) {
    const NodeOfRank nodes = split(kRanks, 1);
    auto connected = program::search_and_connect(algorithm, topology_of(nodes));
    ASSERT_TRUE(connected.ok()) << connected.status().to_string();
    to.algorithms.emplace_back(algorithm, *std::move(connected));
  }
  void add_ring(tuner::Choices& to) { add(to, {ring_.name(), &ring_.ops(), ring_.self()}); }
  static std::string explain(const Selector& selector, const Question& question = kAllReduce) {
    const auto text = selector.explain(question);
    return text.ok() ? *text : text.status().to_string();
  }

  config::Config config_ = *config::Config::load({});
  std::vector<std::shared_ptr<plugin::Plugin>> plugins_;
  Algorithm ring_{"ring"};
};

TEST_F(DeclinesTest, a_layout_excludes_the_protocol_over_this_link) {
  std::vector<tuner::Protocol> protocols = {protocol_of(*open(Kind::kProtocol, "proto_declines"))};
  const auto keys = communicator::lay_out(protocols, {TUTTI_LINK_SHM, 8, 1024}, 1);
  ASSERT_TRUE(keys.ok()) << keys.status().to_string();
  EXPECT_EQ(keys->protocols.size(), 1u);
  EXPECT_EQ(protocols[0].properties.links >> TUTTI_LINK_SHM & 1, 0u);
  EXPECT_EQ(protocols[0].declined[TUTTI_LINK_SHM], "slots must be round");
  tuner::Choices with = choices();
  add_ring(with);
  with.protocols.push_back(protocols[0]);
  const Selector selector(config_, std::move(with));
  EXPECT_THAT(explain(selector), HasSubstr("ring × proto_declines        excluded: protocol does not work over shared "
                                           "memory: slots must be round"));
  const auto decision = selector.choose(kAllReduce);
  ASSERT_TRUE(decision.ok()) << decision.status().to_string();
  EXPECT_EQ(decision->protocol, 0u);
}

TEST_F(DeclinesTest, a_layout_between_gpus_excludes_the_protocol) {
  std::vector<tuner::Protocol> protocols = {protocol_of(*open(Kind::kProtocol, "proto_declines"))};
  ASSERT_TRUE(communicator::ask_for_gpus(protocols, {TUTTI_LINK_P2P, 0, 0}).ok());
  tuner::Choices with = choices();
  add_ring(with);
  with.device = TUTTI_DEVICE_CUDA;
  with.protocols = protocols;
  const Selector selector(config_, std::move(with));
  const Status none = selector.choose(kAllReduce).status();
  EXPECT_EQ(none.code(), Code::kUnsupported);
  EXPECT_THAT(none.text(), HasSubstr("excluded: protocol does not run on GPUs: the GPUs are too cold"));
}

TEST_F(DeclinesTest, an_exception_in_a_layout_ends_the_setup_with_its_text) {
  std::vector<tuner::Protocol> protocols = {protocol_of(*open(Kind::kProtocol, "proto_declines"))};
  const Status failure = communicator::lay_out(protocols, {TUTTI_LINK_NETWORK, 8, 1024}, 1).status();
  EXPECT_EQ(failure.code(), Code::kInternal);
  EXPECT_THAT(failure.text(), HasSubstr("protocol 'proto_declines' cannot lay out a connection: unexpected exception: "
                                        "the ruler is broken"));
}

TEST_F(DeclinesTest, exceptions_in_plan_cost_and_connect_keep_their_texts) {
  const auto loaded = open(Kind::kAlgorithm, "algo_throws");
  const program::AlgorithmPlugin throwing{"algo_throws", loaded->ops<tutti_algorithm_ops>(), loaded->self()};
  tuner::Choices with = choices();
  add(with, throwing);
  const Selector selector(config_, std::move(with));
  const auto decision = selector.choose(kAllReduce);
  ASSERT_TRUE(decision.ok()) << decision.status().to_string();
  const backend::Plans plans({0, kRanks, true}, selector.choices());
  EXPECT_THAT(plans.request(*decision, Collective::kAllReduce, 0, 0, 0).status().text(),
              HasSubstr("plan of algorithm 'algo_throws' for all_reduce: unexpected exception: the plan has no legs"));
  const Question all_gather = {Collective::kAllGather, DataType::kFloat32, ReduceOp::kSum, 8, false};
  const Status failure = selector.choose(all_gather).status();
  EXPECT_EQ(failure.code(), Code::kInternal);
  EXPECT_THAT(failure.text(), HasSubstr("algorithm 'algo_throws/cost × always' fails to give the cost of all_gather: "
                                        "unexpected exception: the price is unknown"));
  const NodeOfRank alone = split(1, 1);
  EXPECT_THAT(program::search_and_connect(throwing, topology_of(alone)).status().text(),
              HasSubstr("algorithm 'algo_throws' cannot connect the ranks: unexpected exception: one rank is no ring"));
}

TEST_F(DeclinesTest, a_tuner_excludes_all_candidates_of_a_call) {
  const auto loaded = open(Kind::kTuner, "tuner_declines");
  tuner::Choices with = choices();
  add_ring(with);
  with.tuner = loaded->ops<tutti_tuner_ops>();
  with.tuner_name = loaded->name();
  void* instance = nullptr;
  const NodeOfRank nodes = split(kRanks, 1);
  const tutti_topology topology = topology_of(nodes);
  ASSERT_EQ(with.tuner->create(loaded->self(), &topology, &instance), TUTTI_OK);
  with.tuner_instance = {instance, with.tuner->destroy};
  const Selector selector(config_, std::move(with));
  EXPECT_THAT(explain(selector),
              HasSubstr("excluded: tuner 'tuner_declines' declines the call: the tables end at 1 KiB"));
  EXPECT_EQ(selector.choose(kAllReduce).status().code(), Code::kUnsupported);
  Question small = kAllReduce;
  small.count = 8;
  const Status failure = selector.choose(small).status();
  EXPECT_EQ(failure.code(), Code::kInternal);
  EXPECT_THAT(failure.text(), HasSubstr("tuner 'tuner_declines' failed on all_reduce of 32 bytes: unexpected "
                                        "exception: the scales are too coarse"));
}

TEST_F(DeclinesTest, a_text_belongs_to_the_plugin_that_gave_it) {
  const auto declining = open(Kind::kProtocol, "proto_declines");
  const auto other = open(Kind::kAlgorithm, "declines");
  tutti_slot_layout layout{};
  ASSERT_EQ(declining->ops<tutti_protocol_ops>()->layout(declining->self(), TUTTI_LINK_SHM, &layout),
            TUTTI_UNSUPPORTED);
  EXPECT_EQ(plugin::take_failure_text_of(other->self()), "");
  EXPECT_EQ(plugin::take_failure_text_of(declining->self()), "slots must be round");
  EXPECT_EQ(plugin::take_reason(), "it does not say why (PLG-14)");
}

}  // namespace
}  // namespace tutti::test
