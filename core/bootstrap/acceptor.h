// SPDX-License-Identifier: Apache-2.0
// The acceptor of the hubs of a process: it takes connections, and admits connections that prove that they know a
// secret.
#pragma once

#include <functional>
#include <list>
#include <map>
#include <set>
#include <string>

#include "base/socket.h"
#include "bootstrap/link.h"

namespace tutti::bootstrap {

/// A connection is a guest until it has answered the acceptor's challenge with a Hello and a right proof. A guest that
/// says anything else or takes too long is dropped without an answer. There may be many guests, and they change
/// nothing.
///
/// A acceptor serves many hubs with one listener. Each hub has its own secret, whose tag names it in a Hello. Hubs own
/// their acceptor; the listener closes with the last of them.
///
/// Everything here runs on the poller's thread.
class Acceptor {
 public:
  /// Connections without a proof that are heard at a time; one more takes the place of the oldest.
  static constexpr size_t kMaxGuests = 4096;
  /// The same while no rank is awaited: strangers must not use up the descriptors of a job that runs.
  static constexpr size_t kMaxGuestsAtRest = 64;

  /// How long a guest may take to prove that it knows the secret.
  static constexpr base::Milliseconds kHelloLimit{5000};
  /// Guests that are taken in a row, and how long the acceptor then rests if it expects no rank.
  static constexpr int kMostAtOnce = 16;
  static constexpr base::Milliseconds kRestWhenComplete{100};
  /// Decides on a guest that knows the secret. When ok it has taken the link over; a failure is told to the guest.
  using Admit = std::function<Status(const std::shared_ptr<Link>& link, const Hello& hello, const Header& header)>;

  /// Whether this process has an acceptor that at() would return for the address.
  static bool exists_at(Poller& poller, const base::SocketAddress& address);
  /// The acceptor on `listener`, which listens on the address; an invalid listener: it listens here. With port 0 it is
  /// the one acceptor of this process on any free port of that address.
  static Result<std::shared_ptr<Acceptor>> at(Poller& poller, const base::SocketAddress& address, base::Fd listener);
  /// Calls `use` with the acceptor at the address, and returns the acceptor's address. Any thread: the caller listens,
  /// because it may be in a different network namespace than the poller's thread, on which `use` runs.
  static Result<base::SocketAddress> serve(Poller& poller, const base::SocketAddress& address,
                                           const std::function<Status(std::shared_ptr<Acceptor>)>& use);
  Acceptor(Poller& poller, base::Fd listener, base::Milliseconds hello_limit = kHelloLimit);
  ~Acceptor();
  Acceptor(const Acceptor&) = delete;
  Acceptor& operator=(const Acceptor&) = delete;

  base::SocketAddress address() const { return base::local_address(listener_); }
  /// Admits connections that know the secret, until close_for() with the returned tag.
  Result<Tag> open_for(const Secret& secret, Admit admit);
  void close_for(const Tag& tag) { rooms_.erase(tag); }
  /// All ranks of the tag's hub have joined, or they come much later. While this holds for all hubs of the acceptor, it
  /// takes guests at a low rate, so that strangers cost the job little.
  void expect_few_for(const Tag& tag) { rooms_.at(tag).complete = true; }
  /// Ranks of the tag's hub come now.
  void expect_many_for(const Tag& tag);
  /// "; 1 process was refused ...", if a Hello with a wrong proof came while ranks of the tag's hub were expected; else
  /// empty. Other strangers do not count. A process counts once: ranks try several times.
  std::string text_of_refusals(const Tag& tag) const;

 private:
  struct Guest {
    std::shared_ptr<Link> link;
    sdk::Nonce nonce;
    Poller::Timer limit;
  };
  using GuestAt = std::list<Guest>::iterator;
  struct Room {
    Secret secret;
    Admit admit;
    bool complete = false;            ///< no rank of the hub is awaited
    std::set<uint64_t> refused = {};  ///< processes with a wrong proof, as they name themselves; a limited number
    std::string last_refused = {};    ///< address of the latest of them, without its port
  };

  void take_guests();
  bool expects_ranks() const;
  bool make_room();
  void rest(base::Milliseconds time);
  void end_rest();
  void warn_of_limit();
  void add(base::Fd socket);
  void hear(GuestAt guest, const Frame& frame);
  const Room* room_for(const Guest& guest, const Hello& hello, const Frame& frame) const;
  const Room* room_of_earlier_version(const Frame& frame) const;
  void note_refusal(const Guest& guest, const Hello& hello, const Frame& frame);
  void drop(GuestAt guest);

  Poller& poller_;
  base::Fd listener_;
  const base::Milliseconds hello_limit_;
  std::map<Tag, Room> rooms_;
  std::list<Guest> guests_;  ///< oldest first
  Poller::Timer rest_{base::kNever, 0};
  bool warned_ = false;
};

}  // namespace tutti::bootstrap
