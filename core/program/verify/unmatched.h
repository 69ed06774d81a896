// SPDX-License-Identifier: Apache-2.0
// Messages that one end of a connection counts and the other end does not.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "program/connections.h"
#include "program/plan.h"
#include "program/verify/verify.h"

namespace tutti::program {

/// Makes texts and places name the steps by these numbers, by rank and step. Without numbers, steps have their own.
using StepNumbers = std::span<const std::vector<uint32_t>>;

/// A counter-example for each connection whose sender sends more messages in a loop than its receiver receives, or
/// fewer. Its place is the step of the first message that lacks the other end. `connections` are those of `plans`. The
/// plans have no repeats.
std::vector<CounterExample> unmatched(std::span<const Plan> plans, const Connections& connections, StepNumbers numbers);

}  // namespace tutti::program
