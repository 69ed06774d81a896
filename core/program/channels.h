// SPDX-License-Identifier: Apache-2.0
// The first two phases of an algorithm plugin: search in one machine, connect over all.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "topology/graph.h"
#include "tutti/plugin/algorithm.h"

namespace tutti::program {

/// An opened algorithm plugin. Borrowed.
struct AlgorithmPlugin {
  std::string name;
  const tutti_algorithm_ops* ops = nullptr;
  void* self = nullptr;
};

/// An instance, disconnected when it goes.
using Instance = std::unique_ptr<void, void (*)(void*)>;

/// The channels of the machine that holds `rank`, as the plugin finds them and in order: every rank of it once.
Result<topology::NodeGraph> search(const AlgorithmPlugin& algorithm, const tutti_topology& topology, uint32_t rank);

/// Joins the machines' channels, one graph per machine in order.
Result<Instance> connect(const AlgorithmPlugin& algorithm, const tutti_topology& topology,
                         std::span<const topology::NodeGraph> graphs);

/// Both, in one process: searches once per machine with the same topology, as where no system graph is known.
Result<Instance> search_and_connect(const AlgorithmPlugin& algorithm, const tutti_topology& topology);

}  // namespace tutti::program
