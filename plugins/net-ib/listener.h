// SPDX-License-Identifier: Apache-2.0
// The accepting side of the exchange.
#pragma once

#include <chrono>
#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "link.h"
#include "tutti/sdk/network.h"
#include "wire.h"

namespace tutti::net_ib {

/// A TCP connection is a guest until its Hello proves the secret. The number of guests is limited: where more come, the
/// oldest guest is dropped. So is a guest that takes too long. A connecting side that is dropped tries again.
///
/// The listener takes at most 1/16 of the time of the thread that calls it, apart from a reserve.
class Listener : public sdk::Listener {
 public:
  static Result<std::unique_ptr<Listener>> open(const Shared& shared, std::vector<Port> ports,
                                                tutti_net_handle& handle);
  ~Listener() override { shared_.events->forget(epoll_); }
  Result<std::unique_ptr<sdk::Connection>> accept() override;

 private:
  using Clock = std::chrono::steady_clock;
  enum class Step { kHello, kReady, kEnd };
  struct Guest {
    explicit Guest(const Fd& of) : epoll(of) {}
    ~Guest();
    const Fd& epoll;
    Fd socket;
    Clock::time_point deadline;
    sdk::Nonce nonce{};
    Hello hello;
    size_t read = 0;
    Step step = Step::kHello;
    std::unique_ptr<Link> link;  ///< link of a guest that has proved the secret
  };

  Listener(const Shared& shared, std::vector<Port> ports) : shared_(shared), ports_(std::move(ports)) {}
  Status visit(Clock::time_point now);
  Status greet();
  void add_guest(Fd socket);
  bool make_room();
  /// False: the guest has to go.
  bool hear(Guest& guest);
  bool read(Guest& guest, void* to, size_t bytes, bool& whole);
  bool introduce(Guest& guest);
  bool welcome(Guest& guest);
  void ask_for_events();

  const Shared& shared_;
  const std::vector<Port> ports_;
  Fd socket_;
  Fd epoll_;  // epoll of the socket and the guests
  Handle handle_;
  std::list<Guest> guests_;   // that have not proved the secret, oldest first
  std::list<Guest> friends_;  // that have; nobody drops them for their number
  std::vector<std::unique_ptr<Link>> ready_;
  Stir stir_;
  Clock::time_point next_look_{};
  Clock::time_point rest_until_{};
  Clock::time_point last_visit_{};
  Clock::duration reserve_{};  // of time; visits use it up
};

}  // namespace tutti::net_ib
