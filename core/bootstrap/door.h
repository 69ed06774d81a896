// SPDX-License-Identifier: Apache-2.0
// The hub's door: takes connections, and lets in those that know the secret.
#pragma once

#include <functional>
#include <list>

#include "bootstrap/link.h"

namespace tutti::bootstrap {

/// A connection is a guest until it has said a Hello with the secret. Guests that say anything else or take too long
/// are dropped without an answer; there may be many, and they change nothing.
///
/// Everything here runs on the poller's thread.
class Door {
 public:
  /// Decides on a guest that knows the secret. When ok it has taken the link over; a failure is told to the guest.
  using Admit = std::function<Status(const std::shared_ptr<Link>& link, const Hello& hello, const Header& header)>;

  Door(Poller& poller, base::Fd listener, const Secret& secret, base::Milliseconds hello_limit, Admit admit);
  ~Door();
  Door(const Door&) = delete;
  Door& operator=(const Door&) = delete;

 private:
  struct Guest {
    std::shared_ptr<Link> link;
    Poller::Timer limit;
  };
  using Place = std::list<Guest>::iterator;
  static constexpr size_t kMaxGuests = 4096;

  void take_guests();
  bool make_room();
  void add(base::Fd socket);
  void hear(Place guest, const Frame& frame);
  void drop(Place guest);

  Poller& poller_;
  base::Fd listener_;
  const Secret secret_;
  const base::Milliseconds hello_limit_;
  const Admit admit_;
  std::list<Guest> guests_;  ///< oldest first
  Poller::Timer pause_{base::kNever, 0};
};

}  // namespace tutti::bootstrap
