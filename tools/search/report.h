// SPDX-License-Identifier: Apache-2.0
// The output of dry runs: `tutti search` and `tutti simulate`.
#pragma once

#include <string>

#include "communicator/dry.h"

namespace tutti::tools {

void print_cluster(const std::string& file, const communicator::DryCommunicator& cluster);
/// Channels of one algorithm, and their load on the links of a machine.
Status print_channels(const communicator::DryCommunicator& cluster, size_t algorithm, bool all);
/// All-reduce by size: the choice, and its predicted time.
Status print_predictions(const communicator::DryCommunicator& cluster);
/// The limits that a job of these ranks meets (DryCommunicator::limits). Prints nothing if there is no limit.
void print_limits(const communicator::DryCommunicator& cluster, Collective collective);
/// "12.3 µs", "4.50 ms".
std::string duration(double microseconds);
/// "64 KiB"
std::string bytes_text(uint64_t bytes);

}  // namespace tutti::tools
