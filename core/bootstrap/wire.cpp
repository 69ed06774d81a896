// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/wire.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

namespace tutti::bootstrap {

Result<Tag> tag_of(const Secret& secret) {
  TUTTI_ASSIGN(const sdk::Proof key, derive_key(secret, "tag of a unique id"));
  Tag tag;
  std::copy_n(key.begin(), tag.size(), tag.begin());
  return tag;
}

Result<sdk::Proof> derive_key(const Secret& secret, std::span<const char> purpose) {
  const sdk::Nonce zeros = {};
  return sdk::prove(secret, sdk::Side::kAcceptor, zeros, zeros, std::as_bytes(purpose));
}

Result<sdk::Proof> prove_hello(const Secret& secret, sdk::Side side, const sdk::Nonce& challenge,
                               std::span<const std::byte> payload) {
  sdk::Nonce nonce;
  Bytes message(payload.begin(), payload.end());
  if (message.size() < offsetof(Hello, proof) + sizeof(sdk::Proof))
    return Status(Code::kInvalidArgument, "a hello ends before its proof");
  std::memcpy(nonce.data(), message.data() + offsetof(Hello, nonce), nonce.size());
  std::fill_n(message.begin() + offsetof(Hello, proof), sizeof(sdk::Proof), std::byte{});
  return sdk::prove(secret, side, challenge, nonce, message);
}

Bytes to_bytes(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return Bytes(bytes.begin(), bytes.end());
}

std::string to_text(std::span<const std::byte> bytes) {
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

Bytes pack(std::span<const Bytes> entries) {
  size_t total = 0;
  for (const Bytes& entry : entries) total += sizeof(uint32_t) + entry.size();
  Bytes packed;
  packed.reserve(total);
  for (const Bytes& entry : entries) {
    const auto size = std::bit_cast<std::array<std::byte, sizeof(uint32_t)>>(static_cast<uint32_t>(entry.size()));
    packed.insert(packed.end(), size.begin(), size.end());
    packed.insert(packed.end(), entry.begin(), entry.end());
  }
  return packed;
}

Result<std::vector<std::span<const std::byte>>> entries_of(std::span<const std::byte> packed) {
  std::vector<std::span<const std::byte>> entries;
  while (!packed.empty()) {
    uint32_t size = 0;
    if (packed.size() < sizeof size) return Status(Code::kInternal, "a packed list ends within a length");
    std::memcpy(&size, packed.data(), sizeof size);
    packed = packed.subspan(sizeof size);
    if (packed.size() < size) return Status(Code::kInternal, "a packed list ends within an entry");
    entries.push_back(packed.first(size));
    packed = packed.subspan(size);
  }
  return entries;
}

Result<std::vector<Bytes>> unpack(std::span<const std::byte> packed) {
  TUTTI_ASSIGN(const auto entries, entries_of(packed));
  std::vector<Bytes> copies;
  copies.reserve(entries.size());
  for (const std::span<const std::byte> entry : entries) copies.emplace_back(entry.begin(), entry.end());
  return copies;
}

}  // namespace tutti::bootstrap
