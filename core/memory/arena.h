// SPDX-License-Identifier: Apache-2.0
// Memory that the ranks of one host share: an anonymous file (memfd), mapped by its owner and by its peers. It has no
// name, so nothing is left behind however a process ends; pages exist once touched, so a large, mostly unused arena
// costs nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tutti/status.h"

namespace tutti::memory {

/// How a peer finds an arena: valid while its owner lives and keeps it open. Plain data, to be exchanged among ranks.
struct ArenaAddress {
  int32_t process = 0;
  int32_t descriptor = -1;
  uint64_t bytes = 0;
  uint64_t token = 0;  ///< random; stands at the beginning of the arena, so that a stale address is noticed
};

/// One mapping of an arena. Movable; thread-compatible. The memory is zero at first.
class Arena {
 public:
  /// Makes an arena of at least `bytes` bytes and maps it.
  static Result<Arena> create(uint64_t bytes);
  /// Maps the arena of a peer on this host (or of this process).
  static Result<Arena> open(const ArenaAddress& address);

  Arena() = default;
  Arena(Arena&& other) noexcept;
  Arena& operator=(Arena&& other) noexcept;
  ~Arena();

  const ArenaAddress& address() const { return address_; }
  /// The usable memory, 64-byte aligned; the same offsets mean the same place in every mapping.
  std::span<uint8_t> bytes() const { return {base_ + kHeaderBytes, address_.bytes - kHeaderBytes}; }
  /// Closes the file once all peers have mapped it; the mapping stays.
  void seal();

  /// Where `token` stands in the owner's address space; a peer proves with it that it can read the owner's memory.
  const uint64_t* token_address() const { return reinterpret_cast<const uint64_t*>(base_); }

 private:
  static constexpr uint64_t kHeaderBytes = 64;
  ArenaAddress address_;
  uint8_t* base_ = nullptr;
  bool owns_descriptor_ = false;
};

}  // namespace tutti::memory
