// SPDX-License-Identifier: Apache-2.0
// What `tutti search` prints.
#pragma once

#include <string>

#include "communicator/dry.h"

namespace tutti::tools {

void print_cluster(const std::string& file, const communicator::DryCommunicator& cluster);
/// Channels of one algorithm, and what they put on the links of a machine.
Status print_channels(const communicator::DryCommunicator& cluster, size_t algorithm, bool all);
/// All-reduce by size: what would run it, and how long that is predicted to take.
Status print_predictions(const communicator::DryCommunicator& cluster);
/// What a communicator of these ranks would refuse, leave out, or run without a proof. Nothing where there is no limit.
void print_limits(const communicator::DryCommunicator& cluster);

}  // namespace tutti::tools
