// SPDX-License-Identifier: Apache-2.0
// Proofs for a handshake between two processes that share a secret, over a connection that strangers can reach.
//
// The acceptor begins, because it has to answer many strangers and a challenge costs it nothing:
//
//   acceptor  → connector   nonce of the acceptor
//   connector → acceptor    nonce of the connector, message, prove(kConnector)
//   acceptor  → connector   prove(kAcceptor)
//
// Each side compares the proof that arrives with the proof that it computes itself. The secret never crosses the
// connection. A recorded proof is worthless later, since both nonces are new for each connection. A proof of one side
// cannot serve as a proof of the other side, since the side is part of it. (Mutual authentication in three passes by a
// cryptographic check function, as in ISO/IEC 9798-4; the function is HMAC-SHA256, RFC 2104.)
//
// The proofs do not protect the data that follows on the connection.
//
// Link OpenSSL::Crypto. All functions are for any thread.
#pragma once

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/random.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <system_error>
#include <vector>

#include "tutti/status.h"

namespace tutti::sdk {

using Nonce = std::array<std::byte, 16>;
using Proof = std::array<std::byte, 32>;
enum class Side : uint8_t { kConnector = 1, kAcceptor = 2 };

/// A nonce from the kernel's random numbers. kSystem if the kernel has none.
inline Result<Nonce> make_nonce() {
  Nonce nonce;
  if (::getrandom(nonce.data(), nonce.size(), 0) == static_cast<ssize_t>(nonce.size())) return nonce;
  return Status(Code::kSystem, "cannot draw random bytes: " + std::generic_category().message(errno));
}

/// The proof that `side` of the connection knows `secret`: HMAC-SHA256 over the side, both nonces and `message`.
/// `message`: the bytes that the connector sent, of any length; both sides pass the same bytes. kInternal if OpenSSL
/// fails, for example where its configuration forbids HMAC.
inline Result<Proof> prove(std::span<const std::byte> secret, Side side, const Nonce& acceptor, const Nonce& connector,
                           std::span<const std::byte> message) {
  std::vector<std::byte> proved;
  proved.reserve(1 + acceptor.size() + connector.size() + message.size());
  proved.push_back(static_cast<std::byte>(side));
  proved.insert(proved.end(), acceptor.begin(), acceptor.end());
  proved.insert(proved.end(), connector.begin(), connector.end());
  proved.insert(proved.end(), message.begin(), message.end());
  Proof proof;
  unsigned int length = 0;
  const unsigned char* const made = ::HMAC(::EVP_sha256(), secret.data(), static_cast<int>(secret.size()),
                                           reinterpret_cast<const unsigned char*>(proved.data()), proved.size(),
                                           reinterpret_cast<unsigned char*>(proof.data()), &length);
  if (made != nullptr && length == proof.size()) return proof;
  return Status(Code::kInternal, "OpenSSL cannot compute HMAC-SHA256; does its configuration forbid it?");
}

/// Whether two proofs are equal. The time does not depend on the place of a difference.
inline bool same(const Proof& a, const Proof& b) {
  return ::CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace tutti::sdk
