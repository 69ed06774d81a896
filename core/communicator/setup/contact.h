// SPDX-License-Identifier: Apache-2.0
// What ranks tell each other once their memory and listeners exist.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "memory/arena.h"
#include "transport/net.h"

namespace tutti::communicator {

/// Plain data; all ranks run the same version (agreed before).
struct Contact {
  uint32_t barriers = 0;  ///< whether its sleepers make barriers
  int32_t numa = -1;      ///< NUMA node it runs on
  memory::ArenaAddress arena;
  uint64_t token_address = 0;
};

/// A contact, followed by the doors of its network.
std::vector<std::byte> encode(const Contact& contact, const transport::Net* net);
std::vector<transport::Net::Door> decode_doors(std::span<const std::byte> bytes);

}  // namespace tutti::communicator
