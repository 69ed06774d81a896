// SPDX-License-Identifier: Apache-2.0
// What goes over the wire. Little endian, like every machine this runs on.
//
// Each stream begins with a handshake of tutti/sdk/handshake.h: the listener sends a Challenge, the connecting side a
// Hello. When the Hellos of all streams of a connection are there, the listener sends its proof on each of them. With
// TLS the handshake of TLS 1.3 follows, in which the connecting side is the client; all that comes later is in its
// records.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "tutti/sdk/handshake.h"

namespace tutti::net_socket {

/// Names a context, or a connection; random.
using Id = sdk::Nonce;
using Secret = std::array<std::byte, 16>;

inline constexpr uint32_t kMaxRails = 4;

/// The place at which a listener takes the stream of a rail other than the first.
struct RailAddress {
  uint16_t family = 0;
  uint16_t port = 0;
  std::array<uint8_t, 16> ip{};
};

/// The handle of listen(): the address to connect to, and the secret that both sides prove to know.
struct Address {
  uint16_t family = 0;  ///< AF_INET or AF_INET6
  uint16_t port = 0;
  uint32_t streams = 0;  ///< TCP connections that the listener expects per connection
  std::array<uint8_t, 16> ip{};
  Secret secret{};
  uint16_t tls = 0;    ///< 1: TLS follows the proofs
  uint16_t rails = 1;  ///< the setting; above 1: each stream is a rail, with an address of its own
  Id context{};        ///< the listener's
  std::array<RailAddress, kMaxRails - 1> further{};  ///< addresses of the rails from the second on
};
static_assert(sizeof(Address) <= 128);

inline constexpr uint64_t kMagic = 0x35306b636f735454;  // "TTsock05"

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
  Id context{};         ///< the sender's
  uint32_t number = 0;  ///< counts the connections from this context to this address (pairs.h)
  uint32_t used = 0;    ///< with rails: a bit for each stream that the connection has; else 0
  sdk::Nonce nonce{};
  sdk::Proof proof{};

  /// The message that both proofs cover.
  std::span<const std::byte> proved() const { return std::as_bytes(std::span(this, 1)).first(56); }
};
static_assert(sizeof(Hello) == 104 && offsetof(Hello, nonce) == 56);

/// The pre-shared key of one stream with TLS, and its name in TLS's handshake.
struct StreamKey {
  std::array<std::byte, 20> identity{};  ///< the connection and the stream of the Hello
  sdk::Proof key{};
};

/// Both sides derive the key from the listener's secret and the nonces of the stream, by HMAC-SHA256. No proof is equal
/// to it, since its message is longer.
inline Result<StreamKey> stream_key(const Secret& secret, const sdk::Nonce& challenge, const Hello& hello) {
  constexpr std::string_view kPurpose = "net-socket: pre-shared key of TLS 1.3";
  const auto proved = hello.proved();
  const auto purpose = std::as_bytes(std::span(kPurpose));
  std::vector<std::byte> message(proved.begin(), proved.end());
  message.insert(message.end(), purpose.begin(), purpose.end());
  StreamKey out;
  std::copy_n(proved.begin() + offsetof(Hello, connection), out.identity.size(), out.identity.begin());
  TUTTI_ASSIGN(out.key, sdk::prove(secret, sdk::Side::kConnector, challenge, hello.nonce, message));
  return out;
}

/// Before every message, on stream 0. A payload below the stripe limit follows on stream 0; a longer one is cut into
/// one part per stream. The last header of a connection that moves (pairs.h) is followed by the Id of the connection on
/// whose sockets the next header comes.
struct Header {
  uint64_t bytes = 0;
  uint32_t tag = 0;
  uint32_t form = 0;
};
static_assert(sizeof(Header) == 16);
enum Form : uint32_t { kWhole, kStriped, kMoves };  ///< values of Header::form

/// Bytes of each part, apart from the last one, of a message that is cut into at most `parts` parts. A whole number of
/// lines each, so that parts start aligned. No part is empty.
constexpr uint64_t part_bytes(uint64_t bytes, uint64_t parts) {
  constexpr uint64_t kLine = 64;
  return std::max(kLine, (bytes / parts + kLine - 1) / kLine * kLine);
}

/// The unit of a connection with rails (rails.h), in both directions. The payload follows kData only.
struct Frame {
  enum Kind : uint32_t {
    kName,         ///< `number` and `bytes` hold the name of the interface; the first frame of both ends
    kReceive,      ///< a posted receive: its place, tag and number, and the size of its buffer in `bytes`
    kData,         ///< part `part` of `parts` of the message for the receive with this place and number
    kAcknowledge,  ///< `number` frames of data have arrived on this rail since the start
    kGivenUp,      ///< rail `number` carries nothing any more
    kFarewell      ///< the sender of the frame closes the connection
  };
  uint32_t kind = kName;
  uint32_t tag = 0;
  uint64_t number = 0;
  uint64_t bytes = 0;   ///< kData: of the payload
  uint64_t offset = 0;  ///< kData: of the payload in the message
  uint64_t total = 0;   ///< kData: bytes of the message
  uint16_t place = 0;
  uint8_t part = 0;
  uint8_t parts = 0;
  uint32_t reserved = 0;
};
static_assert(sizeof(Frame) == 48);

}  // namespace tutti::net_socket
