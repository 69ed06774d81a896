// SPDX-License-Identifier: Apache-2.0
// The output of dry runs: `tutti search` and `tutti simulate`.
#pragma once

#include <string>

#include "communicator/dry.h"

namespace tutti::tools {

void print_cluster(const std::string& file, const communicator::DryCommunicator& cluster);
/// Channels of one algorithm. If the algorithm has a search of its own: their orders, and their load on the links of a
/// machine.
Status print_channels(const communicator::DryCommunicator& cluster, size_t algorithm, bool all);
/// The call of `bytes` bytes, in the sizes of `tutti bench` and `tutti simulate`, with float32.
tuner::Question question_of(const communicator::DryCommunicator& cluster, Collective collective, uint64_t bytes);
/// The collective by size: the choice, and its predicted time.
Status print_predictions(const communicator::DryCommunicator& cluster, Collective collective);
/// "direct/two-shot"; "messages" for send_recv.
std::string name_of(const communicator::DryCommunicator& cluster, const tuner::Decision& decision);
/// The limits that a job of these ranks meets (DryCommunicator::limits). Prints nothing if there is no limit.
void print_limits(const communicator::DryCommunicator& cluster, Collective collective);
/// "12.3 µs", "4.50 ms".
std::string duration(double microseconds);
/// "64 KiB"
std::string bytes_text(uint64_t bytes);

}  // namespace tutti::tools
