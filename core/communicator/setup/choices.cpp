// SPDX-License-Identifier: Apache-2.0
#include "communicator/setup/choices.h"

#include <fmt/format.h>

namespace tutti::communicator {

Result<std::vector<tuner::Protocol>> protocols_of(const plugin::Registry& registry) {
  std::vector<tuner::Protocol> protocols;
  for (const auto& plugin : registry.of(plugin::Kind::kProtocol)) {
    tuner::Protocol protocol{plugin->name(), plugin->ops<tutti_protocol_ops>(), plugin->self(), {}};
    protocol.properties.struct_size = sizeof protocol.properties;
    if (const int32_t code = protocol.ops->properties(protocol.plugin, &protocol.properties); code != TUTTI_OK) {
      return Status(static_cast<Code>(code),
                    fmt::format("protocol '{}' gives no properties: {}", protocol.name, plugin::take_reason()));
    }
    protocols.push_back(std::move(protocol));
  }
  return protocols;
}

namespace {

Result<tuner::TunerInstance> instance_for(const plugin::Plugin& plugin, const tutti_topology& topology) {
  const auto* ops = plugin.ops<tutti_tuner_ops>();
  void* instance = nullptr;
  if (const int32_t code = ops->create(plugin.self(), &topology, &instance); code != TUTTI_OK) {
    return Status(static_cast<Code>(code),
                  fmt::format("tuner '{}' cannot serve: {}", plugin.name(), plugin::take_reason()));
  }
  return tuner::TunerInstance(instance, ops->destroy);
}

}  // namespace

Status create_tuner(const plugin::Registry& registry, const tutti_topology& topology, tuner::Choices& choices) {
  const plugin::Plugin& plugin = *registry.of(plugin::Kind::kTuner).front();
  choices.tuner = plugin.ops<tutti_tuner_ops>();
  choices.tuner_name = plugin.name();
  TUTTI_ASSIGN(choices.tuner_instance, instance_for(plugin, topology));
  tutti_topology own = topology;
  for (size_t i = 1; i < choices.networks.size(); ++i) {
    tuner::Network& network = choices.networks[i];
    own.bandwidth_gbs[TUTTI_LINK_NETWORK] = network.gbs;
    own.latency_us[TUTTI_LINK_NETWORK] = network.latency_us;
    TUTTI_ASSIGN(network.tuner_instance, instance_for(plugin, own));
  }
  return {};
}

std::vector<program::AlgorithmPlugin> algorithms_of(const plugin::Registry& registry) {
  std::vector<program::AlgorithmPlugin> algorithms;
  for (const auto& plugin : registry.of(plugin::Kind::kAlgorithm)) {
    algorithms.push_back({plugin->name(), plugin->ops<tutti_algorithm_ops>(), plugin->self()});
  }
  return algorithms;
}

}  // namespace tutti::communicator
