// SPDX-License-Identifier: Apache-2.0
// The limits of a communicator: channels, protocols, links and the back end's limits on plans. A job and a dry run take
// them from here, so that a dry run excludes what a job excludes.
#pragma once

#include <vector>

#include "communicator/setup/figures.h"
#include "config/config.h"
#include "plugin/registry.h"
#include "transport/connection.h"
#include "tuner/selector.h"

namespace tutti::communicator {

/// kConfig: `transport` does not join ranks on so many machines.
Status check_transport(const config::Config& config, uint32_t nodes);

/// kConfig: `check.data` is set, and this build cannot obey; or `net.direct` or `net.pxn` demands slots in memory of
/// GPUs, beside a setting that keeps the slots in memory of the host.
Status check_network_settings(const config::Config& config);

/// Whether the settings let messages pass through memory of a second GPU.
bool uses_second_gpus(const config::Config& config);

/// Channels of a collective at most: the setting, or the number for the device (TUTTI_DEVICE_*). `ports`: network ports
/// of the machine that has the most; 0: not known yet.
uint32_t max_channels(const config::Config& config, uint32_t device, bool uses_network, size_t ports);

/// The protocols of the plugins, and the layouts of their connections. A link over which a protocol does not work is
/// not in its properties; neither is the device CUDA if a protocol does not run there.
struct Protocols {
  std::vector<tuner::Protocol> list;
  transport::KeySpace shm;
  transport::KeySpace net;
};
/// Errors: a plugin's failure, kInternal for a layout that breaks the contract.
Result<Protocols> lay_out_protocols(const plugin::Registry& registry, const config::Config& config, uint32_t device,
                                    uint32_t channels);

/// States the limits, links and figures to algorithms and tuners (`topology`) and to the selector (`choices`). The
/// topology has its numbers of ranks and machines. The choices have the networks and protocols: the figures are those
/// of the first network, and `hardware` has those of protocols between GPUs.
void set_limits(uint32_t device, uint32_t channels, const Links& links, const topology::Hardware& hardware,
                const Figures& figures, tutti_topology& topology, tuner::Choices& choices);

}  // namespace tutti::communicator
