// SPDX-License-Identifier: Apache-2.0
// Memory that the ranks of one host share: an anonymous file (memfd), mapped by its owner and by its peers. It has no
// name, so nothing is left behind however a process ends; pages exist once touched, so a large, mostly unused arena
// costs nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/fd.h"
#include "tutti/status.h"

namespace tutti::memory {

/// How a peer finds an arena: valid while its owner lives and keeps it open. Plain data, to be exchanged among ranks.
struct ArenaAddress {
  int32_t process = 0;
  int32_t descriptor = -1;
  uint64_t bytes = 0;
  uint64_t token = 0;  ///< random; stands at the beginning of the arena, so that a stale address is noticed
};

/// A hold on an arena. Movable; thread-compatible. The memory is zero at first. All holds of one process share one
/// mapping, so its threads use the same addresses (tools that watch memory, such as ThreadSanitizer, depend on this).
class Arena {
 public:
  /// Makes an arena of at least `bytes` bytes and maps it.
  static Result<Arena> create(uint64_t bytes);
  /// Maps the arena of a peer on this host (or of this process).
  static Result<Arena> open(const ArenaAddress& address);

  Arena() = default;
  Arena(Arena&& other) noexcept = default;
  Arena& operator=(Arena&& other) noexcept = default;

  const ArenaAddress& address() const { return address_; }
  /// The usable memory, 64-byte aligned; the same offsets mean the same place in every mapping.
  std::span<uint8_t> bytes() const { return {mapping_->base + kHeaderBytes, address_.bytes - kHeaderBytes}; }
  /// Closes the file once all peers have mapped it; the mapping stays.
  void seal() { file_.reset(); }

  /// The address of `token` in the owner's address space. By reading it, a peer checks that it can read the owner's
  /// memory.
  const uint64_t* token_address() const { return reinterpret_cast<const uint64_t*>(mapping_->base); }

 private:
  static constexpr uint64_t kHeaderBytes = 64;
  struct Mapping {
    uint8_t* base = nullptr;
    uint64_t bytes = 0;
    Mapping() = default;
    Mapping(const Mapping&) = delete;
    Mapping& operator=(const Mapping&) = delete;
    ~Mapping();
  };
  class InProcess;
  static Result<std::shared_ptr<Mapping>> map(int descriptor, uint64_t bytes);

  ArenaAddress address_;
  std::shared_ptr<Mapping> mapping_;
  base::Fd file_;  // the owner's, until sealed
};

}  // namespace tutti::memory
