// SPDX-License-Identifier: Apache-2.0
// The choice of the network of a communicator.
#pragma once

#include <memory>
#include <vector>

#include "bootstrap/bootstrap.h"
#include "plugin/registry.h"
#include "transport/net.h"

namespace tutti::communicator {

/// Threads that poll for a rank's GPU: `wanted`, the value of net.polling_threads, or if 0 half of the rank's share of
/// the processors. `ranks_here`: ranks of this machine.
uint32_t polling_threads(int64_t wanted, int64_t ranks_here);

/// Opens the first network of the registry that works on all ranks. A network that the rules exclude for every call
/// comes last. Collective: the ranks have agreed on the networks and their order. The call sets the options that depend
/// on the plugin. The log at info names each network that is passed over, with the reason. The failure, the same on all
/// ranks, names the reason for every network.
Result<std::unique_ptr<transport::Net>> open_network(const plugin::Registry& registry,
                                                     const std::vector<config::Rule>& rules,
                                                     const transport::Net::Options& options,
                                                     bootstrap::Bootstrap& bootstrap, base::Time deadline);

}  // namespace tutti::communicator
