// SPDX-License-Identifier: Apache-2.0
// A plan file as an algorithm: what an algorithm plugin does with its code, from the data of the file.
#pragma once

#include <string>

#include "program/channels.h"
#include "program/file/file.h"

namespace tutti::program {

/// An algorithm with one variant, which has one collective and any number of channels up to `channels`. The plugin's
/// `self` belongs to the instance.
struct FileAlgorithm {
  AlgorithmPlugin plugin;
  Instance instance;
};

/// Every channel runs the file's plans. A rooted collective may have any root: the plans of the file's root run with
/// all ranks moved by the distance between the two roots. `name` is that of the algorithm. On a communicator with a
/// different number of ranks it has no plans, and no cost.
FileAlgorithm algorithm_of(PlanFile file, std::string name, uint32_t channels, const tutti_topology& topology);

/// The plans of one rank for the root that is `distance` ranks behind the root of `plan`, modulo the number of ranks.
/// Fails (kUnsupported) if the steps name too many different peers.
Result<Plan> moved(const Plan& plan, uint32_t distance);

}  // namespace tutti::program
