// SPDX-License-Identifier: Apache-2.0
// The accepting side: a listener that knows its friends by a secret. Nothing blocks, and no stranger ends anything.
#pragma once

#include <list>
#include <memory>
#include <vector>

#include "connection.h"
#include "shared.h"
#include "tutti/sdk/network.h"
#include "wire.h"

namespace tutti::net_ucx {

/// A line is a guest until its Hello proves the secret. Then it is a friend: a connection that waits for its trial. The
/// number of guests is limited: where more come, the oldest guest is dropped. So is a guest that takes too long. A
/// friend that is dropped connects again.
class Listener : public sdk::Listener {
 public:
  /// Fills `handle`.
  static Result<std::unique_ptr<sdk::Listener>> open(Shared& shared, tutti_net_handle& handle);
  ~Listener() override;
  Result<std::unique_ptr<sdk::Connection>> accept() override;

 private:
  static constexpr size_t kMostGuests = 128;
  static constexpr int kMostAtOnce = 8;  // guests that one visit takes
  static constexpr std::chrono::seconds kHelloLimit{10};
  static constexpr std::chrono::milliseconds kVisitInterval{1};
  static constexpr std::chrono::milliseconds kPause{100};  // without descriptors

  struct Guest {
    explicit Guest(const Shared& of) : shared(of) {}
    ~Guest() { shared.forget(line); }
    const Shared& shared;
    Fd line;
    Stir stir;
    Clock::time_point deadline;
    Challenge challenge;
    size_t said = 0;  // sent bytes of the challenge and the worker's address
    Hello hello;
    size_t heard = 0;
  };
  struct Friend {
    std::unique_ptr<Connection> connection;
    Clock::time_point deadline;  // of its trial
  };
  enum class Heard { kNotYet, kStranger, kFriend };

  explicit Listener(Shared& shared) : shared_(shared) {}
  Result<std::unique_ptr<sdk::Connection>> visit();
  Status greet(Clock::time_point now);
  bool add_guest(Fd line, Clock::time_point now);
  bool make_room(Clock::time_point now);
  Heard hear(Guest& guest);
  Heard judge(Guest& guest);
  void hear_guests(Clock::time_point now);
  std::unique_ptr<sdk::Connection> try_friends();

  Shared& shared_;
  Fd socket_;
  Stir stir_;
  Address address_;
  std::vector<std::byte> worker_;  // the address of the own worker
  std::list<Guest> guests_;        // oldest first
  std::list<Friend> friends_;
  std::vector<std::unique_ptr<Connection>> refused_;  // destroyed without the lock
  uint64_t round_ = 0;
  Clock::time_point next_visit_{};
};

}  // namespace tutti::net_ucx
