// SPDX-License-Identifier: Apache-2.0
// What ranks tell each other once their memory and listeners exist.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "memory/arena.h"
#include "transport/net.h"
#include "tutti/unique_id.h"

namespace tutti::communicator {

/// Plain data; all ranks run the same version (agreed before).
struct Contact {
  uint32_t barriers = 0;  ///< whether its sleepers make barriers
  int32_t numa = -1;      ///< NUMA node it runs on
  memory::ArenaAddress arena;
  uint64_t token_address = 0;
  UniqueId reunion;  ///< its place to meet again
};

/// A rank's end of a network.
struct NetworkContact {
  double gbs = 0;         ///< bandwidth of its fastest port; 0: unknown
  double latency_us = 0;  ///< 0: unknown
  uint64_t ports = 0;     ///< ports as fast as the fastest
  std::vector<transport::Net::Endpoint> endpoints;
};

/// Ports of the rank that has the most, in the first network. By rank, then by network.
uint64_t most_ports(const std::vector<std::vector<NetworkContact>>& ends);

/// GB/s of a network that each rank has at least, with so many channels, while all ranks of its host send: an equal
/// share of the host's ports. `nodes`: the host of each rank. `port_gbs`: of a port whose speed is unknown.
double share_gbs(const std::vector<std::vector<NetworkContact>>& ends, size_t network, std::span<const uint32_t> nodes,
                 uint32_t channels, double port_gbs);

/// A contact, followed by the ends of its networks.
std::vector<std::byte> encode(const Contact& contact, const std::vector<std::unique_ptr<transport::Net>>& nets);
struct Contacted {
  Contact contact;
  std::vector<NetworkContact> networks;
};
/// kInternal if the bytes are not a contact.
Result<Contacted> decode_contact(std::span<const std::byte> bytes);

}  // namespace tutti::communicator
