// SPDX-License-Identifier: Apache-2.0
// The ports of machines: their limits of channels (maxconn of a topology), which a job and a dry run obey, and their
// rails.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "communicator/setup/detours.h"
#include "communicator/setup/figures.h"
#include "program/channels.h"
#include "topology/system.h"

namespace tutti::communicator {

/// A port of a machine; plain data.
struct Port {
  uint32_t device = 0;          ///< a number of the network plugin
  uint32_t channels = 0;        ///< most channels that enter the machine by it, and most that leave; 0: no limit
  int32_t rail = -1;            ///< -1: unknown
  uint32_t is_default = 0;      ///< 1: channels that name no port use it
  std::array<char, 36> name{};  ///< ends with a zero
};

/// By machine.
using Ports = std::vector<std::vector<Port>>;

/// The ports of a machine. `defaults`: the devices that connections without a named port share.
std::vector<Port> ports_of(const topology::System& system, const std::vector<uint32_t>& defaults);
/// By position of the machine's ranks: the device of the rank's own port among `defaults`. A port gets at most an equal
/// share of the ranks, rounded up. A rank gets the closest port that has a share left. Of equally close ports, the port
/// with the fewest ranks is first, then the port of the lowest rail. If the rail of a port is unknown, the lowest
/// device number counts.
std::vector<uint32_t> own_ports(const topology::System& system, const std::vector<uint32_t>& defaults);
/// The devices of the ports with the largest bandwidth.
std::vector<uint32_t> fastest_ports(const topology::System& system);

/// The facts of a machine that all ranks of a job need.
struct MachineFacts {
  Figures figures;
  std::vector<Port> ports;
  std::vector<Detour> detours;
  std::vector<uint32_t> own_ports;  ///< own_ports()
};
std::vector<std::byte> encode(const MachineFacts& facts);
/// Adds the ports and the paths to them. `defaults`: as for ports_of(). `shares`: whether the ranks share these
/// devices.
void add_ports(MachineFacts& facts, const topology::System& system, const std::vector<uint32_t>& defaults, bool shares);
/// kInternal if the bytes are not the facts of a machine.
Result<MachineFacts> decode_facts(std::span<const std::byte> bytes);

/// The most channels that name no port, over all machines; UINT32_MAX: no limit.
uint32_t default_port_channels(const Ports& ports);

/// Orders the channels of each machine so that a channel over all machines stays on one rail where it can. The machine
/// with the fewest channels gives the rails of the channels. A machine keeps its order if the rail of one of its ports
/// is unknown. No order changes if a channel may leave a machine by a different port than it enters.
void align_rails(std::vector<topology::NodeGraph>& graphs, const Ports& ports);

/// By machine, the own ports of its ranks by position.
using OwnPorts = std::vector<std::vector<uint32_t>>;

/// Own ports by which ranks at equal positions reach each other, also if each rail is a network of its own. If all
/// machines have the same own ports, on the same rails or all on unknown rails, the own ports stay. Otherwise ranks get
/// ports on the rails of the first machine. No machine has own ports then if a rail is unknown or missing, or if the
/// numbers of ranks differ. If machines have one host name, they are containers, which share the ports of their host:
/// no machine has own ports. `own_ports` and `ports` have equal numbers of machines, at least one. `host_names`: by
/// rank.
OwnPorts agreed_own_ports(OwnPorts own_ports, const Ports& ports, const std::vector<std::string>& host_names);
/// "rail0, rail1": the names of a machine's own ports, by position.
std::string own_ports_text(const std::vector<uint32_t>& own, const std::vector<Port>& ports);
/// "host 'a' has 2 of its fastest network ports (rail0, rail1), and host 'b' has 1 (rail0)": the machines with the most
/// and the fewest default ports; empty if all machines have equal numbers. `host_names`: by rank; `nodes`: the machine
/// of each rank.
std::string uneven_ports_text(const Ports& ports, std::span<const uint32_t> nodes,
                              std::span<const std::string> host_names);
/// Rank 0 warns of uneven ports. The first rank of each machine logs its own ports.
void log_ports(const OwnPorts& own_ports, const Ports& ports, std::span<const uint32_t> nodes,
               std::span<const std::string> host_names, uint32_t rank);

struct Connected {
  program::Instance instance;
  std::string reduced;  ///< "2 channels instead of 4: ..."; empty: the limits change nothing
};

/// Connects the machines with as many channels as all ports take. The ports of a channel are those that the algorithm
/// names between a rank and its counterpart on the next machine. Errors: those of program::connect and of the
/// algorithm; kInternal if the algorithm makes more channels than topology.max_channels.
Result<Connected> connect_within(const program::AlgorithmPlugin& algorithm, const tutti_topology& topology,
                                 std::span<const topology::NodeGraph> graphs, const Ports& ports);

}  // namespace tutti::communicator
