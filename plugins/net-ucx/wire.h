// SPDX-License-Identifier: Apache-2.0
// What goes over the line of a connection, a TCP connection beside UCX. Little endian.
//
//   listener  → connector   Challenge, then the address of the listener's UCP worker
//   connector → listener    Hello: the connector's proof (tutti/sdk/handshake.h)
//   listener  → connector   the listener's proof
//   connector → listener    over UCX: Trial, which shows that UCX's data arrives
//   listener  → connector   Verdict
//   each      → other       Farewell, when it closes the connection
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tutti/plugin/network.h"
#include "tutti/sdk/handshake.h"

namespace tutti::net_ucx {

using Secret = std::array<std::byte, 16>;

inline constexpr uint64_t kMagic = 0x3230786375545454;  // "TTTucx02"
inline constexpr size_t kMostAddressBytes = 16384;      // of a UCP worker; some hundred bytes are usual

/// The handle of a listener: where its line is, and the secret that both sides prove to know.
struct Address {
  uint64_t magic = kMagic;
  uint16_t family = 0;  ///< AF_INET or AF_INET6
  uint16_t port = 0;
  uint32_t reserved = 0;
  std::array<uint8_t, 16> ip{};
  Secret secret{};
};
static_assert(sizeof(Address) == 48 && sizeof(Address) <= TUTTI_NET_HANDLE_BYTES);

struct Challenge {
  uint64_t magic = kMagic;
  sdk::Nonce nonce{};
  uint32_t ucx_version = 0;    ///< major << 16 | minor
  uint32_t id = 0;             ///< the connection's, in the upper half of the UCP tags
  uint32_t address_bytes = 0;  ///< length of the worker's address, which follows
  uint32_t reserved = 0;
  uint64_t namespace_id = 0;  ///< inode of the listener's network namespace
};
static_assert(sizeof(Challenge) == 48);

struct Hello {
  uint64_t magic = kMagic;
  sdk::Nonce nonce{};
  sdk::Proof proof{};
};
static_assert(sizeof(Hello) == 56);

/// The first message over UCX. Its UCP tag is the id of the connection; other tags have the id in the upper half.
struct Trial {
  std::array<char, 72> ways{};  ///< transports and devices of the sender's endpoint: "tcp/eth0"; ends with 0
};

enum class Verdict : uint8_t { kArrived = 1, kMissing = 2 };

struct Farewell {
  uint64_t sent = 0;  ///< messages of this connection that the sender has completed
};

/// The bytes that both proofs cover beside the nonces: the listener's data in clear.
inline std::vector<std::byte> proved(const Challenge& challenge, std::span<const std::byte> address) {
  const auto head = std::as_bytes(std::span(&challenge, 1));
  std::vector<std::byte> bytes(head.begin(), head.end());
  bytes.insert(bytes.end(), address.begin(), address.end());
  return bytes;
}

}  // namespace tutti::net_ucx
