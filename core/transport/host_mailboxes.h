// SPDX-License-Identifier: Apache-2.0
// Mailboxes between ranks of one host: one for each pair of ranks and subject, and for one message. They lie in shared
// memory of the rank that writes them. A rank that waits for a message sleeps until it is there, the time is up, or
// stop() is called.
#pragma once

#include <array>
#include <atomic>
#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

#include "base/clock.h"
#include "memory/arena.h"
#include "tutti/plugin/protocol.h"

namespace tutti::transport {

/// post() and wait() by one thread at a time; stop() by any.
class HostMailboxes {
 public:
  static constexpr size_t kMessageBytes = 184;

  /// `ranks`: all ranks of this host, with this rank, in the same order on all of them.
  static Result<std::unique_ptr<HostMailboxes>> create(uint32_t rank, std::vector<uint32_t> ranks, uint32_t subjects);
  const memory::ArenaAddress& address() const { return arenas_[own_].address(); }
  /// Maps the mailboxes that `rank` writes, which are at `address`.
  Status open(uint32_t rank, const memory::ArenaAddress& address);
  /// To be called once all ranks have opened: no further process can map this rank's mailboxes.
  void seal() { arenas_[own_].seal(); }

  /// Posts a message for `reader`, once.
  template <class T>
  void post(uint32_t reader, uint32_t subject, const T& value) {
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= kMessageBytes);
    post_bytes(reader, subject, std::as_bytes(std::span(&value, 1)));
  }
  /// The message of `writer` for this rank. kTimeout at the deadline, kAborted after stop().
  template <class T>
  Result<T> wait(uint32_t writer, uint32_t subject, base::Time deadline) {
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= kMessageBytes);
    T value;
    TUTTI_TRY(wait_bytes(writer, subject, deadline, std::as_writable_bytes(std::span(&value, 1))));
    return value;
  }

  /// Ends waits, now and later.
  void stop();

 private:
  struct Mailbox {
    uint32_t posted;  // atomic_ref: released by post_bytes, acquired by wait_bytes
    uint32_t reserved;
    std::array<std::byte, kMessageBytes> message;
  };

  HostMailboxes(std::vector<uint32_t> ranks, uint32_t own, uint32_t subjects)
      : ranks_(std::move(ranks)), own_(own), subjects_(subjects), arenas_(ranks_.size()) {}
  uint32_t index_of(uint32_t rank) const;
  tutti_bell& bell_of(uint32_t index) const;
  Mailbox& mailbox(uint32_t writer, uint32_t reader, uint32_t subject) const;
  void post_bytes(uint32_t reader, uint32_t subject, std::span<const std::byte> bytes);
  Status wait_bytes(uint32_t writer, uint32_t subject, base::Time deadline, std::span<std::byte> bytes);

  std::vector<uint32_t> ranks_;
  uint32_t own_;  // index in ranks_, as `writer` and `reader` above
  uint32_t subjects_;
  std::vector<memory::Arena> arenas_;  // by index: a bell, then mailboxes by reader and subject
  std::atomic<bool> stopped_{false};
};

}  // namespace tutti::transport
