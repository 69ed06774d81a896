// SPDX-License-Identifier: Apache-2.0
// A selector for the ranks of one machine, without a communicator.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "alpha_beta/model.h"
#include "tuner/selector.h"
#include "unit/job_file.h"
#include "unit/plan_support.h"

namespace tutti::test {

inline constexpr uint32_t kRanks = 4;
inline constexpr size_t kLarge = size_t{64} << 20;  // elements

inline int32_t predict(void* instance, const tutti_call* call, tutti_candidate* const* candidates, uint32_t count) {
  for (uint32_t i = 0; i < count; ++i) static_cast<alpha_beta::Model*>(instance)->predict(*call, *candidates[i]);
  return TUTTI_OK;
}

inline tuner::Protocol protocol(const char* name, uint32_t needs_registered, double latency_us, double efficiency) {
  tuner::Protocol protocol;
  protocol.name = name;
  protocol.properties.links = 1u << TUTTI_LINK_P2P;
  protocol.properties.max_fan = 64;
  protocol.properties.needs_registered = needs_registered;
  protocol.properties.large_launches = needs_registered == 0 ? 1 : 0;
  protocol.properties.latency_us[TUTTI_LINK_P2P] = latency_us;
  protocol.properties.efficiency[TUTTI_LINK_P2P] = efficiency;
  protocol.properties.channel_gbs[TUTTI_LINK_P2P] = needs_registered != 0 ? 1000 : 10;
  return protocol;
}

class SelectorTest : public testing::Test {
 protected:
  SelectorTest() { make(1u << TUTTI_LINK_P2P); }

  static program::AlgorithmPlugin plugin(const Algorithm& algorithm) {
    return {algorithm.name(), &algorithm.ops(), algorithm.self()};
  }

  /// Makes a selector over `links`, with the networks of networks_.
  void make(uint32_t links) {
    tuner::Choices choices = this->choices(kRanks, {plugin(ring_), plugin(direct_)});
    choices.links = links;
    for (const std::string& name : networks_) choices.networks.push_back({name, 10, 5});
    for (tuner::Protocol& each : choices.protocols) each.properties.links |= links;
    selector_ = std::make_unique<tuner::Selector>(config_, std::move(choices));
  }

  /// The choices of GPUs of one machine.
  tuner::Choices choices(uint32_t ranks, const std::vector<program::AlgorithmPlugin>& plugins) {
    const NodeOfRank nodes = split(ranks, 1);
    tutti_topology topology = topology_of(nodes);
    topology.min_channels = topology.max_channels = 16;
    tuner::Choices choices;
    for (const program::AlgorithmPlugin& plugin : plugins) {
      auto connected = program::search_and_connect(plugin, topology);
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
  void follow(const std::string& job) { config_ = load_job(job); }

  std::string verdicts(const tuner::Question& question) const {
    const auto text = selector_->explain(question);
    EXPECT_TRUE(text.ok()) << text.status().to_string();
    return text.ok() ? *text : "";
  }
  std::string verdict(const tuner::Question& question, const std::string& candidate) const {
    const std::string text = verdicts(question);
    const size_t line = text.find("  " + candidate + " ");
    EXPECT_NE(line, std::string::npos) << text;
    return line == std::string::npos ? "" : text.substr(line, text.find('\n', line) - line);
  }

  static constexpr tutti_tuner_ops kModel = {sizeof(tutti_tuner_ops), 0, nullptr, nullptr, predict};
  const NodeOfRank nodes_ = split(kRanks, 1);
  Algorithm ring_{"ring"};
  Algorithm direct_{"direct"};
  alpha_beta::Model model_{alpha_beta::Constants{}, topology_of(nodes_)};
  config::Config config_ = *config::Config::load({});
  std::vector<std::string> networks_ = {"socket"};
  std::unique_ptr<tuner::Selector> selector_;
};

}  // namespace tutti::test
