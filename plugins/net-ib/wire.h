// SPDX-License-Identifier: Apache-2.0
// What two ends of a connection tell each other. Little endian, like every machine that the plugin runs on.
//
// The exchange goes over TCP, before any RDMA. The handshake is that of tutti/sdk/handshake.h:
//
//   listener  → connector   Challenge
//   connector → listener    Hello: the connector's rails, with a proof
//   listener  → connector   Welcome: the listener's rails, with a proof over both sides' rails
//   connector → listener    one byte, a bit for each rail: the rails whose queue pairs take packets
//
// A rail is a port of one end that is joined to a port of the other end. Rail N of an end is joined to rail N of the
// other end. The TCP connection stays open. Its end tells each side that the other side has closed the connection, or
// has died.
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

inline constexpr uint64_t kMagic = 0x3230626976545454;  // "TTTvib02"

/// The handle that listen() hands out.
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

/// One rail of one end: its queue pairs, and the key of the memory that the other end writes: an RdmaMailbox.
struct Endpoint {
  uint32_t count = 0;  ///< number of queue pairs; 0: the rail is not used
  uint32_t psn = 0;    ///< first packet number that this end sends
  std::array<uint32_t, kMaxQueuePairs> queue_pairs{};
  std::array<uint8_t, 16> gid{};
  uint32_t gid_type = 0;  ///< ibv_gid_type
  uint16_t lid = 0;
  uint8_t mtu = 0;  ///< ibv_mtu
  uint8_t link_layer = 0;
  uint64_t mailbox = 0;
  uint32_t mailbox_key = 0;
  uint32_t reserved = 0;
  std::array<char, 64> device{};  ///< for messages; ends with a zero
};
static_assert(sizeof(Endpoint) == 176);

/// All rails of one end.
using Endpoints = std::array<Endpoint, kMaxRails>;

struct Hello {
  uint64_t magic = kMagic;
  sdk::Nonce nonce{};
  Endpoints rails;
  sdk::Proof proof{};
};

struct Welcome {
  uint64_t magic = kMagic;
  Endpoints rails;
  std::array<char, 512> refusal{};  ///< why the listener's side cannot connect; ends with a zero; else empty
  sdk::Proof proof{};
};

/// The bytes that the connecting side proves, and the bytes that the listener proves.
inline std::vector<std::byte> proved(const Endpoints& connector) {
  std::vector<std::byte> out(sizeof connector);
  std::memcpy(out.data(), &connector, sizeof connector);
  return out;
}
inline std::vector<std::byte> proved(const Endpoints& connector, const Welcome& welcome) {
  std::vector<std::byte> out(sizeof connector + sizeof welcome.rails + sizeof welcome.refusal);
  std::byte* to = out.data();
  std::memcpy(to, &connector, sizeof connector);
  std::memcpy(to += sizeof connector, &welcome.rails, sizeof welcome.rails);
  std::memcpy(to + sizeof welcome.rails, welcome.refusal.data(), sizeof welcome.refusal);
  return out;
}

/// Receives that may be announced at once.
inline constexpr uint32_t kRecords = 256;

/// Announces a receive to the sender.
struct Record {
  uint64_t address = 0;
  uint64_t bytes = 0;
  std::array<uint32_t, kMaxRails> keys{};  ///< by rail
  uint32_t tag = 0;
  uint32_t sequence = 0;
};
static_assert(sizeof(Record) == 40);

/// The records and parts that had reached one end when it gave up a rail. The other end repeats the rest.
struct Report {
  /// What has arrived of a receive. It has the index of the record of the receive.
  struct Arrival {
    uint32_t sequence = 0;
    uint16_t parts = 0;  ///< a bit for each part that has arrived
    uint16_t whole = 0;  ///< 1: all parts have arrived
  };
  uint32_t next_record = 0;  ///< from a sender: the record that it expects next
  uint32_t reserved = 0;
  std::array<Arrival, kRecords> arrivals{};  ///< from a receiver
};

/// Memory of one end that the other end writes by RDMA.
struct RdmaMailbox {
  std::array<Record, kRecords> records{};    ///< on a sender: its receiver announces receives here
  std::array<uint64_t, kRecords> lengths{};  ///< on a receiver: its sender reports messages that are too long
  /// By the rail that is lost, and by the rail that carried the report. A report that is sent again over a further rail
  /// therefore never changes a report that is being read.
  std::array<std::array<Report, kMaxRails>, kMaxRails> reports{};
  std::array<Report, kMaxRails> own_reports{};  ///< by the rail that is lost; read by the own device
};

/// The 32 bits that arrive with a write.
///
/// Data: the receive, the part, and the number of parts of the message. Records: their number. Control: the rail that
/// the other end has given up, with a Report in the mailbox, or kProbe.
struct Immediate {
  static constexpr uint32_t kTooLong = 1u << 31;
  static constexpr uint32_t kControl = 1u << 30;
  static constexpr uint32_t kProbe = kControl | 0xff;  ///< tells nothing; its acknowledgement tells that the peer lives
  static uint32_t make(uint32_t sequence, uint32_t part, uint32_t parts) {
    return ((parts - 1) << 20) | (part << 16) | (sequence & 0xffff);
  }
  static uint32_t sequence(uint32_t value) { return value & 0xffff; }
  static uint32_t part(uint32_t value) { return (value >> 16) & 0xf; }
  static uint32_t parts(uint32_t value) { return ((value >> 20) & 0xf) + 1; }
  static uint32_t rail(uint32_t control) { return control & 0xff; }
};
static_assert(kMaxQueuePairs <= 16);

}  // namespace tutti::net_ib
