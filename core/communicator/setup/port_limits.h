// SPDX-License-Identifier: Apache-2.0
// Ports that take a limited number of channels (maxconn of a topology). A job and a dry run obey the same limits.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "program/channels.h"
#include "topology/system.h"

namespace tutti::communicator {

/// A port with a limit; plain data.
struct LimitedPort {
  uint32_t device = 0;          ///< of the network plugin
  uint32_t channels = 0;        ///< most channels that enter the machine by it, and most that leave
  uint32_t is_default = 0;      ///< 1: channels that name no port use it
  std::array<char, 36> name{};  ///< ends with a zero
};

/// By machine.
using PortLimits = std::vector<std::vector<LimitedPort>>;

/// The ports of a machine that have a limit. `default_device`: the port of channels that name none.
std::vector<LimitedPort> limited_ports(const topology::System& system, uint32_t default_device);
/// The port with the largest bandwidth, of several the first; TUTTI_NO_NET if there is none.
uint32_t fastest_port(const topology::System& system);

/// kInternal if the bytes are not a list of ports.
Result<std::vector<LimitedPort>> decode_ports(std::span<const std::byte> bytes);

/// The most channels that name no port, over all machines; UINT32_MAX: no limit.
uint32_t default_port_channels(const PortLimits& limits);

struct Connected {
  program::Instance instance;
  std::string reduced;  ///< "2 channels instead of 4: ..."; empty: the limits change nothing
};

/// Connects the machines with as many channels as all ports take. The ports of a channel are those that the algorithm
/// names between a rank and its counterpart on the next machine. Errors: those of program::connect and of the
/// algorithm; kInternal if the algorithm makes more channels than topology.max_channels.
Result<Connected> connect_within(const program::AlgorithmPlugin& algorithm, const tutti_topology& topology,
                                 std::span<const topology::NodeGraph> graphs, const PortLimits& limits);

}  // namespace tutti::communicator
