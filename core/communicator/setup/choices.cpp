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

Status create_tuner(const plugin::Registry& registry, const tutti_topology& topology, tuner::Choices& choices) {
  const plugin::Plugin& plugin = *registry.of(plugin::Kind::kTuner).front();
  choices.tuner = plugin.ops<tutti_tuner_ops>();
  choices.tuner_name = plugin.name();
  void* instance = nullptr;
  if (const int32_t code = choices.tuner->create(plugin.self(), &topology, &instance); code != TUTTI_OK) {
    return {static_cast<Code>(code), fmt::format("tuner '{}' cannot serve: {}", plugin.name(), plugin::take_reason())};
  }
  choices.tuner_instance = {instance, choices.tuner->destroy};
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
