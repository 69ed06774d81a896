// SPDX-License-Identifier: Apache-2.0
// UniqueId: the place where the ranks of one communicator meet. One process makes it and passes it to all ranks, by any
// means of the application: MPI, a file, the environment.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <type_traits>

#include "tutti/status.h"

namespace tutti {

/// An address and a secret, in 128 bytes that may be copied from process to process as they are. Each process that has
/// them can join, so pass them only to the ranks. An id serves one communicator.
///
/// The process that made the id runs a hub, in a background thread, where the ranks meet. When all ranks have joined,
/// the process of another rank runs a standby hub. If the first process ends or dies, the standby tells the other ranks
/// which rank is lost. If no rank lived in the first process, the job goes on. Without a standby, the end of the first
/// process ends this knowledge. There is no standby if all ranks live in one process, or if a rank cannot reach the
/// standby; then rank 0 warns.
///
/// The secret never crosses a connection. A rank and a hub prove to each other that they know it (HMAC-SHA256). The
/// contributions of ranks to setup calls are sealed by AES-256-GCM, with a key from the secret. Other messages of the
/// hub are neither encrypted nor signed.
///
/// The unused ids of a process on one network interface share one port. The port closes when all ranks of each id have
/// joined. With `bootstrap.shrink`, the process keeps it open for its communicators.
class UniqueId {
 public:
  /// An empty id, to be filled with the bytes of an id.
  UniqueId() = default;

  /// Makes an id and starts to serve it, on any free port of a network interface of this host. `interfaces` is a list
  /// in order of preference, separated by commas: "eth" (begins with), "=eth0" (exactly), "10.0.0.0/8" (has an address
  /// in), and any of them after "^" to exclude it. Empty: the first interface that leads out of this host, else the
  /// loopback.
  TUTTI_API static Result<UniqueId> create(std::string_view interfaces = {});

  /// Makes an id at a given "host:port" of this host. `secret`: 32 hexadecimal digits; empty: a random one.
  TUTTI_API static Result<UniqueId> create_at(std::string_view address, std::string_view secret = {});

  /// "10.0.0.1:4000:<32 hexadecimal digits>"; an IPv6 address is in brackets. from_string() takes names for addresses
  /// too, and does not serve: some process has to create the id.
  TUTTI_API static Result<UniqueId> from_string(std::string_view text);
  TUTTI_API std::string to_string() const;

  friend bool operator==(const UniqueId&, const UniqueId&) = default;

 private:
  friend struct UniqueIdAccess;
  std::array<std::byte, 128> bytes_{};
};

static_assert(sizeof(UniqueId) == 128 && std::is_trivially_copyable_v<UniqueId>);

}  // namespace tutti
