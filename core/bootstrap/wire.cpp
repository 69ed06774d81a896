// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/wire.h"

#include <cstring>

namespace tutti::bootstrap {

bool same_secret(const Secret& a, const Secret& b) {
  std::byte difference{};
  for (size_t i = 0; i < a.size(); ++i) difference |= a[i] ^ b[i];
  return difference == std::byte{};
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

Result<std::vector<Bytes>> unpack(std::span<const std::byte> packed) {
  std::vector<Bytes> entries;
  while (!packed.empty()) {
    uint32_t size = 0;
    if (packed.size() < sizeof size) return Status(Code::kInternal, "a packed list ends within a length");
    std::memcpy(&size, packed.data(), sizeof size);
    packed = packed.subspan(sizeof size);
    if (packed.size() < size) return Status(Code::kInternal, "a packed list ends within an entry");
    entries.emplace_back(packed.begin(), packed.begin() + size);
    packed = packed.subspan(size);
  }
  return entries;
}

}  // namespace tutti::bootstrap
