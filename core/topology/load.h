// SPDX-License-Identifier: Apache-2.0
// The load of a machine's channels on its links.
#pragma once

#include <span>
#include <vector>

#include "topology/graph.h"
#include "topology/system.h"

namespace tutti::topology {

/// GB/s on every link of the system when all channels run at their full speed, by link, computed from the channels'
/// orders and ports. kInvalidArgument if the graph names a rank or port that the system lacks.
Result<std::vector<double>> link_loads(const System& system, const NodeGraph& graph);

/// The GB/s per direction that every rank reaches at least: to a rank of the machine by the widest path, and to its
/// share of the machine's network ports. 0 if there is no rank or port to reach.
double widest_path_gbs(const System& system);
/// The same for network ports, of which a rank uses at most `channels` at a time.
double network_share_gbs(const System& system, uint32_t channels);
/// GB/s of the own memory of the slowest rank's GPU, reads and writes together; 0: a rank has no GPU.
double memory_gbs(const System& system);
/// The lowest latency that a network port gives; 0: no port gives one.
double network_latency_us(const System& system);

}  // namespace tutti::topology
