// SPDX-License-Identifier: Apache-2.0
// The figures of the α–β model: of the links between ranks, and of GPU memory. They come from the system graph of each
// machine and from the table of hardware figures. A job and a dry run take them from here, so that a dry run predicts
// the job. Units: µs, and GB/s (1e9 bytes) in one direction.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "config/config.h"
#include "topology/hardware.h"
#include "topology/system.h"

namespace tutti::communicator {

/// Reads the table of `hardware.file`. kConfig or kNotFound with the place in the file or of the setting. If other
/// users may change the file, it is refused or warned of (plugins.trust). A network or protocol of the file must be in
/// the built-in table, in the configuration or on the search path of plugins.
Result<topology::Hardware> hardware_of(const config::Config& config);

/// The latency of a network in µs: by a file of hardware figures, else `claimed_us` (of a plugin or a topology file, 0:
/// unknown), else by the built-in table.
double latency_of(const topology::NetworkFigures& network, double claimed_us);

/// The links between the ranks of a communicator.
struct Links {
  std::optional<uint32_t> inside;  ///< TUTTI_LINK_* between ranks of one machine; none: they use the network
  std::string network;             ///< the network plugin between machines; empty: there is no network
  bool has_network() const { return !network.empty(); }
};

/// Plain data; ranks exchange the bytes.
struct Figures {
  double inside_gbs = 0;
  double inside_latency_us = 0;
  double inside_gap_us = 0;
  double network_gbs = 0;  ///< a rank's share of the ports of its machine
  double network_latency_us = 0;
  double network_gap_us = 0;
  double memory_gbs = 0;             ///< own memory of a GPU; 0: the ranks compute on the host
  double inside_processor_gbs = 0;   ///< that one processor sends or receives; 0: unknown
  double network_processor_gbs = 0;  ///< the same
  double rank_processors = 0;        ///< processors for each rank, at most 1; 0: unknown, or no limit
  double switch_us = 0;              ///< from a rank that waits to the next of its processor; 0: none, or unknown
  double network_signal_us = 0;      ///< further time of a hop between GPUs if the protocol signals messages
  uint32_t sm = 0;                   ///< compute capability × 10 of the GPUs; 0: ranks on the host
};

/// The figures of one machine, whose slowest rank counts. `device`: TUTTI_DEVICE_*; `channels`: of a collective, at
/// most; `part`: of the machine's processors, which pretended hosts share.
Figures figures_of(const topology::System& machine, const topology::Hardware& hardware, uint32_t device,
                   const Links& links, uint32_t channels, double part = 1);
/// The worst figure of all machines, for each figure.
Figures slowest(std::span<const Figures> machines);

}  // namespace tutti::communicator
