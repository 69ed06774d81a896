// SPDX-License-Identifier: Apache-2.0
// What ranks and hub say to each other: frames of a header and a payload, little-endian.
//
//   rank → hub                             hub → rank
//   kHello   Hello; id                     kChallenge Challenge: the first frame of a connection
//   kCall    code: Operation; id, rank:    kWelcome   the hub's proof: the rank's own proof was right
//            the root; contribution        kReply     code, id; packed result, or the text of the failure
//   kAbort   text                          kFailure   code: FailureKind; rank; text
//   kQuery   id; question                  kAsk       id; question
//   kAnswer  id of the kAsk; bytes         kClosing
//   kEnding  Ending                        kDeparture rank; Departure
//   kLeave
//   kRely    code: Rely; text
//   kReport  as a kFailure of the other hub
//   kBranch  where it takes children      parent → rank
//   kParent  id; answered by a kReply     kResult    id: number of the call; packed result
//   kAttach                                hub → rank
//   kDetach  id of the open call; text    kOverdue   id: the call whose result the parent should have sent
//
// The contributions to the calls of the group are sealed (seal.h); the hub passes them on as they are.
//
// A hello is answered by a kWelcome. When all ranks have joined, the hub of the unique id sends a kReply with the
// lineup (lineup.h), too. A kParent is answered when the parent of the rank has sent its kBranch. After its kAttach, a
// rank gets long results from its parent (branch.h). After a kDetach, it gets them from the hub again, and the result
// of the open call at once. A rank that still waits for an overdue result detaches.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "tutti/sdk/handshake.h"
#include "tutti/status.h"

namespace tutti::bootstrap {

static_assert(std::endian::native == std::endian::little);

using Bytes = std::vector<std::byte>;
using Secret = std::array<std::byte, 16>;

/// Raised whenever frames change their meaning. Header, Challenge, and Hello up to its proof stay as they are for ever.
inline constexpr uint32_t kWireVersion = 5;
/// The first version with proofs. Earlier hellos carry the secret where there is a nonce now.
inline constexpr uint32_t kFirstVersionWithProofs = 3;
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
  kRely,
  kReport,
  kBranch,
  kParent,
  kAttach,
  kDetach,
  kReply = 65,
  kFailure,
  kAsk,
  kClosing,
  kDeparture,
  kChallenge,
  kWelcome,
  kResult,
  kOverdue,
};

/// Why a rank asks this hub for the replies that the other hub owes it.
enum class Rely : uint16_t {
  kNoAnswer = 0,  ///< the other hub has not answered in time; asks for one reply
  kEnded,         ///< the other hub's process ended without a word
  kClosed,        ///< the other hub has closed in good order
  kBroke,         ///< the connection to the other hub broke
};

enum class Operation : uint16_t { kAllGather = 1, kBarrier, kBroadcast };

struct Header {
  uint32_t payload_bytes = 0;  ///< filled in when sent
  Kind kind = {};
  uint16_t code = 0;
  uint32_t id = 0;  ///< chosen by the sender of the question, repeated in the answer
  int32_t rank = 0;
  uint32_t timeout_ms = 0;  ///< kHello, kCall, kQuery: the remaining time of the sender
};
static_assert(sizeof(Header) == 20);

struct Frame {
  Header header;
  Bytes payload;
};

inline constexpr std::array<char, 8> kMagic = {'T', 'U', 'T', 'T', 'I', 'H', 'U', 'B'};

struct Challenge {
  std::array<char, 8> magic = kMagic;
  uint32_t wire_version = kWireVersion;
  sdk::Nonce nonce = {};
};
static_assert(sizeof(Challenge) == 28);

/// Tells the ids of one acceptor apart; derived from the secret, which it does not reveal.
using Tag = std::array<std::byte, 8>;
Result<Tag> tag_of(const Secret& secret);

/// A key for one purpose, made from a secret, which it does not reveal. A literal as `purpose` counts with its zero.
Result<sdk::Proof> derive_key(const Secret& secret, std::span<const char> purpose);

/// The answer to a Challenge. A connection whose proof is wrong is dropped without an answer.
struct Hello {
  std::array<char, 8> magic = kMagic;
  sdk::Nonce nonce = {};
  uint32_t wire_version = kWireVersion;
  int32_t rank = 0;
  Tag tag = {};
  sdk::Proof proof = {};  ///< over the nonces and this payload, with zeros for the proof
  int32_t rank_count = 0;
  uint32_t pid = 0;
  uint64_t process = 0;  ///< process_token() of the rank
  uint32_t peer_loss_ms = 0;
  std::array<char, 60> host = {};  ///< zero-terminated unless full
};
static_assert(sizeof(Hello) == 152);

/// The proof of one side of a connection for the payload of a kHello. Any wire version from 3 on.
Result<sdk::Proof> prove_hello(const Secret& secret, sdk::Side side, const sdk::Nonce& challenge,
                               std::span<const std::byte> payload);

template <class T>
Bytes payload_of(const T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  const auto bytes = std::as_bytes(std::span(&value, 1));
  return Bytes(bytes.begin(), bytes.end());
}

Bytes to_bytes(std::string_view text);
std::string to_text(std::span<const std::byte> bytes);

/// A list as one payload: for each entry its length (uint32) and its bytes.
Bytes pack(std::span<const Bytes> entries);
Result<std::vector<Bytes>> unpack(std::span<const std::byte> packed);
/// The entries in place: they refer to `packed`.
Result<std::vector<std::span<const std::byte>>> entries_of(std::span<const std::byte> packed);

}  // namespace tutti::bootstrap
