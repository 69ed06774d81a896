// SPDX-License-Identifier: Apache-2.0
// The alternatives of a communicator's selector, taken from the loaded plugins.
#pragma once

#include "plugin/registry.h"
#include "tuner/selector.h"

namespace tutti::communicator {

/// The protocols with their properties.
Result<std::vector<tuner::Protocol>> protocols_of(const plugin::Registry& registry);

/// Prepares the tuner for a communicator, with the figures of each network.
Status create_tuner(const plugin::Registry& registry, const tutti_topology& topology, tuner::Choices& choices);

/// The algorithm plugins, in the order of the configuration.
std::vector<program::AlgorithmPlugin> algorithms_of(const plugin::Registry& registry);

}  // namespace tutti::communicator
