// SPDX-License-Identifier: Apache-2.0
// A rank that leaves in good order, as the ranks that stay see it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bootstrap/wire.h"

namespace tutti::bootstrap {

/// The last words of a rank: all calls that it has made on its communicator. It makes no further call.
struct Ending {
  /// Messages that were exchanged with one peer.
  struct Traffic {
    int32_t peer = -1;
    uint32_t reserved = 0;
    uint64_t sent = 0;      ///< to the peer
    uint64_t received = 0;  ///< from the peer
  };
  uint64_t collectives = 0;
  std::string did;               ///< "has done call 17, all_reduce of 8 × float32, sum"
  std::vector<Traffic> traffic;  ///< by increasing peer; peers without a message are left out
  Bytes calls = {};              ///< the latest calls, as the communicator encodes them
};

/// The same, as the hub passes it on to one of the other ranks.
struct Departure {
  int rank = -1;
  uint64_t collectives = 0;
  uint64_t sent = 0;      ///< messages to the rank that is told
  uint64_t received = 0;  ///< messages from the rank that is told
  std::string did;
  Bytes calls = {};
};

/// The part of an ending that `peer` needs.
Departure departure_for(const Ending& ending, int rank, int peer);

Bytes encode(const Ending& ending);
/// kInvalidArgument for bytes that encode() does not make.
Result<Ending> decode_ending(std::span<const std::byte> bytes);

/// Without the rank, which the header of a frame carries.
Bytes encode(const Departure& departure);
Result<Departure> decode_departure(int rank, std::span<const std::byte> bytes);

}  // namespace tutti::bootstrap
