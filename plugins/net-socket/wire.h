// SPDX-License-Identifier: Apache-2.0
// What goes over the wire. Little endian, like every machine this runs on.
//
// Each stream begins with a handshake of tutti/sdk/handshake.h: the listener sends a Challenge, the connecting side a
// Hello. When the Hellos of all streams of a connection are there, the listener sends its proof on each of them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "tutti/sdk/handshake.h"

namespace tutti::net_socket {

using Secret = std::array<std::byte, 16>;

/// The handle of listen(): the address to connect to, and the secret that both sides prove to know.
struct Address {
  uint16_t family = 0;  ///< AF_INET or AF_INET6
  uint16_t port = 0;
  uint32_t streams = 0;  ///< TCP connections that the listener expects per connection
  std::array<uint8_t, 16> ip{};
  Secret secret{};
};
static_assert(sizeof(Address) <= 128);

inline constexpr uint64_t kMagic = 0x32306b636f735454;  // "TTsock02"

/// First bytes of the listener on every stream.
struct Challenge {
  uint64_t magic = kMagic;
  sdk::Nonce nonce{};
};
static_assert(sizeof(Challenge) == 24);

/// The answer.
struct Hello {
  uint64_t magic = kMagic;
  std::array<std::byte, 16> connection{};  ///< random; the same on all streams of one connection
  uint32_t stream = 0;
  uint32_t streams = 0;
  sdk::Nonce nonce{};
  sdk::Proof proof{};

  /// The message that both proofs cover.
  std::span<const std::byte> proved() const { return std::as_bytes(std::span(this, 1)).first(32); }
};
static_assert(sizeof(Hello) == 80 && offsetof(Hello, nonce) == 32);

/// Before every message, on stream 0. A payload below the stripe limit follows on stream 0; a longer one is cut into
/// one part per stream.
struct Header {
  uint64_t bytes = 0;
  uint32_t tag = 0;
  uint32_t striped = 0;
};
static_assert(sizeof(Header) == 16);

}  // namespace tutti::net_socket
