// SPDX-License-Identifier: Apache-2.0
// What two ends of a connection tell each other. Little endian, like every machine that the plugin runs on.
//
// The exchange goes over TCP, before any RDMA. The handshake is that of tutti/sdk/handshake.h:
//
//   listener  → connector   Challenge
//   connector → listener    Hello: the connector's queue pairs, with a proof
//   listener  → connector   Welcome: the listener's queue pairs, with a proof over both sides' queue pairs
//   connector → listener    kGo: the connector's queue pairs take packets
//
// The TCP connection stays open. Its end tells each side that the other side has closed the connection, or has died.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "address.h"
#include "settings.h"
#include "tutti/plugin/network.h"
#include "tutti/sdk/handshake.h"

namespace tutti::net_ib {

using Secret = std::array<std::byte, 16>;

inline constexpr uint64_t kMagic = 0x3130626976545454;  // "TTTvib01"
inline constexpr uint8_t kGo = 1;

/// What listen() hands out as a handle.
struct Handle {
  uint64_t magic = kMagic;
  Ip ip;
  uint16_t port = 0;
  uint8_t reserved[6] = {};
  Secret secret{};
};
static_assert(sizeof(Handle) <= TUTTI_NET_HANDLE_BYTES);

struct Challenge {
  uint64_t magic = kMagic;
  sdk::Nonce nonce{};
};

/// The queue pairs of one end, and the memory that the other end writes: a Board.
struct Endpoint {
  uint32_t count = 0;  ///< of queue pairs
  uint32_t psn = 0;    ///< first packet number that this end sends
  std::array<uint32_t, kMaxQueuePairs> queue_pairs{};
  std::array<uint8_t, 16> gid{};
  uint32_t gid_type = 0;  ///< ibv_gid_type
  uint16_t lid = 0;
  uint8_t mtu = 0;  ///< ibv_mtu
  uint8_t link_layer = 0;
  uint64_t board = 0;
  uint32_t board_key = 0;
  uint32_t reserved = 0;
  std::array<char, 64> device{};  ///< for messages; ends with a zero
};
static_assert(sizeof(Endpoint) == 176);

struct Hello {
  uint64_t magic = kMagic;
  sdk::Nonce nonce{};
  Endpoint endpoint;
  sdk::Proof proof{};
};

struct Welcome {
  uint64_t magic = kMagic;
  Endpoint endpoint;
  std::array<char, 512> refusal{};  ///< why the listener's side cannot connect; ends with a zero; else empty
  sdk::Proof proof{};
};

/// What the connecting side proves, and what the listener proves.
inline std::vector<std::byte> proved(const Endpoint& connector) {
  std::vector<std::byte> out(sizeof connector);
  std::memcpy(out.data(), &connector, sizeof connector);
  return out;
}
inline std::vector<std::byte> proved(const Endpoint& connector, const Welcome& welcome) {
  std::vector<std::byte> out(sizeof connector + sizeof welcome.endpoint + sizeof welcome.refusal);
  std::byte* to = out.data();
  std::memcpy(to, &connector, sizeof connector);
  std::memcpy(to += sizeof connector, &welcome.endpoint, sizeof welcome.endpoint);
  std::memcpy(to + sizeof welcome.endpoint, welcome.refusal.data(), sizeof welcome.refusal);
  return out;
}

/// Receives that may be announced at once.
inline constexpr uint32_t kRecords = 256;

/// Announces a receive to the sender.
struct Record {
  uint64_t address = 0;
  uint64_t bytes = 0;
  uint32_t key = 0;
  uint32_t tag = 0;
  uint32_t sequence = 0;
  uint32_t reserved = 0;
};
static_assert(sizeof(Record) == 32);

/// Memory of one end that the other end writes by RDMA.
struct Board {
  std::array<Record, kRecords> records{};    ///< of a sender: its receiver announces receives here
  std::array<uint64_t, kRecords> lengths{};  ///< of a receiver: its sender reports messages that are too long here
};

/// The 32 bits that arrive with data: which receive they are for, and in how many parts the message comes.
struct Immediate {
  static constexpr uint32_t kTooLong = 1u << 31;
  static uint32_t make(uint32_t sequence, uint32_t parts) { return (parts << 16) | (sequence & 0xffff); }
  static uint32_t sequence(uint32_t value) { return value & 0xffff; }
  static uint32_t parts(uint32_t value) { return (value >> 16) & 0xff; }
};

}  // namespace tutti::net_ib
