// SPDX-License-Identifier: Apache-2.0
// Bytes that ranks give to collective calls cross the hub sealed: encrypted and protected against changes by
// AES-256-GCM. The key is derived from the secret of the unique id, which never crosses a network. A process on the
// path can therefore neither learn nor replace the ids and the addresses with secrets that ranks exchange.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "bootstrap/wire.h"
#include "tutti/status.h"

struct evp_cipher_ctx_st;  // EVP_CIPHER_CTX of OpenSSL

namespace tutti::bootstrap {

/// The key of one group. One thread at a time.
class Seal {
 public:
  /// Bytes that sealing adds.
  static constexpr size_t kMoreBytes = 12 + 16;

  /// The associated data of AES-GCM: the rank that gives the bytes, and its call of the group. Bytes open only with the
  /// associated data with which they were sealed.
  struct AssociatedData {
    uint32_t call = 0;
    int32_t rank = 0;
  };

  static Result<std::unique_ptr<const Seal>> create(const Secret& secret);
  Result<Bytes> close(std::span<const std::byte> plain, AssociatedData associated) const;
  /// kMismatch if the bytes were changed, or were sealed with another secret or other associated data.
  Result<Bytes> open(std::span<const std::byte> sealed, AssociatedData associated) const;
  /// Opens into memory of the caller, which has opened_bytes(sealed) bytes. After a failure, its content is undefined.
  Status open(std::span<const std::byte> sealed, AssociatedData associated, std::span<std::byte> plain) const;
  /// The number of bytes that `sealed` has when it is open; 0 if `sealed` is too short.
  static size_t opened_bytes(std::span<const std::byte> sealed) {
    return std::max(sealed.size(), kMoreBytes) - kMoreBytes;
  }

 private:
  struct FreeContext {
    void operator()(evp_cipher_ctx_st* context) const;
  };
  using Context = std::unique_ptr<evp_cipher_ctx_st, FreeContext>;

  Seal(Context closing, Context opening) : closing_(std::move(closing)), opening_(std::move(opening)) {}

  const Context closing_, opening_;  ///< with the key; each message has its own nonce
};

}  // namespace tutti::bootstrap
