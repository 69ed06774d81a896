// SPDX-License-Identifier: Apache-2.0
// The accepting side: a listener that knows its friends by a secret. Nothing blocks, and no stranger ends anything.
#pragma once

#include <list>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "connection.h"
#include "shared.h"
#include "system.h"
#include "wire.h"

namespace tutti::net_socket {

/// A stream is a guest until its Hello proves the secret. The number of guests is limited: where more come, the oldest
/// guest is dropped. So is a guest that takes too long. A friend that is dropped connects again.
///
/// The listener takes at most 1/16 of the time of the thread that calls it, apart from a reserve that suffices for many
/// friends. Strangers beyond that wait in the queue of the kernel.
///
/// If no descriptor is left for a connection that waits, the plugin warns once. If the lack lasts for Shared::limit(),
/// accept fails, even if only strangers wait: a stranger proves nothing before it is accepted.
class Listener : public sdk::Listener {
 public:
  static constexpr size_t kMostGuests = 128;

  /// Listens at several addresses with rails, one for each; else at one.
  static Result<std::unique_ptr<Listener>> open(std::span<const SocketAddress> addresses, const Shared& shared);
  const Address& address() const { return address_; }
  /// Null: none yet. kSystem if descriptors are lacking for too long. kMismatch if a process on the path has changed
  /// bytes of a connection with TLS.
  Result<std::unique_ptr<sdk::Connection>> accept() override;
  size_t guest_count() const { return guests_.size(); }

 private:
  static constexpr std::chrono::seconds kHelloLimit{10};

  explicit Listener(const Shared& shared) : shared_(shared) {}
  struct Guest {
    Fd socket;
    Time deadline;
    sdk::Nonce nonce{};
    Hello hello;
    size_t read = 0;
  };
  struct Stream {
    Fd socket;
    sdk::Proof proof{};  ///< this side's, to be sent when the connection is whole
    StreamKey key;       ///< with TLS
  };
  struct Group {
    Partner partner;    ///< the other end
    uint32_t used = 0;  ///< as in its hellos
    std::vector<Stream> streams;
    uint32_t missing = 0;
    Time deadline;
  };
  Status visit(Time now);
  void hear_guests();
  void drop(std::list<Guest>::iterator guest);
  Status greet();
  Status greet(const Fd& socket);
  bool is_complete(const Hello& hello) const;
  Status add_guest(Fd socket);
  bool make_room(const Status& why);
  bool lacks_for_long();
  void drop_late(Time now);
  /// False: the guest has to go.
  bool hear(Guest& guest);
  void introduce(Guest& guest);
  bool join(Guest& guest, const sdk::Proof& proof, const StreamKey& key);
  void ask_for_events();
  Result<std::unique_ptr<sdk::Connection>> take_whole();
  Status set_sockets(std::span<const SocketAddress> addresses);

  const Shared& shared_;
  std::vector<Fd> sockets_;
  Fd epoll_;  // epoll of the sockets and the guests
  Address address_;
  std::list<Guest> guests_;  // oldest first
  std::list<Group> groups_;

  uint64_t stirred_ = 1;  // set by the context when epoll_ has events
  Time next_look_{};
  Time rest_until_{};
  Time last_visit_{};
  Clock::duration reserve_;          // time that visits use up
  std::optional<Time> lacks_since_;  // a connection waits, and no descriptor is left

  friend class ListenerTest;
};

}  // namespace tutti::net_socket
