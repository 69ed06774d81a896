// SPDX-License-Identifier: Apache-2.0
// What ranks and hub say to each other: frames of a header and a payload, little-endian.
//
//   rank → hub                             hub → rank
//   kHello   Hello; id                     kReply   code, id; packed result, or the text of the failure
//   kCall    code: Operation; id, rank:    kFailure code: FailureKind; rank; text
//            the root; own contribution    kAsk     id; question
//   kAbort   text                          kClosing
//   kQuery   id; question                  kDeparture rank; Departure
//   kAnswer  id of the kAsk; bytes
//   kEnding  Ending
//   kLeave
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/status.h"

namespace tutti::bootstrap {

static_assert(std::endian::native == std::endian::little);

using Bytes = std::vector<std::byte>;
using Secret = std::array<std::byte, 16>;

/// Raised whenever frames change their meaning. Header, and Hello up to its rank, stay as they are for ever.
inline constexpr uint32_t kWireVersion = 3;
inline constexpr uint32_t kMaxPayloadBytes = 64u << 20;
inline constexpr int kMaxRanks = 1 << 16;

enum class Kind : uint16_t {
  kHello = 1,
  kCall,
  kAbort,
  kQuery,
  kAnswer,
  kLeave,
  kEnding,
  kReply = 65,
  kFailure,
  kAsk,
  kClosing,
  kDeparture,
};

enum class Operation : uint16_t { kAllGather = 1, kBarrier, kBroadcast };

struct Header {
  uint32_t payload_bytes = 0;  ///< filled in when sent
  Kind kind = {};
  uint16_t code = 0;
  uint32_t id = 0;  ///< chosen by who asks, repeated in the answer
  int32_t rank = 0;
  uint32_t timeout_ms = 0;  ///< kHello, kCall, kQuery: what the sender has left
};
static_assert(sizeof(Header) == 20);

struct Frame {
  Header header;
  Bytes payload;
};

inline constexpr std::array<char, 8> kMagic = {'T', 'U', 'T', 'T', 'I', 'H', 'U', 'B'};

/// The first payload on a connection. A connection that does not know the secret is dropped without an answer.
struct Hello {
  std::array<char, 8> magic = kMagic;
  Secret secret = {};
  uint32_t wire_version = kWireVersion;
  int32_t rank = 0;
  int32_t rank_count = 0;
  uint32_t pid = 0;
  uint32_t peer_loss_ms = 0;
  std::array<char, 60> host = {};  ///< zero-terminated unless full
};
static_assert(sizeof(Hello) == 104);

/// Equal, found out in a time that does not depend on where they differ.
bool same_secret(const Secret& a, const Secret& b);

Bytes to_bytes(std::string_view text);
std::string to_text(std::span<const std::byte> bytes);

/// A list as one payload: for each entry its length (uint32) and its bytes.
Bytes pack(std::span<const Bytes> entries);
Result<std::vector<Bytes>> unpack(std::span<const std::byte> packed);

}  // namespace tutti::bootstrap
