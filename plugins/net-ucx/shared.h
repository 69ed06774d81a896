// SPDX-License-Identifier: Apache-2.0
// The common objects of a context's listeners and connections: UCX, its endpoints, the event descriptor.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "endpoint.h"
#include "line.h"
#include "lock.h"
#include "tutti/sdk/plugin.h"
#include "tutti/status.h"
#include "ucx.h"

namespace tutti::net_ucx {

/// Set when a descriptor has events. It must live as long as the descriptor is open.
struct Stir {
  bool stirred = true;
};

/// Every entry of the plugin that touches UCX or a line holds the lock: one worker serves all connections, and the
/// host may call connections from several threads. No entry waits while it holds the lock, apart from closing.
class Shared {
 public:
  static Result<std::unique_ptr<Shared>> create(const sdk::Host& host, const UcxSettings& settings,
                                                SocketAddress interface_address);
  /// Sends the remaining data of closed connections, for kCloseLimit at most.
  ~Shared();
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;

  static constexpr std::chrono::seconds kCloseLimit{1};
  static constexpr uint32_t kAdvancesPerLook = 64;  // reading the clock costs as much as advancing over shared memory

  Lock lock;
  const sdk::Host host;
  const SocketAddress interface_address;  ///< at which lines end
  const std::chrono::milliseconds grace;
  std::unique_ptr<Ucx> ucx;
  std::optional<Endpoints> endpoints;  ///< set once the object is created
  uint64_t namespace_id = 0;           ///< inode of this thread's network namespace; 0: unknown

  /// A number for a connection, different for each.
  uint32_t next_id() { return ++last_id_; }
  int event_fd() const { return events_.get(); }
  /// Reports events of a descriptor to `stir`, from now on to no other, and wakes sleepers for them.
  Status watch(const Fd& fd, Stir& stir) const;
  /// Reports no event of a descriptor any more. Before each close() of a watched one: if a forked child has a copy, the
  /// descriptor stays in the epoll. With the lock.
  void forget(const Fd& fd) const;
  /// Advances UCX and, now and then, looks for events of lines. `round` as for Ucx::progress.
  void advance(uint64_t& round) {
    ucx->progress(round);
    if (++advances_ % kAdvancesPerLook == 0 || !ending_.empty()) look_and_sweep();
  }
  /// A receiver waits for its trial, or does so no longer. UCX does not wake sleepers for the first data of a new peer,
  /// so a timer wakes them meanwhile.
  void expect_trial() { ++without_trial_; }
  void trial_ended() { --without_trial_; }
  /// True if there is work now.
  Result<bool> arm();
  /// Takes an operation of UCX that ends by itself. Takes any of UCX's results.
  void leave_to_end(ucs_status_ptr_t operation);

 private:
  Shared(const sdk::Host& the_host, const SocketAddress& the_address, std::chrono::milliseconds the_grace)
      : host(the_host), interface_address(the_address), grace(the_grace) {}
  bool look();
  void look_and_sweep();
  void sweep();

  Fd events_;  // epoll of the worker's descriptor, lines_ and timer_
  Fd lines_;   // epoll, edge-triggered, of listeners and lines
  Fd timer_;   // while a receiver waits for its first message
  uint64_t without_trial_ = 0;
  uint32_t advances_ = 0;
  Clock::time_point next_look_{};
  uint32_t last_id_ = 0;
  std::vector<void*> ending_;  // operations of UCX
};

}  // namespace tutti::net_ucx
