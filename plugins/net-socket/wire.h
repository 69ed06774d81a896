// SPDX-License-Identifier: Apache-2.0
// What goes over the wire. Little endian, like every machine this runs on.
#pragma once

#include <array>
#include <cstdint>

namespace tutti::net_socket {

using Secret = std::array<uint8_t, 16>;

/// What listen() hands out as a handle: where to connect, and the secret that proves the handle is known.
struct Address {
  uint16_t family = 0;  ///< AF_INET or AF_INET6
  uint16_t port = 0;
  uint32_t streams = 0;  ///< TCP connections that the listener expects per connection
  std::array<uint8_t, 16> ip{};
  Secret secret{};
};
static_assert(sizeof(Address) <= 128);

inline constexpr uint64_t kMagic = 0x31306b636f735454;  // "TTsock01"

/// First bytes of every stream.
struct Hello {
  uint64_t magic = kMagic;
  Secret secret{};
  std::array<uint8_t, 16> connection{};  ///< random; the same on all streams of one connection
  uint32_t stream = 0;
  uint32_t streams = 0;
};
static_assert(sizeof(Hello) == 48);

/// Before every message, on stream 0. A payload below the stripe limit follows on stream 0; a longer one is cut into
/// one part per stream.
struct Header {
  uint64_t bytes = 0;
  uint32_t tag = 0;
  uint32_t striped = 0;
};
static_assert(sizeof(Header) == 16);

}  // namespace tutti::net_socket
